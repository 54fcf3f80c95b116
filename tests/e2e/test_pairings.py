"""The four pairings of protocol eras, each over both transports of the client: everything a server offers, and
everything it may ask for.

The upstreams (servers/era_server.py) and the clients speak bare JSON-RPC, so that what is compared is what is on the
wire. One cell of the matrix is not possible, and its test asserts the refusal: a stateless client cannot be asked on
behalf of a server that waits for its answer (2026-07-28, "Multi Round-Trip Requests": servers do not send requests).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness import PATIENCE, ROOT, Daemon, Place, python_server, text_of, until
from raw_client import MODERN, OLD, PREFIX, HttpClient, Message, RawClient, StdioClient, begin, connected, http
from servers.era_server import ERROR, LEVELS, QUESTIONS, RICH

HANDSHAKE = "2025-11-25"
UPSTREAMS = {"old": HANDSHAKE, "new": MODERN}
WAYS = list(product(("stdio", "http"), (HANDSHAKE, MODERN)))
NAME = {"action": "accept", "content": {"name": "Ada é", "x-own": None}}
REPLIES: dict[str, Message] = {
    "elicitation/create": NAME,
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m", "x": 1},
    "roots/list": {"roots": [{"uri": "file:///tmp", "name": "tmp"}]},
}
KINDS = {method.partition("/")[0]: reply for method, reply in REPLIES.items()}


class Upstream:
    """One of the two servers, and what it was sent."""

    def __init__(self, key: str, folder: Path) -> None:
        self.key, self.era, self._ledger = key, UPSTREAMS[key], folder / f"{key}-ledger"

    def received(self) -> list[Message]:
        lines = self._ledger.read_text(encoding="utf-8").splitlines() if self._ledger.exists() else []
        return [json.loads(line) for line in lines]

    def calls(self, tool: str) -> list[Message]:
        return [m for m in self.received() if m.get("params", {}).get("name") == tool]

    def cancelled(self) -> list[Any]:
        return [m["params"]["requestId"] for m in self.received() if m.get("method") == "notifications/cancelled"]


@pytest.fixture(scope="module")
def config(shared_place: Place) -> Path:
    asks = ["elicitation", "sampling", "roots"]
    servers = {
        key: python_server("era_server", era, str(shared_place.folder / f"{key}-ledger"), client_requests=asks)
        for key, era in UPSTREAMS.items()
    }
    return shared_place.config(servers, first_list_wait=PATIENCE)


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS], scope="module")
def client(request: pytest.FixtureRequest, shared_place: Place, config: Path, daemon: Daemon) -> Iterator[RawClient]:
    """A client that can be asked for everything."""
    with connected(request.param, shared_place, config, daemon, REPLIES) as client:
        yield client


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest, shared_place: Place) -> Upstream:
    return Upstream(request.param, shared_place.folder)


def told(client: RawClient, since: int, method: str) -> list[Message]:
    """The params of the notifications of one method that came after message number `since`."""
    return [m["params"] for m in client.seen[since:] if m.get("method") == method]


def without_envelope(client: RawClient, result: Message) -> Message:
    """A result without what the stateless era adds to every one."""
    if client.era == MODERN:
        assert result.pop("resultType") == "complete"
        meta = result["_meta"]
        assert meta.pop(f"{PREFIX}serverInfo")["name"]
        if not meta:
            del result["_meta"]
    return result


# The matrix: result fidelity, progress, cancel, error data, elicitation, resources, prompts.


@pytest.mark.parametrize("bridge", [True, False], ids=["tool_call", "direct"])
def test_a_rich_result_arrives_as_it_was_sent(client: RawClient, upstream: Upstream, bridge: bool) -> None:
    send = client.through if bridge else client.call
    result = without_envelope(client, send(f"{upstream.key}__rich")["result"])
    assert json.dumps(result, sort_keys=True) == json.dumps(RICH, sort_keys=True)


def test_progress_arrives_whole_under_the_clients_token(client: RawClient, upstream: Upstream) -> None:
    since, token = len(client.seen), f"token-{upstream.key}"
    answer = client.through(f"{upstream.key}__count", {}, _meta={"progressToken": token})
    steps = told(client, since, "notifications/progress")
    assert [(s["progressToken"], s["progress"], s["x-own"]) for s in steps] == [(token, n, n) for n in range(1, 6)]
    assert client.seen[-1] == answer, "progress after the result"
    assert upstream.calls("count")[-1]["params"]["_meta"]["progressToken"] != token, "the token is our own upstream"


def test_a_cancelled_call_is_cancelled_under_the_upstreams_id(client: RawClient, upstream: Upstream) -> None:
    waiting, cancelled = len(upstream.calls("wait")), len(upstream.cancelled())
    with begin(client, f"{upstream.key}__wait"):
        until(lambda: len(upstream.calls("wait")) > waiting, "the call reaches the upstream")
    until(lambda: len(upstream.cancelled()) > cancelled, "the cancellation reaches the upstream")
    assert upstream.cancelled()[-1] == upstream.calls("wait")[-1]["id"]


def test_an_error_keeps_code_message_and_data(client: RawClient, upstream: Upstream) -> None:
    direct = client.call(f"{upstream.key}__refuse")["error"]
    assert json.dumps(direct, sort_keys=True) == json.dumps(ERROR, sort_keys=True)
    through = client.through(f"{upstream.key}__refuse")["result"]
    assert through["isError"] is True
    for part in ("refuse", str(ERROR["code"]), ERROR["message"], str(ERROR["data"]["retry"])):
        assert part in text_of(through)


def ask(client: RawClient, upstream: Upstream, kind: str) -> Message:
    """The result of a call in whose middle the client is asked; a stateless client calls again with the answer."""
    name, arguments = f"{upstream.key}__ask", {"kind": kind}
    result = client.through(name, arguments)["result"]
    if result.get("resultType") == "input_required":
        assert client.era == MODERN
        assert result["inputRequests"] == {"q": QUESTIONS[kind]}
        more = {"inputResponses": {"q": KINDS[kind]}, "requestState": result["requestState"]}
        result = client.through(name, arguments, **more)["result"]
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_reaches_the_client_and_its_answer_the_server(
    client: RawClient, upstream: Upstream, kind: str
) -> None:
    since = len(client.seen)
    result = ask(client, upstream, kind)
    if client.era == MODERN and upstream.era == HANDSHAKE:
        # 2026-07-28, Multi Round-Trip Requests: nothing may be asked in the middle of a call.
        said = json.loads(text_of(result))
        assert result["isError"] and said["code"] == -32601
        why = "does not" if isinstance(client, StdioClient) else "stateless protocol"
        assert why in said["message"] or "cannot be asked" in said["message"]
        return
    assert not result.get("isError") and json.loads(text_of(result)) == KINDS[kind]
    if client.era == HANDSHAKE:
        asked = [m for m in client.seen[since:] if m.get("method") == QUESTIONS[kind]["method"]]
        assert [m.get("params", {}) for m in asked] == [QUESTIONS[kind]["params"]], "asked once, with what was sent"


def test_resources_are_listed_read_and_refused_raw(client: RawClient, upstream: Upstream) -> None:
    listed = {r["uri"]: r for r in client.request("resources/list")["result"]["resources"]}
    note = f"{upstream.era}://note"
    assert listed[note] == {"uri": note, "name": "note", "x-own": "note"}, "a URI stays as it is"
    templates = client.request("resources/templates/list")["result"]["resourceTemplates"]
    assert {"uriTemplate": f"{upstream.era}://item/{{id}}", "name": "item"} in templates
    for uri in (note, f"{upstream.era}://item/7"):
        read = without_envelope(client, client.request("resources/read", {"uri": uri})["result"])
        assert read["contents"] == [{"uri": uri, "text": f"content of {uri}, é", "x-own": None}]
    error = client.request("resources/read", {"uri": f"{upstream.era}://nowhere"})["error"]
    assert error["code"] == (-32602 if client.era == MODERN else -32002)
    assert error["data"]["uri"] == f"{upstream.era}://nowhere"


def test_prompts_are_listed_got_and_completed_under_their_servers_name(client: RawClient, upstream: Upstream) -> None:
    name = f"{upstream.key}__greet"
    listed = {p["name"]: p for p in client.request("prompts/list")["result"]["prompts"]}
    assert listed[name] == {"name": name, "arguments": [{"name": "who", "required": True}], "x-own": 1}
    got = client.request("prompts/get", {"name": name, "arguments": {"who": "Ada"}})["result"]
    message = {"role": "user", "content": {"type": "text", "text": "Greet Ada"}}
    expected = {"description": "A greeting", "messages": [message], "x-own": {"n": None}}
    assert without_envelope(client, got) == expected
    error = client.request("prompts/get", {"name": name})["error"]
    assert (error["code"], error["data"]) == (-32602, {"argument": "who"})
    assert client.request("prompts/get", {"name": f"{upstream.key}__none"})["error"]["code"] == -32602
    ref, argument = {"type": "ref/prompt", "name": name}, {"name": "who", "value": "Ad"}
    completion = client.request("completion/complete", {"ref": ref, "argument": argument})["result"]["completion"]
    assert completion["values"] == ["Ada", "Adb"]
    sent = [m for m in upstream.received() if m.get("method") == "completion/complete"][-1]
    assert sent["params"]["ref"]["name"] == "greet", "the server is asked by its own name"


# What else travels: subscriptions, trace context, log messages.


def test_a_change_of_a_resource_reaches_who_subscribed_to_it(client: RawClient, upstream: Upstream) -> None:
    uri = f"{upstream.era}://watched"

    def subscriptions() -> int:
        return sum(subscribes(message, uri) for message in upstream.received())

    before = subscriptions()
    with standing(client, uri) as messages:
        if client.era == HANDSHAKE:
            assert client.request("resources/subscribe", {"uri": uri})["result"] == {}
        else:
            # An answer that an earlier test did not wait for may still be in the pipe.
            told = next(m for m in messages if "method" in m)
            assert told["method"] == "notifications/subscriptions/acknowledged"
        until(lambda: subscriptions() > before, "the server is told")
        touch = {"name": "tool_call", "arguments": {"name": f"{upstream.key}__touch"}}
        if isinstance(client, StdioClient):
            client.start("tools/call", touch)
        else:
            client.request("tools/call", touch)
        told = next(m for m in messages if m.get("method") == "notifications/resources/updated")
        assert told["params"]["uri"] == uri
    if client.era == HANDSHAKE:
        assert client.request("resources/unsubscribe", {"uri": uri})["result"] == {}


@contextmanager
def standing(client: RawClient, uri: str) -> Iterator[Iterator[Message]]:
    """The messages that come unasked, the way of the client's transport and era; a stateless one subscribes with it."""
    wanted = {"notifications": {"resourceSubscriptions": [uri]}}
    if isinstance(client, StdioClient):
        listen = client.start("subscriptions/listen", wanted) if client.era == MODERN else None
        yield iter(client.receive, None)
        if listen is not None:
            client.notify("notifications/cancelled", {"requestId": listen})
        return
    assert isinstance(client, HttpClient)
    if client.era == MODERN:
        with client.stream("subscriptions/listen", wanted, next(client.ids)) as response:
            yield client.messages(response)
    else:
        headers = {**client.session, "accept": "text/event-stream"}
        with client.http.stream("GET", client.url, headers=headers) as response:
            yield client.messages(response)


