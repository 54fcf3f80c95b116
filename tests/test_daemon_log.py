"""What the daemon says of itself where it cannot listen, turns a caller away, or is told to stop."""

import logging
import signal
import sys
from collections.abc import Iterator

import anyio
import httpx2
import pytest
from starlette.responses import PlainTextResponse

from proxy.errors import ConfigError
from proxy.serving.access import Doorkeeper
from proxy.serving.guard import Guard
from proxy.serving.http import listener
from proxy.serving.refusals import EVERY, Refusals
from proxy.serving.stdio import stop_on_signal


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_port_in_use_says_what_to_do() -> None:
    with listener("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError) as raised:
            listener("127.0.0.1", port)
    text = str(raised.value)
    assert f"127.0.0.1:{port}" in text and "already in use" in text
    assert "a daemon of yours may run there" in text and "--http HOST:PORT" in text and "\n" not in text


async def test_a_refused_token_is_told_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in the log told a wrong token from a daemon that nobody had found."""
    guard = Guard(PlainTextResponse("in"), hosts=["127.0.0.1"], keeper=Doorkeeper("the-token"), status=lambda _: {})
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(guard), base_url="http://127.0.0.1") as http:
        for token in ("the-tokem", "the-token", *["the-tokem"] * 50):
            answer = await http.post("/mcp", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == (200 if token == "the-token" else 401)
        assert (await http.post("/mcp")).status_code == 401
        assert (await http.get("/health")).status_code == 200, "which needs none"
    wrong, none = caplog.messages
    assert "its token is not one of this daemon's" in wrong and "127.0.0.1" in wrong
    assert "without a token" in none and "the-toke" not in caplog.text


def test_a_flood_of_refusals_is_one_line_a_minute_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    for _ in range(1_000):
        refusals.tell("a", "::1")
    refusals.tell("b", "::1")
    now = EVERY - 1
    refusals.tell("a", "::1")
    assert len(caplog.messages) == 2 and "more" not in caplog.text
    now = EVERY
    refusals.tell("a", "::1")
    now = 2 * EVERY
    refusals.tell("a", "::1")
    assert len(caplog.messages) == 4
    assert "and 1,000 more since the last such line" in caplog.messages[2] and "more" not in caplog.messages[3]


@pytest.fixture
def hangup() -> Iterator[None]:
    """Where SIGHUP ends nobody, whatever becomes of it."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
@pytest.mark.parametrize("ignored", [False, True])
async def test_a_closed_terminal_stops_it_like_sigterm_but_not_under_nohup(
    ignored: bool, hangup: None, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended without a line, and its upstreams unasked."""
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    caplog.set_level(logging.INFO)
    stopped = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_on_signal, stopped.set)
        await anyio.wait_all_tasks_blocked()
        for sig in (signal.SIGHUP, signal.SIGTERM) if ignored else (signal.SIGHUP,):
            signal.raise_signal(sig)
        with anyio.move_on_after(5):
            await stopped.wait()
        tasks.cancel_scope.cancel()
    assert caplog.messages == [f"stopping on {'SIGTERM' if ignored else 'SIGHUP'}"]
