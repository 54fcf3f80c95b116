"""Lines and stderr of a stdio server: what is read leniently, what is kept, what is said."""

import asyncio
import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from proxy.config import ServerConfig
from proxy.errors import UpstreamFailure
from proxy.upstream.peer import Peer
from proxy.upstream.reaper import Reaper
from proxy.upstream.stdio import STDERR_LINES, LastWords, embedded, open_stdio
from proxy.wire import decode, encode


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b' {"a": 1} \r', {"a": 1}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b'{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\\ud83d\\ude00 \u2028"}'.encode(), {"a": "\U0001f600 \u2028"}),
    ],
    ids=["plain", "bom", "crlf", "latin1", "half a pair", "pair"],
)
def test_a_line_is_read_leniently(line: bytes, value: object) -> None:
    assert decode(line) == value


def test_what_is_sent_is_one_line_of_utf8() -> None:
    message = {"a": "line\nbreak \u2028 ü \ud83d"}
    line = encode(message)
    assert b"\n" not in line
    assert json.loads(line.decode()) == message


def tail(mask: str = "") -> LastWords:
    return LastWords("s", lambda text: text.replace(mask, "***") if mask else text)


def test_lines_of_stderr_are_put_together_masked_and_bounded() -> None:
    stderr = tail("secret")
    stderr.feed(b"half a li")
    stderr.feed(b"ne with secret\nnext\n")
    assert list(stderr.lines) == ["half a line with ***", "next"]
    stderr.feed(b"x" * 5_000_000)
    stderr.feed(b"y\n" * 1_000_000)
    assert len(stderr.lines) == STDERR_LINES and all(len(line) <= 500 for line in stderr.lines)


ENDS = {
    "Node": (
        """node:internal/process/promises:394
    triggerUncaughtException(err, true /* fromPromise */);
    ^

[TypeError: fetch failed] {
  [cause]: Error: getaddrinfo ENOTFOUND svelte.dev
      at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {
    errno: -3008,
    hostname: 'svelte.dev'
  }
}

Node.js v24.19.0
""",
        "[TypeError: fetch failed] { | [cause]: Error: getaddrinfo ENOTFOUND svelte.dev | hostname: 'svelte.dev'",
    ),
    "npm": (
        """npm error code E404
npm error 404 Not Found - GET https://registry.example/@scope%2fno-such - Not found
npm error 404
npm error 404  '@scope/no-such@*' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/me/.npm/_logs/1-debug-0.log
npm notice New major version of npm available!
""",
        "npm error code E404 | npm error 404 Not Found - GET https://registry.example/@scope%2fno-such - Not found"
        " | npm error 404 '@scope/no-such@*' is not in this registry.",
    ),
    "a usage": (
        "Error: API_KEY is not set\nusage: server [options]\n  -h  help\n  -v  version\n",
        "Error: API_KEY is not set | -v version",
    ),
    "no error": ("starting\nlistening\nready\nbye\n", "listening | ready | bye"),
    "nothing but signs": ("}\n}\n", "} | }"),
}


@pytest.mark.parametrize("ends", ENDS)
def test_last_words_are_those_that_say_why(ends: str) -> None:
    said, kept = ENDS[ends]
    words = tail()
    words.feed(said.encode())
    assert words.after("ended") == f"ended; its last words: {kept}"


def test_last_words_are_said_once_and_include_a_line_without_an_end() -> None:
    stderr = tail()
    assert stderr.after("exited") == "exited"
    stderr.feed(b"Traceback\nKeyError: 'TOKEN'")
    said = stderr.after("exited")
    assert said == "exited; its last words: Traceback | KeyError: 'TOKEN'"
    assert stderr.after(said) == said


@pytest.mark.parametrize(
    "line",
    [b'DEBUG -> {"jsonrpc": "2.0", "id": 1, "result": {}}', b'{"jsonrpc": "2.0", "id": 1, "result": {}} <- sent'],
)
def test_an_answer_that_shares_its_line_is_found(line: bytes) -> None:
    assert embedded(line) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize(
    "line",
    [b"no json", b'{"jsonrpc": "2.0", "id": 1, "resu', b'<- {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}',
     b'"jsonrpc" alone', b'level {"a": 1} "jsonrpc"'],
)  # fmt: skip
def test_what_a_server_logs_of_our_own_requests_is_no_answer(line: bytes) -> None:
    assert embedded(line) is None


class Groups(Reaper):
    """Notes the process groups it is told of and watches over none."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[int] = []
        self.removed: list[int] = []

    def add(self, group: int) -> None:
        self.added.append(group)

    def remove(self, group: int) -> None:
        self.removed.append(group)


async def cancelled_after(turns: int, groups: Groups) -> bool:
    """Start a server, cancel that so many turns of the event loop later; whether it was up by then."""
    config = ServerConfig(key="s", transport="stdio", command="cat")
    up = anyio.Event()

    async def hold() -> None:
        async with open_stdio(config, os.environ, Peer("s", lambda *_: None), tail(), groups):
            up.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        for _ in range(turns):
            await asyncio.sleep(0)
        was_up = up.is_set()
        tasks.cancel_scope.cancel()
    return was_up


@pytest.mark.skipif(sys.platform == "win32", reason="starts a POSIX command")
def test_a_server_whose_start_is_cancelled_at_any_point_leaves_no_process_and_no_pipe() -> None:
    """asyncio itself kills such a child but is cancelled again before it has waited for it or closed its pipes."""
    turns, up = 0, False
    while not up:
        groups = Groups()
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always")
            up = asyncio.run(cancelled_after(turns, groups))
            gc.collect()
        assert not [str(warning.message) for warning in left], f"cancelled after {turns} turns"
        assert groups.added == groups.removed
        for group in groups.added:
            with pytest.raises(ProcessLookupError):
                os.killpg(group, 0)
        turns += 1
    assert turns > 2


@pytest.mark.skipif(sys.platform == "win32", reason="starts a POSIX command")
async def test_a_server_that_does_not_read_its_input_holds_no_request_beyond_its_time() -> None:
    """The pipe is full and stays so: every later request waited for ever to be sent."""
    config = ServerConfig(key="s", transport="stdio", command="sleep", args=("60",))
    peer, groups = Peer("s", lambda *_: None), Groups()

    async def told(_params: Mapping[str, Any]) -> None:
        pass

    with anyio.fail_after(5):
        async with open_stdio(config, os.environ, peer, tail(), groups):
            for on_progress in (None, told):
                with pytest.raises(UpstreamFailure, match="timeout") as caught:
                    await peer.request("t", {"x": "y" * 4_000_000}, timeout=0.01, on_progress=on_progress)
                assert caught.value.may_have_run and not peer.in_flight
            os.killpg(groups.added[0], signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="starts a POSIX command")
async def test_a_call_right_after_a_server_was_killed_is_told_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said only that the server's input is closed, while a child of the server still held its output."""
    monkeypatch.setattr("proxy.upstream.stdio.END_GRACE", 60)
    config = ServerConfig(key="s", transport="stdio", command="sh", args=("-c", "sleep 60 & read line"))
    peer, groups = Peer("s", lambda *_: None), Groups()
    with anyio.fail_after(5):
        async with open_stdio(config, os.environ, peer, tail(), groups):
            os.kill(groups.added[0], signal.SIGKILL)
            link: Any = peer._link
            await link.exited.wait()
            while not link._stdin.is_closing():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            with pytest.raises(UpstreamFailure, match="the server's process was ended by SIGKILL") as caught:
                await peer.request("t", {})
            assert not caught.value.may_have_run
