"""Streamable HTTP upstreams on the wire: answers however they are wrapped, streams that break, and who is told what."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import anyio
import pytest

from proxy.config import ServerConfig
from proxy.errors import UpstreamFailure
from proxy.upstream import http, web
from proxy.upstream.http import open_http
from proxy.upstream.peer import Peer
from proxy.upstream.sse import open_sse

SAID = {"content": [{"type": "text", "text": "größe"}], "x-unknown": 1.0}
PATIENCE = 10.0
MODERN = {"mcp-protocol-version": "2026-07-28"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Asked(NamedTuple):
    """One HTTP request."""

    verb: str
    headers: Mapping[str, str]
    message: dict[str, Any]

    @property
    def what(self) -> str:
        """`POST tools/call`, or the verb of a request without content."""
        return f"{self.verb} {self.message.get('method', '')}".strip()


@dataclass
class Line:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def answer(self, content: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> None:
        """A whole response."""
        lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(content)}", *headers]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + content)

    def stream(self, *events: str) -> None:
        """An event stream, left open."""
        self.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        self.writer.write("".join(f"{event}\n\n" for event in events).encode())


@dataclass
class Web:
    """A server that keeps what it was asked."""

    act: Callable[[Asked, Line], Awaitable[None]]
    asked: list[Asked] = field(default_factory=list[Asked])
    connections: int = 0
    lost: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes over one connection."""
        self.connections += 1
        try:
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[:-1]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = Asked(first.split()[0], headers, json.loads(content or b"{}"))
                self.asked.append(asked)
                await self.act(asked, Line(reader, writer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def whats(self) -> list[str]:
        """What was asked, in its order."""
        return [each.what for each in self.asked]


def reply(asked: Asked, result: Mapping[str, Any] = SAID) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}).encode()


def event(asked: Asked, result: Mapping[str, Any] = SAID) -> str:
    return f"data: {reply(asked, result).decode()}"


@asynccontextmanager
async def upstream(
    act: Callable[[Asked, Line], Awaitable[None]],
    told: Callable[[str], None] = lambda _: None,
    transport: Literal["http", "sse"] = "http",
) -> AsyncGenerator[tuple[Peer, Web]]:
    """A peer that is connected to a server whose answers `act` writes. `told` hears of its notifications."""
    server_end = Web(act)
    peer = Peer("s", lambda method, params: told(method))

    def lost() -> None:
        server_end.lost += 1

    with anyio.fail_after(PATIENCE):
        async with await asyncio.start_server(server_end.serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            config = ServerConfig(key="s", transport=transport, url=url, headers={"x-mine": "größe"})
            opened = open_sse(config, peer) if transport == "sse" else open_http(config, peer, lost, lambda: None)
            async with opened:
                yield peer, server_end


async def failure(peer: Peer, **more: Any) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as caught:
        await peer.request("tools/call", {"name": "t"}, **more)
    return caught.value


WRAPPED: dict[str, tuple[Callable[[bytes], bytes], tuple[str, ...]]] = {
    "escaped": (lambda body: body, ()),
    "utf-8": (lambda body: json.dumps(json.loads(body), ensure_ascii=False).encode(), ()),
    "with a byte order mark": (lambda body: b"\xef\xbb\xbf" + body, ()),
    "compressed": (gzip.compress, ("content-encoding: gzip",)),
    "with its id as a string": (lambda body: body.replace(b'"id": ', b'"id": "').replace(b', "res', b'", "res'), ()),
}


async def test_an_answer_is_read_whole_however_it_is_wrapped_and_its_connection_is_used_again() -> None:
    waiting = list(WRAPPED.values())

    async def act(asked: Asked, line: Line) -> None:
        wrap, headers = waiting.pop(0)
        line.answer(wrap(reply(asked)), *headers, kind="text/json")

    async with upstream(act) as (peer, web):
        for how in WRAPPED:
            assert await peer.request("tools/call", {"name": "t"}) == SAID, how
        assert web.connections == 1


@pytest.mark.parametrize("label", ["text/event-stream", "text/plain"])
async def test_a_bare_answer_counts_under_any_label(label: str) -> None:
    async def act(asked: Asked, line: Line) -> None:
        line.answer(reply(asked), kind=label)

    async with upstream(act) as (peer, _):
        assert await peer.request("tools/call", {"name": "t"}) == SAID


async def test_what_comes_before_the_answer_on_its_stream_reaches_the_peer_in_its_order() -> None:
    seen: list[str] = []

    async def act(asked: Asked, line: Line) -> None:
        notes = (f'data: {{"jsonrpc": "2.0", "method": "notifications/{n}"}}' for n in ("a", "b"))
        line.stream(": a comment", *notes, "event: other\ndata: no message", event(asked))

    async with upstream(act, seen.append) as (peer, _):
        assert await peer.request("tools/call", {"name": "t"}) == SAID
    assert seen == ["notifications/a", "notifications/b"]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("data: {broken", "unparseable answer: {broken"),
        ('data: {"jsonrpc": "2.0", "id": 99, "result": {}}', "another request's id"),
    ],
)
async def test_an_answer_that_is_none_fails_its_request_at_once_though_the_stream_stays_open(
    sent: str, reason: str
) -> None:
    async def act(asked: Asked, line: Line) -> None:
        line.stream(sent)
        await line.writer.drain()
        await line.reader.read()

    async with upstream(act) as (peer, _):
        failed = await failure(peer)
    assert reason in failed.reason and failed.may_have_run