def subscribes(message: Message, uri: str) -> bool:
    """Whether a message asks a server to tell of changes of a resource."""
    params = message.get("params", {})
    if message.get("method") == "resources/subscribe":
        return params["uri"] == uri
    return uri in params.get("notifications", {}).get("resourceSubscriptions", [])


def test_trace_context_and_unknown_meta_reach_the_server_and_what_describes_our_hop_does_not(
    client: RawClient, upstream: Upstream
) -> None:
    meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "example.com/own": {"n": None}}
    client.through(f"{upstream.key}__rich", {}, _meta=meta)
    sent: Message = upstream.calls("rich")[-1]["params"]["_meta"]
    assert {key: sent[key] for key in meta} == meta
    envelope = {key for key in sent if key.startswith(PREFIX)}
    assert bool(envelope) == (upstream.era == MODERN), "each hop has its own envelope"
    assert "progressToken" not in sent
    if upstream.era == MODERN:
        assert sent[f"{PREFIX}clientInfo"]["name"] == "narrow-waist"


def with_level(client: RawClient, level: str) -> Message:
    """Ask for log messages the way of the client's era; what a call has to say of it."""
    if client.era == MODERN:
        return {"_meta": {f"{PREFIX}logLevel": level}}
    assert client.request("logging/setLevel", {"level": level})["result"] == {}
    return {}


