"""A client that does not read, and a server that does not stop: memory is bounded, and no answer is lost.

Found by breaking: 200 MB a second. Nor does such a client keep a server's `max_concurrency` from others.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.app import App
from proxy.upstream import peer, questions
from tests.guarded_house import MODERN, NAMED, OLD, PREFIX, called, house, listening, stdio, upstream, write

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("flood", "touch", "work", "big", "small")]
URI = "mem://a"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def proxy(folder: Path) -> AsyncGenerator[tuple[App, Any]]:
    offers = {"tools": TOOLS, "resources": [{"uri": URI, "name": "a"}]}
    path = write(folder / "u.json", {"s": upstream(folder / "s", offers, max_concurrency=1)})
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        await client.hello()
        await app.fleet.wait_known(30)
        yield app, client


@asynccontextmanager
async def deaf(app: App, client: Any) -> AsyncGenerator[None]:
    """The client does not read in the block; at its end all calls have their answers, and it reads again."""
    client.writer.pause_writing()
    yield
    await anyio.wait_all_tasks_blocked()
    while app.fleet.connections["s"].questions.busy:  # noqa: ASYNC110 - nothing tells that an answer has come
        await anyio.sleep(0.001)
    client.writer.resume_writing()


async def answer(client: Any, ident: int) -> Any:
    while (message := await client.next())["id" if "id" in message else "method"] != ident:
        client.told.append(message)
    return message["result"]["content"][0]["text"]


async def test_a_flood_of_log_messages_waits_within_bounds_and_the_answer_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(questions, "MOST_SAID", 1_000)
    with anyio.fail_after(30):
        async with proxy(tmp_path) as (app, client):
            async with deaf(app, client):
                client.ask(77, "s__flood", {"times": 5_000})
            assert await answer(client, 77) == "ran flood"
            said = [
                message["params"]["data"] for message in client.told if message["method"] == "notifications/message"
            ]
            assert 1_000 <= len(said) <= 1_001, "the one that was being written, and the last ones"
            assert said[0] == 0 and said[1:] == list(range(4_000, 5_000))[-len(said[1:]) :]
            assert caplog.text.count("the oldest of its log messages are dropped") == 1


async def test_a_resource_that_changes_all_the_time_is_told_once_when_the_client_reads_again(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with proxy(tmp_path) as (app, client):
            assert "result" in await client.request("resources/subscribe", {"uri": URI})
            async with deaf(app, client):
                client.ask(77, "s__touch", {"uri": URI, "times": 5_000})
            assert await answer(client, 77) == "ran touch"
            await client.request("ping")
            updates = [message for message in client.told if message["method"] == "notifications/resources/updated"]
            assert 1 <= len(updates) <= 3


async def sent(folder: Path, line: str) -> None:
    """Wait until the server was asked for it."""
    while line not in called(folder):  # noqa: ASYNC110 - another process writes the file
        await anyio.sleep(0.001)


@pytest.mark.parametrize("arguments", [{"times": 5_000}, {"times": 3, "pad": 1}])
async def test_what_was_said_during_a_call_and_is_not_read_keeps_no_other_call_from_its_server(
    arguments: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "UNREAD", 0.01)
    with anyio.fail_after(30):
        async with proxy(tmp_path) as (_, client):
            client.writer.pause_writing()
            name = "work" if "pad" in arguments else "flood"
            client.ask(77, f"s__{name}", arguments, progressToken="p")
            await sent(tmp_path / "s", f"tools/call {name}")
            client.ask(78, "s__small", {})
            await sent(tmp_path / "s", "tools/call small")
            client.writer.resume_writing()
            answers: dict[int, str] = {}
            while len(answers) < 2:
                if "id" in (message := await client.next()):
                    answers[message["id"]] = message["result"]["content"][0]["text"]
    assert answers == {77: f"ran {name}", 78: "ran small"}


def http_call(port: int, name: str, arguments: dict[str, int], **meta: str) -> bytes:
    envelope = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientInfo": NAMED, f"{PREFIX}clientCapabilities": {}}
    call = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}, "_meta": {**envelope, **meta}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\naccept: application/json, text/event-stream\r\n"
        f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/call\r\nmcp-name: tool_call\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize(
    ("name", "arguments", "meta"),
    [("big", {}, {}), ("work", {"times": 200, "pad": 100_000}, {"progressToken": "p"})],
    ids=["its answer", "progress"],
)
async def test_a_client_over_http_that_never_reads_keeps_no_other_from_its_server(
    name: str, arguments: dict[str, int], meta: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "UNREAD", 0.01)
    big = {"content": [{"type": "text", "text": "x" * 30_000_000}]}
    (tmp_path / "s" / "answers").mkdir(parents=True)
    (tmp_path / "s" / "answers" / "big.json").write_text(json.dumps(big), encoding="utf-8")
    path = write(tmp_path / "u.json", {"s": upstream(tmp_path / "s", {"tools": TOOLS}, max_concurrency=1)})
    with anyio.fail_after(30):
        async with house(path) as app, listening(app) as port:
            unread, deaf_writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            deaf_writer.write(http_call(port, f"s__{name}", arguments, **meta))
            await sent(tmp_path / "s", f"tools/call {name}")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(http_call(port, "s__small", {}))
            assert b" 200 OK" in await reader.readline()
            assert b"ran small" in await reader.readuntil(b"ran small")
            assert not unread.at_eof(), "the first is still there, and has not read its answer"
            for each in (writer, deaf_writer):
                each.close()
