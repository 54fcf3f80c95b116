"""The stages of a guarded call with a server that does what the test says: questions within an approval, repeats."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.arguments import direct
from proxy.caller import Access, Caller
from proxy.catalog import Catalog, make_server
from proxy.config import AuditConfig, GuardConfig, Profile, ServerConfig, Settings, ToolSearchConfig
from proxy.dispatch import TOGETHER, Dispatcher
from proxy.errors import UpstreamFailure
from proxy.guard import Gate
from proxy.tool import Tool

DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
ACCEPT = {"narrow_waist_approval": {"action": "accept", "content": {}}}


class Asker:
    """A stateless client that can be asked."""

    key, log_level, stateless = None, None, True
    capabilities: Mapping[str, Any] = {"elicitation": {}}

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    async def say(self, method: str, params: Mapping[str, Any]) -> None:
        raise NotImplementedError


class Server:
    """Answers each call with the next of what it was given."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers, self.given = list(answers), list[Mapping[str, Any]]()

    async def call_tool(
        self, tool: Tool, arguments: Mapping[str, Any] | None, meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        self.given.append(caller.answers)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def guarded(server: Server, file: Path, **keys: Any) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Calls of the tool `save`, which has to be approved unless the server may be retried; each is written down."""
    config = ServerConfig("s", "stdio", **keys)
    policy: dict[Any, Any] = {} if keys.get("retry") else {"write": "ask"}
    settings = Settings(
        servers=(config,),
        profiles={"p": Profile("p", policy=policy)},
        guard=GuardConfig(audit=AuditConfig(file)),
    )
    dispatcher = Dispatcher(server, {"s": config}, ToolSearchConfig(), Gate(settings, "tool_call"))
    notes = {"idempotentHint": True}
    catalog = Catalog([make_server(config, [{"name": "save", "inputSchema": {}, "annotations": notes}])])

    async def call(word: str = "now", **answers: Any) -> dict[str, Any]:
        caller = Caller("client", origin=Asker(), answers=answers, access=Access(("p",)))
        answer = await dispatcher.call(catalog, direct("s__save", {"word": word}), {}, caller)
        await asyncio.sleep(0)
        return answer

    return call


def outcomes(file: Path) -> list[tuple[str, int | None]]:
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(entry["outcome"], entry.get("tries")) for entry in entries]


async def test_what_a_server_asks_within_an_approved_call_needs_no_second_approval(tmp_path: Path) -> None:
    own = {"which": {"method": "elicitation/create", "params": {"message": "Which?"}}}
    asks = {"resultType": "input_required", "inputRequests": own, "requestState": "state-of-the-server"}
    server = Server(asks, {**asks, "requestState": "second"}, DONE)
    call = guarded(server, tmp_path / "audit.jsonl")

    first = await call()
    assert first["inputRequests"].keys() == ACCEPT.keys() and not server.given
    second = await call(inputResponses=ACCEPT, requestState=first["requestState"])
    assert second["inputRequests"] == own, "the server's own question, as it is"
    assert "state-of-the-server" != second["requestState"], "its state travels inside ours"
    answer = {"which": {"action": "accept", "content": {"x": 1}}}

    other = await call("other", inputResponses=answer, requestState=second["requestState"])
    assert other["inputRequests"].keys() == ACCEPT.keys(), "what was approved is this call, not another"
    forged = await call(inputResponses=answer, requestState="state-of-the-server")
    assert forged["inputRequests"].keys() == ACCEPT.keys()

    third = await call(inputResponses=answer, requestState=second["requestState"])
    assert third["inputRequests"] == own
    assert await call(inputResponses=answer, requestState=third["requestState"]) == DONE
    assert server.given == [
        {},
        {"inputResponses": answer, "requestState": "state-of-the-server"},
        {"inputResponses": answer, "requestState": "second"},
    ]
    assert [outcome for outcome, _ in outcomes(tmp_path / "audit.jsonl")].count("asked") == 3


async def test_each_repeat_is_counted_in_the_audit(tmp_path: Path) -> None:
    lost = UpstreamFailure("s", "connection lost", may_have_run=True)
    unsent = UpstreamFailure("s", "down", may_have_run=False)
    server = Server(lost, lost, DONE, DONE, lost, lost, lost, unsent)
    call = guarded(server, tmp_path / "audit.jsonl", retry=True)
    assert await call() == DONE and await call() == DONE
    assert (await call())["isError"] and (await call())["isError"]
    assert outcomes(tmp_path / "audit.jsonl") == [
        ("ok", 3), ("ok", None), ("failed: connection lost", 3), ("failed: down", None),
    ]  # fmt: skip


async def test_calls_that_end_together_are_all_written_down(tmp_path: Path) -> None:
    server = Server(DONE, UpstreamFailure("s", "down", may_have_run=False), DONE)
    call = guarded(server, tmp_path / "audit.jsonl", retry=True)
    await asyncio.gather(call("1"), call("2"), call("3"))
    assert [outcome for outcome, _ in outcomes(tmp_path / "audit.jsonl")] == ["ok", "failed: down", "ok"]


async def test_of_many_calls_in_one_turn_few_lines_wait(tmp_path: Path) -> None:
    """What needs not wait is answered in one turn: a process that is killed in it had left no line of 50 answers."""
    server = Server(*[DONE] * TOGETHER)
    call = guarded(server, tmp_path / "audit.jsonl", retry=True)
    calls = [call(str(n)) for n in range(TOGETHER)]
    for each in calls:  # by hand: no turn of the event loop comes between them
        with pytest.raises(StopIteration):
            while True:
                each.send(None)
    assert len(outcomes(tmp_path / "audit.jsonl")) == TOGETHER


async def test_without_the_persons_word_nothing_is_repeated(tmp_path: Path) -> None:
    server = Server(UpstreamFailure("s", "connection lost", may_have_run=True))
    call = guarded(server, tmp_path / "audit.jsonl")
    question = await call()
    assert (await call(inputResponses=ACCEPT, requestState=question["requestState"]))["isError"]
    assert outcomes(tmp_path / "audit.jsonl")[-1] == ("failed: connection lost", None)