@pytest.mark.parametrize("level", LEVELS)
def test_log_messages_of_a_call_reach_its_client_from_the_level_it_asked_for(
    client: RawClient, upstream: Upstream, level: str
) -> None:
    since = len(client.seen)
    client.through(f"{upstream.key}__log", {"to": level}, **with_level(client, level))
    said = told(client, since, "notifications/message")
    data = [{"says": name, "to": level, "n": None} for name in LEVELS[LEVELS.index(level) :]]
    expected = [{"level": d["says"], "logger": "era", "data": d} for d in data]
    assert said == expected


def test_a_stateless_client_that_asked_for_no_log_messages_gets_none(client: RawClient, upstream: Upstream) -> None:
    since = len(client.seen)
    if client.era == MODERN:
        client.through(f"{upstream.key}__log", {})
        assert told(client, since, "notifications/message") == []


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_log_messages_reach_only_the_client_whose_call_caused_them(
    era: str, upstream: Upstream, daemon: Daemon
) -> None:
    """While one of two has a call under way, the other hears nothing; where it may be of either, nobody does."""
    with http(daemon.url, era) as ada, http(daemon.url, era) as bob:
        wanted = [with_level(client, "debug") for client in (ada, bob)]
        ada.through(f"{upstream.key}__log", {"to": "ada"}, **wanted[0])
        bob.through(f"{upstream.key}__log", {"to": "bob"}, **wanted[1])
        for client, name in ((ada, "ada"), (bob, "bob")):
            assert {params["data"]["to"] for params in told(client, 0, "notifications/message")} == {name}
        held = {"name": "tool_call", "arguments": {"name": f"{upstream.key}__hold"}, **wanted[0]}
        with ada.stream("tools/call", held, 99) as response:
            messages = ada.messages(response)
            assert next(messages)["params"]["data"] == "held"
            since = len(bob.seen)
            bob.through(f"{upstream.key}__release", **wanted[1])
            assert [m for m in messages if m.get("method") == "notifications/message"] == []
        assert told(bob, since, "notifications/message") == []
    daemon.stderr.wait(f"server '{upstream.key}' says: whose is this")


