"""Resource reads, prompts and completions go through the guard like calls: scoped, limited, asked about, audited.

(That what is hidden is answered as what never was, and the limit, are in test_guard_matrix.py.)
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from guarded_house import MODERN, OLD, Client, Message, called, daemon, house, stdio, upstream, write

from proxy.catalog import make_server
from proxy.cli import main
from proxy.config import ServerConfig
from proxy.errors import UpstreamFailure
from proxy.guard.lock import Lock, write_lock
from proxy.guard.tokens import TokenFile

OFFERS: dict[str, Any] = {
    "tools": [{"name": "look", "description": "Look", "inputSchema": {"type": "object"}}],
    "resources": [{"uri": "docs://start", "name": "start"}],
    "templates": [{"uriTemplate": "docs://page/{name}", "name": "page"}],
    "prompts": [{"name": "sum_up", "arguments": [{"name": "page"}]}],
}
READ = ("resources/read", {"uri": "docs://start"})
GET = ("prompts/get", {"name": "docs__sum_up", "arguments": {"page": "start"}})
COMPLETE = (
    "completion/complete",
    {"ref": {"type": "ref/prompt", "name": "docs__sum_up"}, "argument": {"name": "page", "value": "st"}},
)
USES = (READ, GET, COMPLETE)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def config(folder: Path, **root: Any) -> Path:
    return write(folder / "upstreams.yaml", {"docs": upstream(folder / "docs", OFFERS)}, **root)


def entries(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def use(client: Client) -> list[Message]:
    await client.hello()
    await client.request("tools/list")
    return [await client.request(*each) for each in USES]


@pytest.mark.parametrize("era", [OLD, MODERN])
async def test_each_is_a_line_of_the_audit_that_names_its_kind(
    era: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, guard={"audit": {"file": "audit.jsonl"}}, profiles={"work": {}})
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create("worker", ("work",))
    async with house(path) as app, daemon(app, tokens) as front:
        client = front.client(era, token=token)
        assert "error" not in json.dumps(await use(client))
        await client.request("resources/read", {"uri": "docs://page/seven"})
        await client.request("resources/read", {"uri": "none://"})
        await client.through("docs__look")
    kept = entries(tmp_path)
    assert [(e["kind"], e["server"], e[e["kind"]], e["outcome"]) for e in kept] == [
        ("resource", "docs", "docs://start", "ok"),
        ("prompt", "docs", "sum_up", "ok"),
        ("completion", "docs", "sum_up", "ok"),
        ("resource", "docs", "docs://page/seven", "ok"),
        ("resource", None, "none://", "refused"),
        ("tool", "docs", "look", "ok"),
    ]
    assert {(e["caller"], e["client"], e["profile"]) for e in kept} == {("worker", "guarded-client", "work")}
    assert all(e["risk"] == "read" for e in kept[:-1]) and kept[0]["received"] == len("read docs://start")
    assert not any("arguments" in e for e in kept)
    assert main(["audit", "--config", str(path), "--last", "0"]) == 0
    printed = capsys.readouterr().out
    assert "resource docs/docs://start" in printed and "prompt docs/sum_up" in printed and "docs/look" in printed


async def test_what_was_sent_is_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    path = config(tmp_path, guard={"audit": {"file": "audit.jsonl", "arguments": True}})
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        await use(client)
    assert entries(tmp_path)[1]["arguments"] == {"name": "sum_up", "arguments": {"page": "start"}}


async def test_a_failure_of_the_server_is_in_the_audit(tmp_path: Path) -> None:
    path = config(tmp_path, guard={"audit": {"file": "audit.jsonl"}})
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        await use(client)

        async def lost(*_: object) -> dict[str, Any]:
            raise UpstreamFailure("docs", "gone", may_have_run=False)

        app._now.forwarder._upstreams.request = lost  # type: ignore[method-assign]
        assert (await client.request(*READ))["error"]
    assert entries(tmp_path)[-1]["outcome"] == "failed: gone"


async def follow(client: Client, uri: str) -> Message:
    """The answer to a subscription; of a stateless client, the first thing that its stream says."""
    if client.era == OLD:
        return await client.request("resources/subscribe", {"uri": uri})
    return await client.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})


async def test_a_subscription_is_a_line_of_the_audit(tmp_path: Path) -> None:
    path = config(tmp_path, guard={"audit": {"file": "audit.jsonl"}})
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        await client.hello()
        await client.request("tools/list")
        for uri in ("docs://start", "docs://start", "none://"):
            await follow(client, uri)
    assert [(e["kind"], e["server"], e["subscription"], e["outcome"]) for e in entries(tmp_path)] == [
        ("subscription", "docs", "docs://start", "ok"),
        ("subscription", None, "none://", "refused"),
    ]


@pytest.mark.parametrize("era", [OLD, MODERN])
async def test_above_the_rate_limit_no_more_resources_are_followed(era: str, tmp_path: Path) -> None:
    path = config(tmp_path, guard={"audit": {"file": "audit.jsonl"}}, profiles={"default": {"rate_limit": 1}})
    async with house(path, clients=1) as app, stdio(app, era) as client:
        await client.hello()
        await client.request("tools/list")
        await client.request(*READ)
        refused = [await follow(client, uri) for uri in ("docs://start", "docs://page/x", "none://")]
    assert all("1 calls a minute" in each["error"]["message"] for each in refused)
    assert len({json.dumps(each["error"]) for each in refused}) == 1
    assert [(e["kind"], e["outcome"]) for e in entries(tmp_path)[1:]] == [("subscription", "refused: rate limit")] * 3


async def test_a_profile_that_may_not_read_has_none_of_them(tmp_path: Path) -> None:
    path = config(tmp_path, profiles={"default": {"policy": {"read": "deny"}}})
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        assert all("error" in each for each in await use(client))
        assert (await client.request("resources/list"))["result"]["resources"] == []
        assert (await client.request("prompts/list"))["result"]["prompts"] == []
    assert called(tmp_path / "docs") == []


ASKING: Mapping[str, Any] = {"profiles": {"default": {"policy": {"read": "ask"}}}}


async def test_a_person_is_asked_before_something_is_read(tmp_path: Path) -> None:
    async with house(config(tmp_path, **ASKING), clients=1) as app, stdio(app, OLD, {"elicitation": {}}) as client:
        read, got, completed = await use(client)
        assert read["result"]["contents"][0]["text"] == "read docs://start" and "result" in got
        assert "approved" in completed["error"]["message"], "nobody is asked at every key"
        questions = [told["params"]["message"] for told in client.told if told.get("method") == "elicitation/create"]
    assert ["docs://start" in questions[0], "sum_up" in questions[1], len(questions)] == [True, True, 2]
    assert called(tmp_path / "docs") == ["resources/read docs://start", "prompts/get sum_up"]


async def test_a_client_that_cannot_ask_reads_nothing(tmp_path: Path) -> None:
    async with house(config(tmp_path, **ASKING), clients=1) as app, stdio(app, OLD) as client:
        assert all("error" in each for each in await use(client))
    assert called(tmp_path / "docs") == []


async def test_a_stateless_read_is_approved_by_what_was_signed_for_it(tmp_path: Path) -> None:
    async with house(config(tmp_path, **ASKING), clients=1) as app, stdio(app, MODERN, {"elicitation": {}}) as client:
        await client.hello()
        await client.request("tools/list")
        method, params = READ
        question = (await client.request(method, params))["result"]
        assert question["resultType"] == "input_required"
        answer = {
            "requestState": question["requestState"],
            "inputResponses": {"narrow_waist_approval": {"action": "accept", "content": {}}},
        }
        other = await client.request(method, {"uri": "docs://page/other", **answer})
        assert other["result"]["resultType"] == "input_required", "it was approved for another resource"
        assert (await client.request(method, {**params, **answer}))["result"]["contents"]
        assert "error" in await client.request(method, {**params, **answer}), "an approval is good once"
    assert called(tmp_path / "docs") == ["resources/read docs://start"]


async def test_in_strict_mode_a_server_of_which_nothing_was_approved_offers_nothing(tmp_path: Path) -> None:
    path = config(tmp_path, guard={"lock": "strict"})
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        assert all("error" in each for each in await use(client))
        assert "its resources and prompts are withheld" in app.base.notes("docs")[-1]
    tools = make_server(ServerConfig("docs", "stdio"), OFFERS["tools"]).tools
    write_lock(tmp_path / "upstreams.lock", Lock().approved("docs", tools, ""))
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        assert not any("error" in each for each in await use(client)) and not app.base.notes("docs")
