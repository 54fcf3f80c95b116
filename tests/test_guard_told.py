"""What clients are told unasked, and over SSE: each only of what is in its own scope."""

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from guarded_house import MODERN, NAMED, OLD, PATIENCE, PREFIX, Message, house, listening, upstream, write

from proxy.guard.tokens import TokenFile
from proxy.server import changes
from proxy.upstream import lists

ACCEPT = {"accept": "application/json, text/event-stream"}
SCHEMA = {"type": "object"}
ERAS = (OLD, MODERN)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "QUIET", 0.0)
    monkeypatch.setattr(changes, "COALESCE", 0.0)
    monkeypatch.setattr(lists, "COALESCE", 0.0)


def offers(name: str, *more: str) -> dict[str, Any]:
    """What the server of that name has; with `more` tools, resources and prompts."""
    tools = ["change", "touch", f"only_{name}", *more]
    return {
        "tools": [{"name": n, "description": f"Do {n} of {name}", "inputSchema": SCHEMA} for n in tools],
        "resources": [{"uri": f"{name}://{n}", "name": n} for n in ("start", *more)],
        "prompts": [{"name": n} for n in ("ask", *more)],
    }


def config(folder: Path) -> Path:
    servers: dict[str, Any] = {}
    for name in ("home", "work"):
        servers[name] = upstream(folder / name, offers(name))
        (folder / name / "next.json").write_text(json.dumps(offers(name, "later")), encoding="utf-8")
    toolsets = {name: {"servers": [name]} for name in servers}
    return write(folder / "upstreams.yaml", servers, toolsets=toolsets, profiles={n: {"enabled": [n]} for n in servers})