async def test_a_byte_order_mark_before_the_first_event_costs_nothing() -> None:
    async def act(asked: Asked, line: Line) -> None:
        line.stream(f"\ufeff{event(asked)}")

    async with upstream(act) as (peer, _):
        assert await peer.request("tools/call", {"name": "t"}) == SAID


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_without_an_end_ends_at_a_bound(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few packed bytes can be gigabytes."""
    monkeypatch.setattr(web, "MAX_ANSWER", 1 << 20)

    async def act(asked: Asked, line: Line) -> None:
        content = gzip.compress(b"data: " + b"x" * (8 << 20))
        line.answer(content, "content-encoding: gzip", kind=kind)

    async with upstream(act) as (peer, _):
        failed = await failure(peer)
    assert re.search("longer than 1 MiB|exceeded the 1048576 byte limit", failed.reason) and failed.may_have_run


async def test_a_server_that_asks_a_lot_opens_few_connections_and_is_answered() -> None:
    many = 200
    replies: set[int] = set()

    async def act(asked: Asked, line: Line) -> None:
        if "result" in asked.message:
            replies.add(asked.message["id"])
            line.answer(b"", status="202 Accepted")
            if len(replies) == many:
                every.set()
            return
        line.stream(*(f'data: {{"jsonrpc": "2.0", "id": {n}, "method": "ping"}}' for n in range(many)))
        await line.writer.drain()
        await every.wait()
        line.writer.write(f"{event(asked)}\n\n".encode())

    every = anyio.Event()
    async with upstream(act) as (peer, web):
        assert await peer.request("tools/call", {"name": "t"}) == SAID
    assert len(replies) == many and web.connections < 20


async def test_a_broken_stream_is_taken_up_again_after_its_last_event() -> None:
    """SEP-1699: a server may end the stream of an answer early and have its client come back for it."""
    places = [f"p{n}" for n in range(1, 7)]
    left = iter(places)

    async def act(asked: Asked, line: Line) -> None:
        place = next(left, None)
        line.stream(f"id: {place}\nretry: 1\ndata:" if place else event(web.asked[0]))
        line.writer.close()

    async with upstream(act) as (peer, web):
        assert await peer.request("tools/call", {"name": "t"}) == SAID
    assert [each.headers.get("last-event-id") for each in web.asked] == [None, *places]


@pytest.mark.parametrize(("start", "asked_again"), [("id: p1\nretry: 1\ndata:", 3), ("data:", 0)])
async def test_a_stream_that_cannot_be_taken_up_again_fails_its_request(start: str, asked_again: int) -> None:
    async def act(asked: Asked, line: Line) -> None:
        if asked.verb == "POST":
            line.stream(start)
            line.writer.close()
        else:
            line.answer(b"", status="405 Method Not Allowed")

    async with upstream(act) as (peer, web):
        failed = await failure(peer)
    assert "ended without an answer" in failed.reason and failed.may_have_run
    assert web.whats().count("GET") == asked_again


async def hello(peer: Peer) -> None:
    await peer.request("initialize", {})
    peer.notify("notifications/initialized", headers={"mcp-protocol-version": "2025-11-25"})


def welcome(asked: Asked, line: Line) -> bool:
    """Whether it belonged to the handshake."""
    if asked.what == "POST initialize":
        line.answer(reply(asked), "mcp-session-id: s1")
    elif asked.what == "POST notifications/initialized":
        line.answer(b"", status="202 Accepted")
    return asked.what in ("POST initialize", "POST notifications/initialized")


async def test_a_server_s_own_stream_is_opened_again_for_as_long_as_it_takes() -> None:
    """The SDK's client gives it up after the second failure, and never hears of a changed list again."""
    heard = anyio.Event()
    answers = iter(["stream", "503", "cut", "429"])

    async def act(asked: Asked, line: Line) -> None:
        if welcome(asked, line):
            return
        match next(answers, "news"):
            case "stream":
                line.stream("retry: 1\ndata:")
                line.writer.close()
            case "cut":
                line.writer.close()
            case "news":
                line.stream('data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}')
            case status:
                line.answer(b"", status=f"{status} Later")

    async with upstream(act, lambda method: heard.set()) as (peer, web):
        await hello(peer)
        await heard.wait()
    assert web.whats().count("GET") == 5
    assert {each.headers["mcp-session-id"] for each in web.asked if each.verb == "GET"} == {"s1"}


async def test_an_answer_may_come_on_the_server_s_own_stream_whose_head_comes_with_it() -> None:
    """As `@ivotoby/openapi-mcp-server` has it, and clients made with the SDK for TypeScript take it."""
    streams: asyncio.Queue[Line] = asyncio.Queue()
    ended = anyio.Event()

    async def act(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await streams.put(line)
            await line.reader.read()
        elif not welcome(asked, line):
            line.answer(b"", status="202 Accepted")
            await line.writer.drain()
            with anyio.move_on_after(0.2):
                await ended.wait()
            stream = await streams.get()
            stream.stream(event(asked))
            await stream.writer.drain()

    async with upstream(act) as (peer, _):
        await hello(peer)
        try:
            assert await peer.request("tools/call", {"name": "t"}) == SAID
        finally:
            ended.set()


@pytest.mark.parametrize("end", ["breaks", "refused", "without a session"])
async def test_a_request_that_is_only_accepted_fails_once_no_stream_can_bring_its_answer(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    accepted = anyio.Event()

    async def act(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await accepted.wait()
            if end == "refused":
                line.answer(b"", status="405 Method Not Allowed")
            else:
                line.stream("retry: 1\ndata:")
                line.writer.close()
        elif end == "without a session" or not welcome(asked, line):
            line.answer(b"", status="202 Accepted")
            accepted.set()

    async with upstream(act) as (peer, _):
        if end != "without a session":
            await hello(peer)
        failed = await failure(peer)
    assert failed.reason.startswith("HTTP 202: ") and failed.may_have_run
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_call_whose_answer_is_to_come_on_the_server_s_own_stream_can_be_cancelled() -> None:
    called, cancelled, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def act(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await line.reader.read()
        elif not welcome(asked, line):
            line.answer(b"", status="202 Accepted")
            await line.writer.drain()
            if asked.what == "POST tools/call":
                with anyio.move_on_after(0.2):
                    await ended.wait()
            (called if asked.what == "POST tools/call" else cancelled).set()

    async def call(peer: Peer) -> None:
        try:
            await peer.request("tools/call", {"name": "t"})
        finally:
            ended.set()

    async with upstream(act) as (peer, web):
        await hello(peer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, peer)
            await called.wait()
            tasks.cancel_scope.cancel()
        await cancelled.wait()
    told = [each.message["params"]["requestId"] for each in web.asked if each.what == "POST notifications/cancelled"]
    assert told == [each.message["id"] for each in web.asked if each.what == "POST tools/call"]


@pytest.mark.parametrize(("named", "least", "most"), [("0", 0.1, 0.1), ("-5", 0.1, 0.1), ("9" * 400, 60.0, 60.0)])
async def test_a_server_cannot_have_us_come_back_all_the_time_or_never(
    named: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    back, sleep = anyio.Event(), anyio.sleep

    async def note(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            back.set()
        await sleep(0.001)

    async def act(asked: Asked, line: Line) -> None:
        if not welcome(asked, line):
            line.stream(f"retry: {named}\ndata:")
            line.writer.close()

    async with upstream(act) as (peer, _):
        monkeypatch.setattr(anyio, "sleep", note)
        await hello(peer)
        await back.wait()
        monkeypatch.undo()
    assert all(least <= each <= most for each in waited[:3]), waited


async def test_the_session_is_ended_and_everything_in_it_names_session_and_version() -> None:
    async def act(asked: Asked, line: Line) -> None:
        if not welcome(asked, line):
            line.answer(reply(asked) if asked.message else b"", status="200 OK" if asked.message else "405 No")

    async with upstream(act) as (peer, web):
        await hello(peer)
        await peer.request("tools/call", {"name": "t"})
    assert web.whats()[-1] == "DELETE"
    assert {each.headers["x-mine"] for each in web.asked} == {"größe"}
    for each in web.asked[1:]:
        assert (each.headers["mcp-session-id"], each.headers["mcp-protocol-version"]) == ("s1", "2025-11-25"), each.what
    assert "mcp-session-id" not in web.asked[0].headers


async def test_no_request_overtakes_the_end_of_the_handshake() -> None:
    called = anyio.Event()
    overtaken: list[bool] = []

    async def act(asked: Asked, line: Line) -> None:
        if asked.what == "POST tools/call":
            called.set()
            line.answer(reply(asked))
        elif asked.what == "POST notifications/initialized":
            with anyio.move_on_after(0.2):
                await called.wait()
            overtaken.append(called.is_set())
            line.answer(b"", status="202 Accepted")
        else:
            line.answer(reply(asked))

    async with upstream(act) as (peer, web):
        await hello(peer)
        await peer.request("tools/call", {"name": "t"})
    assert web.whats() == ["POST initialize", "POST notifications/initialized", "POST tools/call"]
    assert overtaken == [False] and web.connections == 1


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])
async def test_what_is_cancelled_is_told_in_the_words_of_its_era_and_its_stream_ends(modern: bool) -> None:
    """2025-11-25: a notification, since a closed stream says nothing. 2026-07-28: the end of the stream, alone."""
    begun, ended = anyio.Event(), anyio.Event()

    async def act(asked: Asked, line: Line) -> None:
        if asked.what != "POST tools/call":
            line.answer(b"", status="202 Accepted")
            return
        line.stream(": begun")
        await line.writer.drain()
        begun.set()
        await line.reader.read()
        ended.set()

    async with upstream(act) as (peer, web):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                await peer.request("tools/call", {"name": "t"}, headers=MODERN if modern else None)

            tasks.start_soon(call)
            await begun.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()
    told = [each.message["params"]["requestId"] for each in web.asked if each.what == "POST notifications/cancelled"]
    assert told == ([] if modern else [1])


async def test_a_call_ends_though_the_server_never_answers_that_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CANCELLED", 0.05)
    ended: list[str] = []
    both = anyio.Event()

    async def act(asked: Asked, line: Line) -> None:
        await line.reader.read()
        ended.append(asked.what)
        if len(ended) == 2:
            both.set()

    async with upstream(act) as (peer, _):
        assert "no answer within" in (await failure(peer, timeout=0.05)).reason
        await both.wait()
    assert sorted(ended) == ["POST notifications/cancelled", "POST tools/call"]


async def test_a_session_id_that_cannot_be_sent_back_is_told() -> None:
    async def act(asked: Asked, line: Line) -> None:
        line.answer(reply(asked), "mcp-session-id: s\u00fc")

    async with upstream(act) as (peer, _):
        with pytest.raises(UpstreamFailure, match="session id is not visible ASCII"):
            await peer.request("initialize", {})


async def test_the_legacy_transport_reads_no_more_of_a_refusal_than_it_tells() -> None:
    """Its answers come over the stream; what a POST brings besides was read for ever."""

    async def act(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            line.stream("event: endpoint\ndata: /post")
        else:
            line.writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 999999999\r\n\r\n" + b"no " * 100_000)

    async with upstream(act, transport="sse") as (peer, _):
        failed = await failure(peer)
    assert failed.reason.startswith("HTTP 500 Oops: no no no") and len(failed.reason) < 300


async def test_a_forgotten_session_is_told_once_for_each_request_and_nothing_ran() -> None:
    async def act(asked: Asked, line: Line) -> None:
        if not welcome(asked, line):
            line.answer(b"no such session", status="404 Not Found")

    async with upstream(act) as (peer, web):
        await hello(peer)
        failed = await failure(peer)
    assert failed.reason == "the server has forgotten our session" and not failed.may_have_run
    assert web.lost == 1


@pytest.mark.parametrize(
    "to", ["localhost:{port}/mcp?k=abc", "127.0.0.1:1/mcp?k=abc", "u:pw@127.0.0.1:{port}/mcp", "127.0.0.1:{port}/mcp"]
)
async def test_a_redirect_to_another_origin_or_login_or_itself_is_not_followed_and_shows_no_secret(to: str) -> None:
    async def act(asked: Asked, line: Line) -> None:
        place = to.format(port=asked.headers["host"].rpartition(":")[2])
        line.answer(b"", f"location: http://{place}", status="307 Temporary Redirect")

    async with upstream(act) as (peer, web):
        failed = await failure(peer)
    assert "/mcp, which is not followed" in failed.reason
    assert "abc" not in failed.reason and "pw" not in failed.reason and not failed.may_have_run
    assert len(web.asked) == 1


async def test_a_redirect_within_the_origin_is_followed_with_the_whole_message() -> None:
    async def act(asked: Asked, line: Line) -> None:
        if len(web.asked) == 1:
            line.answer(b"moved", "location: /mcp/", status="308 Permanent Redirect")
        else:
            line.answer(reply(asked))

    async with upstream(act) as (peer, web):
        assert await peer.request("tools/call", {"name": "t"}) == SAID
    assert web.asked[0].message == web.asked[1].message and web.connections == 1
