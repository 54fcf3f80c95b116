"""What `narrow-waist connect` does between a client's frames and the daemon."""

import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from guarded_house import MODERN, NAMED, OLD, PATIENCE, PREFIX, Message, house, listening, upstream, write

from proxy.app import App
from proxy.cli.connect import endpoint
from proxy.serving.shim import Shim

HELLO: Message = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": NAMED},
}
READY: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def call(ident: int, tool: str = "löök", **meta: Any) -> Message:
    params: dict[str, Any] = {"name": f"s__{tool}", "arguments": {}} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}


Answerer = Callable[[httpx2.Request], httpx2.Response | Awaitable[httpx2.Response]]
Sleep = Callable[[float], Awaitable[None]]


class Client:
    """A client's end: frames go in, answers come out."""

    def __init__(self, http: httpx2.AsyncClient, url: str = "http://127.0.0.1/mcp", sleep: Sleep = anyio.sleep) -> None:
        self.url = url
        self.send, self.frames = anyio.create_memory_object_stream[Message](math.inf)
        self.out, self.answers = anyio.create_memory_object_stream[Message](math.inf)
        self.shim = Shim(http, url, self.out.send, sleep)

    async def ask(self, frame: Message) -> Message:
        self.send.send_nowait(frame)
        with anyio.fail_after(PATIENCE):
            return await self.answers.receive()

    async def told(self, method: str) -> None:
        """Until that notification comes."""
        with anyio.fail_after(PATIENCE):
            while (await self.answers.receive()).get("method") != method:
                pass

    def close(self) -> None:
        for end in (self.send, self.frames, self.out, self.answers):
            end.close()


@asynccontextmanager
async def mocked(answer: Answerer, sleep: Sleep = anyio.sleep) -> AsyncGenerator[Client]:
    """A client of something that answers so."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http, anyio.create_task_group() as tasks:
        client = Client(http, sleep=sleep)
        tasks.start_soon(client.shim.serve, client.frames)
        yield client
        tasks.cancel_scope.cancel()
    client.close()


def greeting(request: httpx2.Request) -> httpx2.Response:
    """What a daemon answers to the handshake."""
    message = json.loads(request.content) if request.content else {}
    if message.get("method") != "initialize":
        return httpx2.Response(202)
    body = {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": OLD}}
    return httpx2.Response(200, headers={"mcp-session-id": "one"}, json=body)


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[tuple[App, httpx2.AsyncClient, Client]]:
    """A client of a daemon."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("löök", "change")]
    path = write(folder / "upstreams.yaml", {"s": upstream(folder / "s", {"tools": tools})})
    async with house(path) as app, listening(app) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http, anyio.create_task_group() as tasks:
            client = Client(http, url)
            tasks.start_soon(client.shim.serve, client.frames)
            yield app, http, client
            tasks.cancel_scope.cancel()
    client.close()


async def test_a_session_that_the_daemon_has_ended_is_opened_again_without_the_client_noticing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (app, http, client):
        assert (await client.ask(HELLO))["result"]["protocolVersion"] == OLD
        client.send.send_nowait(READY)
        assert (await client.ask(call(2)))["result"]["content"][0]["text"] == "ran löök"
        [session] = app.server.sessions
        assert (await http.delete(client.url, headers={"mcp-session-id": session})).status_code == 200
        answer = await client.ask(call(3))
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (3, "ran löök")
        assert session not in app.server.sessions and len(app.server.sessions) == 1


async def test_the_end_of_the_client_ends_its_session(tmp_path: Path) -> None:
    async with connected(tmp_path) as (app, _, client):
        await client.ask(HELLO)
        client.send.send_nowait(READY)
        await client.ask(call(2))
        assert len(app.server.sessions) == 1
        client.send.close()
        with anyio.fail_after(PATIENCE):
            while app.server.sessions:  # noqa: ASYNC110 - nothing tells of it
                await anyio.sleep(0.01)


async def listening_session(app: App, *not_these: str) -> str:
    """The id of the session that has its GET stream open."""
    open_ones = app.server.sdk.session_manager._server_instances
    with anyio.fail_after(PATIENCE):
        while True:
            for session, transport in list(open_ones.items()):
                if session not in not_these and "_GET_stream" in transport._request_streams:
                    return session
            await anyio.sleep(0.01)


def next_tools(folder: Path, *names: str) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("change", *names)]
    (folder / "s" / "next.json").write_text(json.dumps({"tools": tools}), encoding="utf-8")


