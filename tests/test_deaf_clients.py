"""A client that does not read, and a server that does not stop: memory is bounded, and no answer is lost.

Found by breaking: 200 MB a second.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.app import App
from proxy.upstream import questions
from tests.guarded_house import OLD, house, stdio, upstream, write

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("flood", "touch")]
URI = "mem://a"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def proxy(folder: Path) -> AsyncGenerator[tuple[App, Any]]:
    offers = {"tools": TOOLS, "resources": [{"uri": URI, "name": "a"}]}
    path = write(folder / "u.json", {"s": upstream(folder / "s", offers)})
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