class Told:
    """A client of one profile over real HTTP, and what it was told on its stream."""

    def __init__(self, http: httpx2.AsyncClient, path: str, era: str) -> None:
        self.http, self.path, self.era = http, path, era
        self.headers: dict[str, str] = {}
        self.send, self.messages = anyio.create_memory_object_stream[Message](math.inf)

    async def request(self, method: str, **params: Any) -> Message:
        headers, message = self.message(method, 1, params)
        answer = await self.http.post(self.path, json=message, headers=headers)
        if session := answer.headers.get("mcp-session-id"):
            self.headers["mcp-session-id"] = session
        texts = [line[5:] for line in answer.text.split("\n") if line.startswith("data:")] or [answer.text]
        return next(m for m in map(json.loads, filter(str.strip, texts)) if m.get("id") == 1)

    def message(self, method: str, ident: int, params: dict[str, Any]) -> tuple[dict[str, str], Message]:
        headers = {**ACCEPT, **self.headers}
        if self.era == MODERN:
            envelope = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientInfo": NAMED}
            params = {**params, "_meta": {f"{PREFIX}clientCapabilities": {}, **envelope}}
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method}
            if "name" in params:
                headers["mcp-name"] = params["name"]
        return headers, {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}

    async def call(self, name: str, **arguments: Any) -> None:
        result = await self.request("tools/call", name="tool_call", arguments={"name": name, "arguments": arguments})
        assert not result["result"].get("isError"), result

    async def begin(self, resource: str, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Say hello, read all lists, subscribe to a resource, and listen from then on."""
        if self.era == OLD:
            hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": NAMED}
            await self.request("initialize", **hello)
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.http.post(self.path, json=note, headers={**ACCEPT, **self.headers})
        for kind in ("tools", "resources", "prompts"):
            await self.request(f"{kind}/list")
        if self.era == OLD:
            assert "result" in await self.request("resources/subscribe", uri=resource)
            stream = self.http.stream("GET", self.path, headers={**self.headers, "accept": "text/event-stream"})
        else:
            wanted = {f"{kind}ListChanged": True for kind in ("tools", "resources", "prompts")}
            params = {"notifications": {**wanted, "resourceSubscriptions": [resource]}}
            headers, message = self.message("subscriptions/listen", 7, params)
            stream = self.http.stream("POST", self.path, json=message, headers=headers)
        async with stream as response:
            assert response.status_code == 200
            task_status.started()
            rest = b""
            async for chunk in response.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:") and line[5:].strip():
                        self.send.send_nowait(json.loads(line[5:]))

    async def until(self, *wanted: str) -> list[Message]:
        """What it is told until each of these notifications has come."""
        told: list[Message] = []
        left = set(wanted)
        with anyio.fail_after(PATIENCE):
            while left:
                told.append(await self.messages.receive())
                left.discard(str(told[-1].get("method", "")).removeprefix("notifications/"))
        return told


@asynccontextmanager
async def two_clients(tmp_path: Path, era: str) -> AsyncGenerator[tuple[Told, Told]]:
    """One of the profile `home`, one of `work`, both listening."""
    async with house(config(tmp_path)) as app, listening(app) as port:
        async with (
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http,
            anyio.create_task_group() as tasks,
        ):
            home, work = Told(http, "/mcp/home", era), Told(http, "/mcp/work", era)
            with home.send, home.messages, work.send, work.messages:
                await tasks.start(home.begin, "home://start")
                await tasks.start(work.begin, "work://start")
                yield home, work
                tasks.cancel_scope.cancel()


LISTS = ("tools/list_changed", "resources/list_changed", "prompts/list_changed")


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_is_told_to_those_whose_scope_holds_it_and_to_nobody_else(era: str, tmp_path: Path) -> None:
    async with two_clients(tmp_path, era) as (home, work):
        await home.call("home__change")
        await home.until(*LISTS)
        # A sign of its own that must come after whatever the other's change would have brought.
        await work.call("work__touch", uri="work://start")
        told = await work.until("resources/updated")
    assert not [each for each in told if "list_changed" in str(each.get("method"))]
    assert "home" not in json.dumps(told)


@pytest.mark.parametrize("era", ERAS)
async def test_a_resource_that_changes_is_told_to_those_whose_scope_holds_it(era: str, tmp_path: Path) -> None:
    async with two_clients(tmp_path, era) as (home, work):
        refused = await work.request("resources/subscribe", uri="home://start")
        await home.call("home__touch", uri="home://start")
        told = await home.until("resources/updated")
        await work.call("work__touch", uri="work://start")
        [*before, last] = await work.until("resources/updated")
    assert told[-1]["params"]["uri"] == "home://start" and last["params"]["uri"] == "work://start"
    assert "error" in refused and not [
        each for each in before if each.get("method") == "notifications/resources/updated"
    ]


async def data(lines: AsyncIterator[str]) -> str:
    """The data of the next event."""
    with anyio.fail_after(PATIENCE):
        while not (line := await anext(lines)).startswith("data:"):
            pass
    return line[5:].strip()


async def test_over_sse_a_client_sees_its_profile_and_no_other(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    token, other = tokens.create("worker", ("work",)), tokens.create("all", ())
    async with house(config(tmp_path)) as app, listening(app, tokens) as port:
        base = f"http://127.0.0.1:{port}"
        mine, others = {"authorization": f"Bearer {token}"}, {"authorization": f"Bearer {other}"}
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=mine) as http:
            assert (await http.get("/sse/home")).status_code == 404
            for url in ("/sse/work", "/sse"):
                async with http.stream("GET", url) as stream:
                    lines = stream.aiter_lines()

                    where = await data(lines)
                    assert where.startswith("/sse/work/messages/" if url == "/sse/work" else "/messages/")
                    hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": NAMED}
                    said: list[Message] = []
                    for method, params in (
                        ("initialize", hello),
                        ("notifications/initialized", {}),
                        ("tools/list", {}),
                        ("tools/call", {"name": "tool_search", "arguments": {}}),
                        ("tools/call", {"name": "home__only_home", "arguments": {}}),
                        ("tools/call", {"name": "work__only_work", "arguments": {}}),
                        ("resources/read", {"uri": "home://start"}),
                    ):
                        message: Message = {"jsonrpc": "2.0", "method": method, "params": params}
                        if not method.startswith("notifications"):
                            message["id"] = len(said) + 1
                        assert (await http.post(where, json=message)).status_code == 202
                        if "id" in message:
                            said.append(json.loads(await data(lines)))
                    text = json.dumps(said)
                    assert "only_work of work" in text and "only_home of" not in text
                    assert said[3]["result"]["isError"] and "error" in said[5]
                    assert said[4]["result"]["content"][0]["text"] == "ran only_work"
                    for path in (where, where.replace("/sse/work/", "/sse/home/")):
                        answer = await http.post(path, json={**message, "id": 99}, headers=others)
                        assert answer.status_code in (403, 404), "the session is of use to its own caller only"