async def test_a_client_hears_that_a_list_has_changed_also_after_its_session_was_ended(tmp_path: Path) -> None:
    """The answer to `initialized` has no body, and where it had none the GET stream was never opened."""
    async with connected(tmp_path) as (app, http, client):
        await client.ask(HELLO)
        client.send.send_nowait(READY)
        await client.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        first = await listening_session(app)
        next_tools(tmp_path, "one")
        client.send.send_nowait(call(3, tool="change"))
        await client.told("notifications/tools/list_changed")
        assert (await http.delete(client.url, headers={"mcp-session-id": first})).status_code == 200
        await listening_session(app, first)
        next_tools(tmp_path, "two")
        client.send.send_nowait(call(4, tool="change"))
        await client.told("notifications/tools/list_changed")


class Restarted:
    """A daemon that knows no session of before, and lists something else."""

    def __init__(self) -> None:
        self.starts = 1
        self.streams = 0
        self.pages = {1: ["a"], 2: ["a"], 3: ["b"]}
        self.compared: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        known = request.headers.get("mcp-session-id") == str(self.starts)
        if request.method == "GET" and known:
            self.streams += 1
            self.starts += self.starts < 3  # the stream ends because the daemon does
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b": hello\n\n")
        message = json.loads(request.content) if request.content else {}
        if message.get("method") == "initialize":
            body = {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": OLD}}
            return httpx2.Response(200, headers={"mcp-session-id": str(self.starts)}, json=body)
        if not known:
            return httpx2.Response(404, text="no such session")
        if "id" not in message:
            return httpx2.Response(202)
        result = {"tools": self.pages[self.starts]}
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": result})


async def test_a_client_is_told_that_a_list_is_another_one_since_the_daemons_restart() -> None:
    """The daemon does not know that anybody has listed before; a list that is the same is not told."""
    daemon = Restarted()
    async with mocked(daemon.answer, lambda _: anyio.lowlevel.checkpoint()) as client:
        await client.ask(HELLO)
        await client.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        client.send.send_nowait(READY)
        await client.told("notifications/tools/list_changed")
        assert daemon.starts == 3 and client.answers.statistics().current_buffer_used == 0


@pytest.mark.parametrize("stream", [200, 500, 429, 404, 0])
async def test_a_stream_that_ends_at_once_is_opened_again_ever_more_slowly(stream: int) -> None:
    delays: list[float] = []
    enough = anyio.Event()

    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        if len(delays) == 12:
            enough.set()
            await anyio.sleep_forever()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            if not stream:
                raise httpx2.ConnectError("refused")
            return httpx2.Response(stream, headers={"content-type": "text/event-stream"})
        return greeting(request)  # at 404 another session each time, which is gone too

    async with mocked(answer, sleep) as client:
        await client.ask(HELLO)
        client.send.send_nowait(READY)
        with anyio.fail_after(PATIENCE):
            await enough.wait()
    assert min(delays) >= 0.1 and max(delays) == 60 and delays == sorted(delays)


async def test_a_daemon_that_has_no_stream_is_asked_once() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        return httpx2.Response(405) if request.method == "GET" else greeting(request)

    async with mocked(answer) as client:
        await client.ask(HELLO)
        client.send.send_nowait(READY)
        with anyio.fail_after(PATIENCE):
            while "GET" not in asked:  # noqa: ASYNC110 - nothing tells of it
                await anyio.sleep(0.01)
    assert asked.count("GET") == 1


@pytest.mark.parametrize("silent", ["initialize", "notifications/initialized"])
async def test_the_end_of_the_client_is_the_end_also_while_its_handshake_is_not_answered(silent: str) -> None:
    """A daemon that hangs kept the process alive until it was killed."""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content) if request.content else {}
        if message.get("method", silent) == silent:  # nor is the end of the session answered
            await anyio.sleep_forever()
        return greeting(request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        client = Client(http)
        for frame in (HELLO, READY, call(2)):
            client.send.send_nowait(frame)
        client.send.close()
        with anyio.fail_after(PATIENCE):
            await client.shim.serve(client.frames)
    client.close()


async def test_a_handshake_is_answered_also_where_it_is_all_that_the_client_sends() -> None:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(greeting)) as http:
        client = Client(http)
        client.send.send_nowait(HELLO)
        client.send.close()
        with anyio.fail_after(PATIENCE):
            await client.shim.serve(client.frames)
        assert client.answers.receive_nowait()["id"] == HELLO["id"]
    client.close()


