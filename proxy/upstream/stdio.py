"""A stdio upstream: one child process in a process group of its own, its lines, its stderr, its end.

Our own asyncio protocol instead of the SDK's transport, because a proxy needs what that cannot give: lines of any
length without quadratic copies, no worker threads, a malformed line failing only its own request, and the exit seen
even when a grandchild keeps the pipe open. The order of shutdown is the specification's (close stdin, SIGTERM,
SIGKILL), for the whole group.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio

from proxy.config import ServerConfig
from proxy.text import one_line, shorten
from proxy.upstream.failure import ConnectError
from proxy.upstream.peer import Peer
from proxy.upstream.reaper import Reaper
from proxy.wire import Lines, encode_request, read_modestly

log = logging.getLogger(__name__)

MAX_LINE = 256 * 1024 * 1024
"""Bytes of one message; beyond it the request it answers fails, and only that."""
EOF_GRACE = 1.5
"""Seconds a server has to leave after its stdin closed; with TERM_GRACE and the kill below the 5 s of a clean stop."""
TERM_GRACE = 1.5
KILL_GRACE = 1.0
END_GRACE = 0.2
POLL = 0.02
STDERR_LINES = 20
STDERR_LINE = 2_000

_SAYS_NOTHING = re.compile(
    r"[\W_]*|at .*|Node\.js v\S+|node:internal\S*|triggerUncaughtException.*|npm notice.*"
    r"|npm (?:error|ERR!)(?: \d+)?(?: (?:A complete log|Note that you can|tarball, folder).*)?"
)
"""Lines of stderr that hide the reason which stands above them, as where Node and npm end."""
_TELLS = re.compile(
    r"error|exception|fatal|fail|cannot|could not|unable|not (?:found|set|in)\b|no such|missing|required|denied|refused"
    r"|invalid|unauthori[sz]ed",
    re.IGNORECASE,
)
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"]{1,64}")')


class LastWords:
    """What a server said beside the protocol, masked, for whoever has to find out why it failed.

    The last lines of its stderr, of which a flood costs neither memory nor log; and the first line of its stdout that
    is no message: a banner there may be all that a server ever says.
    """

    def __init__(self, server: str, mask: Callable[[str], str]) -> None:
        self.lines: deque[str] = deque(maxlen=STDERR_LINES)
        """Of stderr."""
        self.stray = ""
        """That line of stdout; "" where there is none, and once the server is ready in spite of it."""
        self._server, self._mask = server, mask
        self._partial = b""

    def not_mcp(self, line: bytes) -> None:
        """Take a line of stdout that is no message."""
        self.stray = self._mask(shorten(one_line(line[:400].decode("utf-8", "replace")), 200))
        log.warning("server %r writes to stdout what is not MCP (told once): %s", self._server, self.stray)

    def feed(self, data: bytes) -> None:
        """Take a chunk of stderr as it came."""
        *lines, rest = (self._partial + data).split(b"\n")
        self._partial = rest[-STDERR_LINE:]
        for line in lines[-STDERR_LINES:]:
            text = self._mask(shorten(one_line(line[:STDERR_LINE].decode("utf-8", "replace")), 500))
            if text:
                self.lines.append(text)
                log.debug("server %r stderr: %s", self._server, text)

    def telling(self, count: int = 3) -> list[str]:
        """The lines of stderr that tell most, at most `count` of the last ones, none longer than 200 characters.

        The very last one, since that is where most programs say why they end, and those before it that look like it.
        """
        if self._partial:
            self.feed(b"\n")
        lines = [line for line in self.lines if not _SAYS_NOTHING.fullmatch(line)] or list(self.lines)
        if told := [line for line in lines[:-1] if _TELLS.search(line)]:
            lines = [*told[1 - count :], lines[-1]]
        return [shorten(line, 200) for line in lines[-count:]]

    def after(self, reason: str) -> str:
        """`reason` with the stray line and the last lines behind it, once."""
        tail = " | ".join(self.telling())
        stray = f"it wrote to stdout what is not MCP: {shorten(self.stray, 120)!r}" if self.stray else ""
        if stray and stray not in reason:
            reason = f"{reason}; {stray}"
        return f"{reason}; its last words: {tail}" if tail and tail not in reason else reason


class _Stdout(asyncio.Protocol):
    """The child's stdout without the turn of the event loop that asyncio's subprocesses put before each chunk."""

    def __init__(self, feed: Callable[[bytes], None], wrapped: asyncio.BaseProtocol) -> None:
        """`wrapped` is asyncio's own protocol, which is told of the end."""
        self._feed, self._wrapped = feed, wrapped

    def data_received(self, data: bytes) -> None:
        """A chunk, as it came."""
        self._feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The child has closed it, or has ended."""
        self._wrapped.connection_lost(exc)


class _Process(asyncio.SubprocessProtocol):
    """Bytes of the child to values for the peer, and the peer's messages to bytes."""

    def __init__(self, peer: Peer, last_words: LastWords) -> None:
        self.peer, self.last_words = peer, last_words
        self.transport: asyncio.SubprocessTransport | None = None
        self.exited = anyio.Event()
        self._stdin: asyncio.WriteTransport | None = None
        self._lines = Lines(MAX_LINE)
        self._junk_told = False
        self._exit = ""
        self._leaving = False
        self._open = {1, 2}
        """Which of the child's outputs have not ended."""

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self.transport.get_pipe_transport(0))
        if (stdout := self.transport.get_pipe_transport(1)) is not None:
            read_modestly(stdout)
            stdout.set_protocol(_Stdout(self._stdout, stdout.get_protocol()))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.last_words.feed(data)
        else:
            self._stdout(data)

    def _stdout(self, data: bytes) -> None:
        for line, too_long in self._lines.feed(data):
            self._line(line, too_long)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if fd == 0 and self._stdin is not None and not self._leaving:
            self._ended("the server closed its input")
        elif fd == 1:
            self._ended("the server closed its output")
        elif not self._open and self.exited.is_set():
            self._end(self._exit)

    def process_exited(self) -> None:
        assert self.transport is not None
        self.exited.set()
        self._exit = _exit_reason(self.transport.get_returncode())
        self._ended(self._exit)

    def _ended(self, reason: str) -> None:
        """Close the peer once both the outputs and the process have ended, else a little later.

        The output may still hold a last answer, and stderr the last words; the exit code tells more than a closed
        pipe; a grandchild may keep a pipe open for ever.
        """
        if not self._open and self.exited.is_set():
            self._end(reason)
        else:
            asyncio.get_running_loop().call_later(END_GRACE, self._end, reason)

    def _end(self, reason: str) -> None:
        self.peer.close(self.last_words.after(self._exit or reason))

    # Link

    takes_headers = False

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        if self._stdin is None or self._stdin.is_closing():
            raise BrokenPipeError(self.last_words.after(self._exit or "the server's input is closed"))
        self._stdin.write(encode_request(message) + b"\n")

    def close_stdin(self) -> None:
        self._leaving = True
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.close()

    # Lines

    def _line(self, line: bytes, too_long: bool) -> None:
        if too_long:
            log.warning("server %r: a message longer than %d MiB was dropped", self.peer.server, MAX_LINE >> 20)
            self._fail_id(line, f"its answer is longer than {MAX_LINE >> 20} MiB")
            return
        if not line.strip():
            return
        try:
            message = self.peer.decode(line)
        except (ValueError, RecursionError) as error:
            message = embedded(line)
            why = "it is nested too deeply" if isinstance(error, RecursionError) else shorten(one_line(str(error)), 100)
            if message is None and b'"jsonrpc"' in line[:4096] and self._fail_id(line, f"unparseable answer ({why})"):
                return
        if not self.peer.receive(message) and not self._junk_told:
            self._junk_told = True
            self.last_words.not_mcp(line)

    def _fail_id(self, line: bytes, reason: str) -> bool:
        head = line[:300]
        if b'"method"' in head or (match := _ID.search(head) or _ID.search(line[-300:])) is None:
            return False
        self.peer.fail(json.loads(match[1]), reason)
        return True


