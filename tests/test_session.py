"""From a connection to a session: which era is spoken with a server, and what each request then carries."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest

from proxy.errors import RpcError, UpstreamFailure
from proxy.upstream import session as sessions
from proxy.upstream.discovery import discover
from proxy.upstream.failure import ConnectError
from proxy.upstream.session import Session, negotiate

PREFIX = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
Json = dict[str, Any]
Answer = Json | Exception | None
"""A result, an error, or nothing at all."""

DISCOVERED: Json = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "instructions": "Be kind"}
INITIALIZED: Json = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}


class Server:
    """A peer that answers from a table, and keeps what was sent."""

    def __init__(self, **answers: Answer | list[Answer]) -> None:
        """`answers`: by the last part of a method; of a list, one for each time it is asked."""
        self.server, self.takes_headers = "s", True
        self.answers = answers
        self.sent: list[tuple[str, Json, Mapping[str, str]]] = []
        self.closed = anyio.Event()

    async def request(
        self, method: str, params: Mapping[str, Any], *, headers: Mapping[str, str] | None = None, **_: Any
    ) -> Json:
        self.sent.append((method, dict(params), headers or {}))
        answer = self.answers.get(method.rpartition("/")[2])
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer is None:
            await anyio.sleep_forever()
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    def notify(self, method: str, *_: Any, **__: Any) -> None:
        self.sent.append((method, {}, {}))

    @property
    def methods(self) -> list[str]:
        return [method for method, *_ in self.sent]


async def can_sample() -> Json:
    return {"sampling": {}}


async def agreed(server: Server, mode: Any, capabilities: Callable[[], Awaitable[Json]] = can_sample) -> Session:
    with anyio.fail_after(5):
        return await negotiate(server, mode, capabilities)  # type: ignore[arg-type]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_mode_modern_never_shakes_hands() -> None:
    server = Server(discover=DISCOVERED, initialize=INITIALIZED)
    session = await agreed(server, "modern")
    assert session.modern and session.instructions == "Be kind"
    assert server.methods == ["server/discover"]


@pytest.mark.parametrize("answer", [RpcError(-32601, "Method not found"), {"supportedVersions": ["2099-01-01"]}])
async def test_mode_modern_with_a_server_of_the_handshake_era_says_so_for_good(answer: Answer) -> None:
    server = Server(discover=answer, initialize=INITIALIZED)
    with pytest.raises(ConnectError, match=f"does not speak {MODERN}") as caught:
        await agreed(server, "modern")
    assert caught.value.permanent and server.methods == ["server/discover"]


async def test_mode_modern_waits_for_a_slow_server_instead_of_shaking_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PROBE_PATIENCE", 0.0)
    server = Server(discover=None, initialize=INITIALIZED)
    with anyio.move_on_after(0.05) as scope:
        await negotiate(server, "modern", can_sample)  # type: ignore[arg-type]
    assert scope.cancelled_caught and server.methods == ["server/discover"]


async def test_mode_legacy_never_asks_for_the_stateless_era() -> None:
    server = Server(discover=DISCOVERED, initialize=INITIALIZED)
    session = await agreed(server, "legacy")
    assert not session.modern and session.info == {"name": "old"}
    assert server.methods == ["initialize", "notifications/initialized"]
    assert server.sent[0][1]["capabilities"] == {"sampling": {}}


async def test_mode_auto_shakes_hands_with_a_server_that_does_not_know_the_question() -> None:
    """Failure report T12 is of servers that do worse."""
    server = Server(discover=RpcError(-32601, "Method not found"), initialize=INITIALIZED)
    assert not (await agreed(server, "auto")).modern
    assert server.methods == ["server/discover", "initialize", "notifications/initialized"]


async def test_mode_auto_sends_both_to_a_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PROBE_PATIENCE", 0.0)
    assert not (await agreed(Server(discover=None, initialize=INITIALIZED), "auto")).modern


async def test_mode_auto_does_not_take_a_lost_connection_for_an_answer() -> None:
    server = Server(discover=UpstreamFailure("s", "it died", may_have_run=True), initialize=INITIALIZED)
    with pytest.raises(UpstreamFailure):
        await agreed(server, "auto")
    assert server.methods == ["server/discover"]


async def test_a_server_that_wants_to_be_asked_again_for_our_version_is() -> None:
    again = RpcError(-32022, "Unsupported protocol version", {"supported": [MODERN]})
    server = Server(discover=[again, DISCOVERED])
    assert (await agreed(server, "auto")).modern
    assert server.methods == ["server/discover"] * 2


@pytest.mark.parametrize(
    "refusal", [RpcError(-32022, "no", {"supported": 5}), RpcError(-32022, "no", 5), {"supportedVersions": 5}]
)
async def test_a_refusal_in_odd_words_leads_to_the_handshake(refusal: RpcError | Json) -> None:
    server = Server(discover=refusal, initialize=INITIALIZED)
    assert not (await agreed(server, "auto")).modern
    assert server.methods[:2] == ["server/discover", "initialize"]


async def test_a_handshake_version_that_nobody_knows_is_no_connection() -> None:
    with pytest.raises(ConnectError, match="2023-01-01"):
        await agreed(Server(initialize={**INITIALIZED, "protocolVersion": "2023-01-01"}), "legacy")


async def test_a_stateless_request_says_version_client_and_what_the_caller_can_do() -> None:
    server = Server(call={})
    session = Session(server, MODERN)  # type: ignore[arg-type]
    await session.request("tools/call", {"name": "é", "_meta": {"own": 1}}, capabilities={"roots": {}})
    [(_, params, headers)] = server.sent
    meta = params["_meta"]
    assert meta["own"] == 1 and meta[f"{PREFIX}clientCapabilities"] == {"roots": {}}
    assert meta[f"{PREFIX}protocolVersion"] == MODERN and meta[f"{PREFIX}clientInfo"]["name"] == "narrow-waist"
    encoded = base64.b64encode("é".encode()).decode()
    assert headers == {
        "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": f"=?base64?{encoded}?=",
    }  # fmt: skip


async def test_a_handshake_request_carries_no_envelope() -> None:
    server = Server(call={})
    await Session(server, LEGACY).request("tools/call", {"name": "a"})  # type: ignore[arg-type]
    assert server.sent == [("tools/call", {"name": "a"}, {"mcp-protocol-version": LEGACY})]


# x-mcp-header: arguments that are mirrored in headers.


def tool(name: str, **properties: Json) -> Json:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


REGION = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize("levels", [190, 240, 400])
async def test_an_entry_that_no_client_could_be_sent_costs_no_other(levels: int) -> None:
    """One schema nested deeper than the SDK can write made `tools/list` an error, for every client and server."""
    schema: Json = {}
    for _ in range(levels):
        schema = {"items": schema}
    deep = {"name": "deep", "inputSchema": schema}
    uri = {"uri": "x://y", "name": "y"}
    capabilities: Json = {"tools": {}, "resources": {}}
    answers: Json = {
        "tools/list": {"tools": [deep, tool("plain")]},
        "resources/list": {"resources": [{**uri, **deep}, uri]},
    }
    server = Server(initialize={**INITIALIZED, "capabilities": capabilities})
    session = await agreed(server, "legacy")

    async def request(method: str, *_: Any, **__: Any) -> Json:
        return answers.get(method, {})

    session.request = request  # type: ignore[method-assign]
    found, warnings = await discover(session, resources=True, prompts=False)
    assert [each["name"] for each in found.tools] == ["plain"] and found.resources == [uri]
    assert [warning for warning in warnings if "'deep' of tools/list" in warning and "too deeply" in warning]


DEEP = {"type": "object", "properties": {"tenant": {"type": "integer", "x-mcp-header": "Tenant"}}}


async def test_marked_arguments_are_mirrored_in_headers_of_the_call() -> None:
    server = Server(list={"tools": [tool("query", region=REGION, deep=DEEP), tool("plain")]}, call={})
    session = Session(server, MODERN, capabilities={"tools": {}})  # type: ignore[arg-type]
    await discover(session, resources=False, prompts=False)
    await session.request("tools/call", {"name": "query", "arguments": {"region": "eu é", "deep": {"tenant": 7}}})
    headers = {key.lower(): value for key, value in server.sent[-1][2].items()}
    assert headers["mcp-param-tenant"] == "7"
    assert headers["mcp-param-region"] == f"=?base64?{base64.b64encode('eu é'.encode()).decode()}?="
    await session.request("tools/call", {"name": "query", "arguments": {"region": None}})
    await session.request("tools/call", {"name": "plain", "arguments": {"region": "eu"}})
    for _, _, sent in server.sent[-2:]:
        assert not [key for key in sent if key.lower().startswith("mcp-param-")]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "x-mcp-header": ""},
        {"type": "string", "x-mcp-header": "two words"},
        {"type": "number", "x-mcp-header": "Amount"},
        {"type": "array", "items": REGION},
    ],
)
async def test_a_tool_whose_marks_are_invalid_is_left_out_with_a_warning_and_no_other(schema: Json) -> None:
    server = Server(list={"tools": [tool("bad", argument=schema), tool("good", region=REGION)]})
    session = Session(server, MODERN, capabilities={"tools": {}})  # type: ignore[arg-type]
    found, warnings = await discover(session, resources=False, prompts=False)
    assert [each["name"] for each in found.tools] == ["good"]
    assert len(warnings) == 1 and "'bad'" in warnings[0]


async def test_in_the_handshake_era_the_mark_means_nothing() -> None:
    server = Server(list={"tools": [tool("bad", argument={"type": "number", "x-mcp-header": ""})]}, call={})
    session = Session(server, LEGACY, capabilities={"tools": {}})  # type: ignore[arg-type]
    found, warnings = await discover(session, resources=False, prompts=False)
    assert len(found.tools) == 1 and not warnings and not session.header_maps