async def test_a_stateless_request_gets_the_headers_of_its_envelope(tmp_path: Path) -> None:
    envelope = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientInfo": NAMED, f"{PREFIX}clientCapabilities": {}}
    async with connected(tmp_path) as (_, _, client):
        answer = await client.ask(call(1, **envelope))
    assert answer["result"]["content"][0]["text"] == "ran löök" and answer["result"]["resultType"] == "complete"


@pytest.mark.parametrize("status", [401, 500, 0])
async def test_a_request_that_the_daemon_does_not_answer_is_answered_all_the_same(status: int) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if not status:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(status, text="no")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http, anyio.create_task_group() as tasks:
        client = Client(http)
        tasks.start_soon(client.shim.serve, client.frames)
        client.send.send_nowait(READY)
        got = await client.ask(call(7))
        assert got["id"] == 7 and ("cannot be reached" if not status else str(status)) in got["error"]["message"]
        tasks.cancel_scope.cancel()
    client.close()


STREAM = {"content-type": "text/event-stream"}
OTHER = {"jsonrpc": "2.0", "id": 8, "result": {}}
NO_ANSWERS = {
    "a stream that ends": httpx2.Response(200, headers=STREAM, content=b": nothing\n\n"),
    "a stream of another's": httpx2.Response(200, headers=STREAM, content=f"data: {json.dumps(OTHER)}\n\n".encode()),
    "a stream that is cut": httpx2.Response(200, headers=STREAM, content=b'data: {"jsonrpc"'),
    "accepted": httpx2.Response(202),
    "a page": httpx2.Response(200, html="<html>"),
    "another's answer": httpx2.Response(200, json=OTHER),
    "an error for nobody": httpx2.Response(200, json={"jsonrpc": "2.0", "id": None, "error": {"message": "x"}}),
    "a redirect": httpx2.Response(307, headers={"location": "/elsewhere"}),
    "a batch": httpx2.Response(200, json=[{"jsonrpc": "2.0", "id": 7, "result": {}}]),
    "neither result nor error": httpx2.Response(200, json={"jsonrpc": "2.0", "id": 7}),
}


@pytest.mark.parametrize("response", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_what_is_no_answer_to_a_request_becomes_an_error_in_one_line(response: httpx2.Response) -> None:
    """Each of these left the client waiting for ever."""
    async with mocked(lambda _: response) as client:
        got = await client.ask(call(7))
        client.send.send_nowait({**READY, "method": "notifications/progress"})  # nobody waits for an answer to that
        assert (await client.ask(call(9)))["id"] == 9
    assert got["id"] == 7 and got["error"]["message"] and "\n" not in got["error"]["message"]


async def test_a_stream_that_breaks_after_the_answer_brings_no_second_one() -> None:
    async def stream() -> AsyncGenerator[bytes]:
        yield f"data: {json.dumps({**OTHER, 'id': 7})}\n\n".encode()
        raise httpx2.ReadError("cut")

    def answer(request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content)["id"] == 7:
            return httpx2.Response(200, headers=STREAM, content=stream())
        return httpx2.Response(200, json=OTHER)

    async with mocked(answer) as client:
        assert await client.ask(call(7)) == {**OTHER, "id": 7}
        assert await client.ask(call(8)) == OTHER


ODD_REQUESTS: dict[str, Message] = {
    "a method in no ASCII": {"method": "x☃"},
    "a method with a header of its own": {"method": "ping\r\nx-other: 1"},
    "a revision in no ASCII": {"params": {"_meta": {f"{PREFIX}protocolVersion": f"{MODERN}é"}}},
    "a method that is none": {"method": ["ping"]},
    "half a character": {"params": {"name": "\ud800", "_meta": {f"{PREFIX}protocolVersion": MODERN}}},
}


def nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(20_000):
        value = [value]
    return value


async def test_an_odd_request_fails_alone(tmp_path: Path) -> None:
    """The headers of the stateless era hold no such text; the crash took the calls in flight along."""
    modern = {"method": "ping", "params": {"_meta": {f"{PREFIX}protocolVersion": MODERN}}}
    odd = [*ODD_REQUESTS.values(), {"method": "ping", "params": {"deep": nested()}}]
    async with connected(tmp_path) as (_, _, client):
        await client.ask(HELLO)
        client.send.send_nowait(READY)
        for ident, frame in enumerate(odd, 2):
            got = await client.ask({"jsonrpc": "2.0", "id": ident, **modern, **frame})
            assert got["id"] == ident and "\n" not in got["error"]["message"]
        assert (await client.ask(call(90)))["result"]["content"][0]["text"] == "ran löök"


@pytest.mark.parametrize("odd", ["session", "version", "charset", "text"])
async def test_an_odd_answer_fails_alone(odd: str) -> None:
    version = "2025☃\nx-other: 1" if odd == "version" else OLD
    kind = "text/event-stream; charset=zlib" if odd == "charset" else "application/json"

    def answer(request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content) if request.content else {}
        if "id" not in message:
            return httpx2.Response(202 if message else 405)
        session = b"s\xe9ss" if odd == "session" else b"one"
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": version}})
        if odd == "text":
            text = text.replace(OLD, "\\ud800")
        text = f"data: {text}\n\n" if odd == "charset" else text
        return httpx2.Response(200, headers=[(b"mcp-session-id", session), (b"content-type", kind)], content=text)

    async with mocked(answer) as client:
        assert (await client.ask(HELLO))["result"]
        client.send.send_nowait(READY)
        assert (await client.ask(call(2)))["result"]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_request_that_the_client_cancels_is_not_answered(modern: bool) -> None:
    """In the stateless era the end of its POST is the cancellation; before, the daemon is told."""
    posted: list[str] = []
    begun, ended, told = anyio.Event(), anyio.Event(), anyio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content)
        posted.append(message["method"])
        if message["method"] == "tools/call":
            begun.set()
            try:
                await told.wait()
            finally:
                ended.set()
            return httpx2.Response(202)
        told.set()
        return httpx2.Response(202) if "id" not in message else httpx2.Response(200, json={**OTHER, "id": 9})

    async with mocked(answer) as client:
        client.send.send_nowait(call(7, **({f"{PREFIX}protocolVersion": MODERN} if modern else {})))
        with anyio.fail_after(PATIENCE):
            await begun.wait()
            client.send.send_nowait({**READY, "method": "notifications/cancelled", "params": {"requestId": 7}})
            await ended.wait()
        assert await client.ask({"jsonrpc": "2.0", "id": 9, "method": "ping"}) == {**OTHER, "id": 9}
    assert ("notifications/cancelled" in posted) is not modern