# What a stateless client has not declared, and sessions of its own.


def test_a_stateless_server_is_told_what_the_client_of_the_call_can_do(daemon: Daemon, upstream: Upstream) -> None:
    """One that declares nothing is refused by the server itself, with the code and HTTP status of the protocol."""
    if upstream.era != MODERN:
        return
    with http(daemon.url, MODERN) as client:
        headers, body = client.message("tools/call", {"name": "new__ask", "arguments": {"kind": "elicitation"}}, 5)
        response = httpx2.post(client.url, content=body, headers=headers)
        assert response.status_code == 400, "2026-07-28, Streamable HTTP: MissingRequiredClientCapability is a 400"
        error = response.json()["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {}}})
        assert "elicitation" in json.dumps(client.through("new__ask", {"kind": "elicitation"}))


def test_a_handshake_client_that_cannot_be_asked_is_told_what_a_stateless_server_wanted(
    daemon: Daemon, upstream: Upstream
) -> None:
    with http(daemon.url, HANDSHAKE) as client:
        result = client.through(f"{upstream.key}__ask", {"kind": "elicitation"})
        said = json.dumps(result)
        assert "elicitation" in said and ("error" in result or result["result"]["isError"])


def test_clients_of_a_server_with_private_sessions_get_a_process_each(place: Place) -> None:
    """`session: per_client`: what one client's session holds, another's does not see."""
    good = str(ROOT / "tests/hostile/servers/good.py")
    server = {"command": python_server("x")["command"], "args": [good], "session": "per_client"}
    config = place.config({"shell": server}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon:
        with http(daemon.url, OLD) as one, http(daemon.url, OLD) as two, http(daemon.url, MODERN) as stateless:
            pids = [c.through("shell__pid")["result"]["content"][0]["text"] for c in (one, two, one)]
            assert pids[0] == pids[2] != pids[1]
            refused = stateless.through("shell__pid")["result"]
            assert refused["isError"] and "per_client" in refused["content"][0]["text"]