def embedded(line: bytes) -> dict[str, Any] | None:
    """An answer that shares its line with something else, as where a server logs to stdout without a line's end."""
    text = line.decode("utf-8", "replace")
    if '"jsonrpc"' not in text:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, text.find("{"))
    except (ValueError, RecursionError, IndexError):
        return None
    if not isinstance(value, dict):
        return None
    frame = cast(dict[str, Any], value)
    return frame if "result" in frame or "error" in frame else None


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "the server's process ended"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the server's process was ended by {signal.Signals(-code).name}"
    return f"the server's process exited with code {code}"


@asynccontextmanager
async def open_stdio(
    config: ServerConfig, environment: Mapping[str, str], peer: Peer, last_words: LastWords, reaper: Reaper
) -> AsyncGenerator[None]:
    """Start the server's process and attach `peer` to it; on leaving, the whole process group is gone.

    Raises:
        ConnectError: the process could not be started.
    """
    assert config.command is not None
    process = _Process(peer, last_words)
    try:
        # Shielded, and nothing is awaited before the block that ends it: a start that is cancelled half-way would
        # leave the process behind, and its pipes open.
        with anyio.CancelScope(shield=True):
            await asyncio.get_running_loop().subprocess_exec(
                lambda: process,
                config.command,
                *config.args,
                env=dict(environment),
                cwd=config.cwd,
                start_new_session=sys.platform != "win32",
            )
    except FileNotFoundError:
        missing = f"folder not found: {config.cwd}" if config.cwd and not config.cwd.is_dir() else None
        raise ConnectError(
            missing or f"command not found: {config.command!r} (is it installed, and on PATH?)", permanent=True
        ) from None
    except (OSError, ValueError) as error:
        raise ConnectError(f"could not start {config.command!r}: {error}", permanent=True) from None
    assert process.transport is not None
    group = process.transport.get_pid()
    try:
        reaper.add(group)
        peer.attach(process)
        yield
    finally:
        peer.close("the proxy closed the connection")
        with anyio.CancelScope(shield=True):
            await _stop(process, group)
        reaper.remove(group)


async def _stop(process: _Process, group: int) -> None:
    assert process.transport is not None
    process.close_stdin()
    with anyio.move_on_after(EOF_GRACE):
        await process.exited.wait()
    # Also after a clean exit: what the server left behind in its group goes with it.
    for sig, grace in ((signal.SIGTERM, TERM_GRACE), (getattr(signal, "SIGKILL", signal.SIGTERM), KILL_GRACE)):
        if not _signal_group(process, group, sig):
            break
        deadline = anyio.current_time() + grace
        # After SIGKILL only our own child is waited for: where PID 1 does not reap (containers), its dead children
        # stay in the group as zombies for ever.
        rest = sig is signal.SIGTERM
        while anyio.current_time() < deadline and not (process.exited.is_set() and not (rest and _group_alive(group))):  # noqa: ASYNC110
            await anyio.sleep(POLL)
    process.transport.close()


def _signal_group(process: _Process, group: int, sig: signal.Signals) -> bool:
    """Signal whoever is left of the group; False when nobody is."""
    if sys.platform == "win32":
        assert process.transport is not None
        if process.exited.is_set():
            return False
        process.transport.kill()
        return True
    try:
        os.killpg(group, sig)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _group_alive(group: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