@pytest.mark.parametrize(
    ("status", "token", "says"),
    [
        (401, "", "it wants a token (NARROW_WAIST_TOKEN, or --token-file)"),
        (401, "wrong", "it refused the token (from NARROW_WAIST_TOKEN, or --token-file)"),
        (404, "", "ends in /mcp, or in /mcp/PROFILE"),
    ],
)
async def test_a_refusal_says_what_is_wrong_and_never_the_token(status: int, token: str, says: str) -> None:
    """A wrong token was said to be missing, and an address without /mcp was a bare HTTP 404."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, text="no"))
    async with httpx2.AsyncClient(transport=transport, headers=headers) as http, anyio.create_task_group() as tasks:
        client = Client(http)
        tasks.start_soon(client.shim.serve, client.frames)
        message = (await client.ask(HELLO))["error"]["message"]
        assert says in message and "wrong" not in message
        tasks.cancel_scope.cancel()
    client.close()


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("http://127.0.0.1:8807", "http://127.0.0.1:8807/mcp"),
        ("http://127.0.0.1:8807/", "http://127.0.0.1:8807/mcp"),
        ("127.0.0.1:8807", "http://127.0.0.1:8807/mcp"),
        ("localhost:8807/mcp/reader", "http://localhost:8807/mcp/reader"),
        ("[::1]:8807", "http://[::1]:8807/mcp"),
        ("8807", "http://127.0.0.1:8807/mcp"),
        ("https://proxy.example.com/x/mcp/", "https://proxy.example.com/x/mcp"),
    ],
)
def test_an_address_may_be_given_as_the_daemon_takes_its_own(given: str, means: str) -> None:
    assert endpoint(given) == means


async def test_an_event_stream_is_read_as_its_standard_says() -> None:
    """Comments, either line end, data of several lines, and a separator of JSON strings that is no line end."""
    data = 'data: {"jsonrpc": "2.0",\r\ndata: "id": 7, "result": {"x": "a\u2028b"}}'
    stream = f": still running\n\nevent: message\r\n{data}\r\n\r\n"

    def answer(_request: httpx2.Request) -> httpx2.Response:
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, content=stream.encode())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http, anyio.create_task_group() as tasks:
        client = Client(http)
        tasks.start_soon(client.shim.serve, client.frames)
        assert (await client.ask(call(7)))["result"] == {"x": "a\u2028b"}
        tasks.cancel_scope.cancel()
    client.close()
