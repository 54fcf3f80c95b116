"""Every way to reach a tool x every reason to be refused: nothing leaks, to the byte.

Each reason is played twice: with the tools (and the resources and prompts of their server) that it hides, and with
servers that never had them. Whatever a caller can ask, over every door, both must answer the same.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from guarded_house import MODERN, OLD, Client, Message, called, daemon, house, stdio, upstream, write

from proxy.catalog import make_server
from proxy.cli import main
from proxy.cli.startup import Startup
from proxy.config import ServerConfig
from proxy.guard.lock import Lock, write_lock
from proxy.guard.tokens import TokenFile

SECRET = "hidden_launch_codes"
SCHEMA = {"type": "object", "properties": {"page": {"type": "string", "description": "Which page"}}}


def tool(name: str, description: str, **notes: bool) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": SCHEMA, "annotations": notes}


SHOWN = [
    tool("read_page", "Read a page of the wiki", readOnlyHint=True),
    tool("list_pages", "List the pages of the wiki", readOnlyHint=True),
]
HIDDEN = [
    tool(SECRET, "Launch the codes of the wiki", destructiveHint=True),
    tool("read_page_raw", "Read the launch page raw", destructiveHint=True),
]
ZETA = [tool("zeta_secret", "Launch from another server", destructiveHint=True)]
WIKI_OFFERS: dict[str, Any] = {
    "resources": [{"uri": "wiki://start", "name": "start"}],
    "templates": [{"uriTemplate": "wiki://page/{name}", "name": "page"}],
    "prompts": [{"name": "sum_up", "description": "Sum up", "arguments": [{"name": "page"}]}],
}
ZETA_OFFERS: dict[str, Any] = {
    "resources": [{"uri": "zeta://launch", "name": "launch"}],
    "templates": [{"uriTemplate": "zeta://launch/{code}", "name": "code"}],
    "prompts": [{"name": "launch", "description": "Launch it", "arguments": [{"name": "code"}]}],
}
NAMES = (
    f"wiki__{SECRET}", f"wiki.{SECRET}", f"wiki/{SECRET}", f"wiki:{SECRET}", f"mcp__wiki__{SECRET}",
    f"mcp_wiki_{SECRET}", SECRET, "wiki__hidden_launch_code", "read_page_raw", "other__zeta_secret", "zeta_secret",
)  # fmt: skip
READ = {"read": ["wiki/read_page", "wiki/list_pages"]}
TOOLSETS = {
    "pages": {"tools": ["wiki/read_page", "wiki/list_pages"]},
    "rest": {"servers": ["other"], "tools": [f"wiki/{SECRET}", "wiki/read_page_raw"]},
    "other": {"servers": ["other"]},
}


def not_locked(folder: Path) -> None:
    """Only what is shown was ever approved."""
    tools = make_server(ServerConfig("wiki", "stdio"), SHOWN).tools
    write_lock(folder / "upstreams.lock", Lock().approved("wiki", tools, ""))


def locked_otherwise(folder: Path) -> None:
    """What is hidden was approved when it said something else."""
    before = [{**each, "description": "Harmless"} for each in HIDDEN]
    lock = Lock().approved("wiki", make_server(ServerConfig("wiki", "stdio"), [*SHOWN, *before]).tools, "")
    harmless = [{**each, "description": "Harmless"} for each in ZETA]
    lock = lock.approved("other", make_server(ServerConfig("other", "stdio"), harmless).tools, "")
    write_lock(folder / "upstreams.lock", lock)


@dataclass(frozen=True)
class Reason:
    """Why the hidden tools are refused to callers of the profile `work`, and nothing else is."""

    work: Mapping[str, Any] = field(default_factory=dict[str, Any])
    guard: Mapping[str, Any] | None = None
    wiki: Mapping[str, Any] = field(default_factory=dict[str, Any])
    other: Mapping[str, Any] = field(default_factory=dict[str, Any])
    whole: bool = True
    """The server `other` is hidden with its resources and prompts, not only its tools."""
    disabled: bool = False
    prepare: Callable[[Path], None] = lambda folder: None


NAMES_HIDDEN = [each["name"] for each in HIDDEN]
REASONS = {
    "excluded": Reason(wiki={"tools": {"exclude": NAMES_HIDDEN}}, other={"tools": {"exclude": ["*"]}}, whole=False),
    "denied by the configuration": Reason(wiki={"deny": NAMES_HIDDEN}, other={"deny": ["zeta_*"]}, whole=False),
    "not in an enabled toolset": Reason(work={"enabled": ["pages"]}),
    "in a disabled toolset": Reason(work={"disabled": ["rest"]}),
    "denied by its risk": Reason(work={"policy": {"destructive": "deny"}, "disabled": ["other"]}, guard={"risk": READ}),
    "read only": Reason(work={"read_only": True, "disabled": ["other"]}, guard={"risk": READ}),
    "new since the lock": Reason(guard={"lock": "strict"}, prepare=not_locked),
    "changed since the lock": Reason(guard={"lock": "strict"}, prepare=locked_otherwise, whole=False),
    "of a server that is disabled": Reason(disabled=True),
}


def config(folder: Path, reason: Reason, *, hidden: bool) -> Path:
    """A configuration whose servers have what is hidden, or never had it."""
    folder.mkdir()
    wiki = [*SHOWN, *HIDDEN] if hidden and not reason.disabled else SHOWN
    servers = {
        "wiki": upstream(folder / "wiki", {"tools": wiki, **WIKI_OFFERS}, pinned=["read_page", SECRET], **reason.wiki),
        "other": upstream(
            folder / "other",
            {"tools": ZETA if hidden else [], **(ZETA_OFFERS if hidden or not reason.whole else {})},
            **reason.other,
        ),
    }
    root: dict[str, Any] = {"profiles": {"work": reason.work, "default": {}}}
    if reason.disabled:
        servers["other"]["enabled"] = False
        if not hidden:
            del servers["other"]
    else:
        root["toolsets"] = TOOLSETS
    if reason.guard is not None:
        root["guard"] = reason.guard
    reason.prepare(folder)
    return write(folder / "upstreams.yaml", servers, **root)


async def everything(client: Client) -> list[Message]:
    """All that a caller can find out, in the order it was asked."""
    said = [await client.hello(), await client.request("tools/list")]
    searches: list[dict[str, Any]] = [
        {}, {"query": "launch codes"}, {"query": "page"}, {"query": SECRET}, {"query": "x", "server": "other"},
        {"queries": ["launch", "secret", "wiki"]}, {"query": "page", "detail": "full"}, {"server": "wiki"},
    ]  # fmt: skip
    said += [await client.call("tool_search", search) for search in searches]
    said += [await client.call("tool_describe", {"name": name}) for name in (*NAMES, "read_page")]
    said += [await client.call("tool_describe", {"names": list(NAMES)})]
    for name in NAMES:
        said += [await client.through(name, {"page": "x"}), await client.call(name, {"page": "x"})]
        said.append(await client.through(name, "nonsense"))
    said += [
        await client.through(NAMES[0], {"page": 1}),
        await client.through("tool_call", {"name": NAMES[0], "arguments": {}}),
        await client.call("tool_call_readonly", {"name": NAMES[0], "arguments": {}}),
    ]
    lists = ("resources/list", "resources/templates/list", "prompts/list")
    said += [await client.request(method) for method in lists]
    for uri in ("zeta://launch", "zeta://launch/7", "narrow-waist:other/zeta://launch"):
        said.append(await client.request("resources/read", {"uri": uri}))
    if client.era == OLD:
        said.append(await client.request("resources/subscribe", {"uri": "zeta://launch"}))
    said += [await client.request("prompts/get", {"name": name}) for name in ("other__launch", "launch")]
    refs = ({"type": "ref/prompt", "name": "other__launch"}, {"type": "ref/resource", "uri": "zeta://launch/{code}"})
    argument = {"name": "code", "value": "7"}
    said += [await client.request("completion/complete", {"ref": ref, "argument": argument}) for ref in refs]
    return said


async def good(client: Client) -> None:
    """What is in the scope works."""
    result = (await client.through("wiki__read_page", {"page": "x"}))["result"]
    assert result["content"][0]["text"] == "ran read_page"


async def over_stdio(path: Path, era: str) -> list[Any]:
    async with house(path, clients=1, profiles=("work",)) as app, stdio(app, era) as client:
        said = await everything(client)
        await good(client)
    return said


async def over_http(path: Path, token: str, tokens: TokenFile, all_token: str) -> list[Any]:
    """By the profile in the URL, and by the profile of the token; and what the daemon says of its state."""
    async with house(path) as app, daemon(app, tokens) as front:
        said: list[Any] = []
        for era, where, shown in ((MODERN, "/mcp/work", all_token), (OLD, "/mcp", token), (OLD, "/mcp/work", token)):
            client = front.client(era, where, shown)
            if (era, where) == (OLD, "/mcp/work"):
                said.append(await client.hello())
            else:
                said += await everything(client)
            await good(client)
        health = await front.http.get("/health", headers={"authorization": f"Bearer {token}"})
        said.append(health.json())
        assert set(health.json()["servers"]) >= {"wiki"}
    return said


def judge(said: list[list[Any]], folder: Path, reason: Reason) -> None:
    """Both sides said the same, and nothing of what is hidden."""
    for number, (having, never) in enumerate(zip(*said, strict=True)):
        assert having == never, f"answer {number}"
    text = json.dumps(said[0])
    assert "Read a page of the wiki" in text, "what is in the scope must be there"
    for tell in ("Launch the codes", "Launch from another", "ran hidden", "ran zeta", "Launch the launch"):
        assert tell not in text
    if reason.whole:
        assert "read zeta" not in text and "got launch" not in text and "completed" not in text
    asked = called(folder / "wiki") + called(folder / "other")
    assert asked and not any(name in line for line in asked for name in (*NAMES_HIDDEN, "zeta_secret"))
    if reason.whole:
        assert not called(folder / "other")


@pytest.mark.parametrize("door", ["stdio", "http"])
@pytest.mark.parametrize("reason", REASONS)
def test_what_is_hidden_is_answered_as_what_never_was(reason: str, door: str, tmp_path: Path) -> None:
    why = REASONS[reason]
    tokens = TokenFile(tmp_path / "tokens.json")
    token, all_token = tokens.create("worker", ("work",)), tokens.create("all", ())
    said: list[list[Any]] = []
    for side in ("with", "without"):
        path = config(tmp_path / side, why, hidden=side == "with")
        if door == "stdio":
            said.append([each for era in (OLD, MODERN) for each in anyio.run(over_stdio, path, era)])
        else:
            said.append(anyio.run(over_http, path, token, tokens, all_token))
    judge(said, tmp_path / "with", why)


@pytest.mark.parametrize("reason", REASONS)
def test_the_command_line_tells_no_more(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = (
        ["list"], ["list", "wiki"], ["list", "other"], ["search", "launch", "codes"],
        ["describe", f"wiki__{SECRET}", "zeta_secret"], ["call", f"wiki.{SECRET}"], ["call", "zeta_secret"],
        ["check"], ["tokens"], ["doctor", "cursor", "--text"],
    )  # fmt: skip
    monkeypatch.setattr("proxy.cli.doctor.measure", lambda *_: Startup(0.1, 0.2))
    outputs: list[list[tuple[int, str, str]]] = []
    for side in ("with", "without"):
        path = config(tmp_path / side, REASONS[reason], hidden=side == "with")
        monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / side / "cache"))
        main(["call", "wiki__read_page", "--config", str(path), "--profile", "work"])
        assert "ran read_page" in capsys.readouterr().out
        for command in commands:
            code = main([*command, "--config", str(path), "--profile", "work"])
            done = capsys.readouterr()
            out = re.sub(r"\b\d\.\d s *", "SECONDS ", done.out)
            outputs.append([(code, out, done.err.replace(str(path.parent), ""))])
    half = len(commands)
    assert outputs[:half] == outputs[half:]
    assert "read_page" in outputs[1][0][1]
    assert all("wiki" in out for [(_, out, _)] in outputs[half - 3 : half]), "check, tokens and doctor have shown it"
    assert "Launch" not in json.dumps(outputs)


LIMITED = ("wiki__read_page", "wiki.read_page", "mcp__wiki__read_page", "read_page", f"wiki__{SECRET}", "wiki__none")


async def limited(client: Client) -> list[Message]:
    """Every way to use something, of what there is and of what there is not, beyond the limit."""
    await client.hello()
    await good(client)
    uses = [await client.through(name) for name in LIMITED] + [await client.call(name) for name in LIMITED]
    assert len({json.dumps(use) for use in uses}) == 1, "the refusal does not say what there is"
    assert "1 calls a minute" in json.dumps(uses[0]) and uses[0]["result"]["isError"]
    asked: list[tuple[str, dict[str, Any]]] = [
        *(("resources/read", {"uri": uri}) for uri in ("wiki://start", "wiki://page/x", "none://")),
        *(("prompts/get", {"name": name}) for name in ("wiki__sum_up", "none")),
    ]
    for name in ("wiki__sum_up", "none"):
        ref = {"type": "ref/prompt", "name": name}
        asked.append(("completion/complete", {"ref": ref, "argument": {"name": "page", "value": ""}}))
    refused = [await client.request(method, params) for method, params in asked]
    assert len({json.dumps(each) for each in refused}) == 1 and "1 calls a minute" in refused[0]["error"]["message"]
    return uses


async def test_above_the_rate_limit_what_there_is_is_answered_as_what_is_not(tmp_path: Path) -> None:
    offers = {"tools": [*SHOWN, *HIDDEN], **WIKI_OFFERS}
    path = write(
        tmp_path / "upstreams.yaml",
        {"wiki": upstream(tmp_path / "wiki", offers)},
        profiles={name: {"rate_limit": 1} for name in ("default", "url", "token")},
    )
    tokens = TokenFile(tmp_path / "tokens.json")
    bound, free = tokens.create("bound", ("token",)), tokens.create("free", ())
    for era in (OLD, MODERN):
        async with house(path, clients=1) as app, stdio(app, era) as client:
            await limited(client)
        async with house(path) as app, daemon(app, tokens) as front:
            await limited(front.client(era, "/mcp/url", free))
            await limited(front.client(era, "/mcp", bound))
    assert called(tmp_path / "wiki") == ["tools/call read_page"] * 6


async def test_a_bridge_that_is_off_hides_no_less(tmp_path: Path) -> None:
    """All tools direct: the list itself is what could leak."""
    why = REASONS["in a disabled toolset"]
    said: list[Any] = []
    for side in ("with", "without"):
        path = config(tmp_path / side, why, hidden=side == "with")
        root = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**root, "tool_search": False}), encoding="utf-8")
        async with house(path, clients=1, profiles=("work",)) as app, stdio(app, OLD) as client:
            said.append([await client.hello(), await client.request("tools/list")])
            said[-1] += [await client.call(name, {"page": "x"}) for name in NAMES]
            names = [each["name"] for each in said[-1][1]["result"]["tools"]]
    assert said[0] == said[1]
    assert names == ["wiki__list_pages", "wiki__read_page"]
