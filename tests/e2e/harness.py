"""What the end-to-end tests share: places with their own processes, the proxy as a process, and deadlines.

Every process that a test starts, however indirectly, inherits the HOME of its `Place`; that is how the place finds
them again, whoever their parent is by now, and sees to it that none is left.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Self, TypeVar

T = TypeVar("T")

SERVERS = Path(__file__).parent / "servers"
ROOT = Path(__file__).parents[2]
BRIDGE = ["tool_search", "tool_describe", "tool_call"]
PATIENCE = 40.0
"""Seconds that anything may take on a busy machine before a test gives it up."""
GONE_WITHIN = 20.0
"""Seconds after the end of the proxy in which all its children must be gone. The product promises 5 on a machine that
has nothing else to do; what never leaves is what these tests are about."""


def until(condition: Callable[[], T], what: str, within: float = PATIENCE) -> T:
    """The first true value of `condition`; fails when there is none within the deadline."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(0.02)
    return value


def processes(mark: str) -> dict[int, str]:
    """The living processes (zombies are not) whose environment holds `mark`: pid -> command line."""
    found: dict[int, str] = {}
    if not Path("/proc/self/environ").exists():
        listing = subprocess.run(["ps", "-Ewwax", "-o", "pid=,command="], capture_output=True, text=True, check=True)
        lines = [line.split(None, 1) for line in listing.stdout.splitlines() if mark in line]
        return {int(pid): command for pid, command in lines if "ps -Ewwax" not in command}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                # A zombie's is empty, and a thread group that ended meanwhile cannot be read.
                if mark.encode() in Path(entry.path, "environ").read_bytes():
                    command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = command.decode("utf-8", "replace").strip()
            except OSError:
                continue
    return found


class Lines:
    """The lines of a process's output, read by a thread as they come."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self.ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, HTTPException):  # a connection that is cut has ended too
            for line in self._stream:
                with self._changed:
                    self._lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        """Everything so far."""
        with self._changed:
            return "\n".join(self._lines)

    def wait(self, pattern: str, within: float = PATIENCE) -> re.Match[str]:
        """The first line that matches, now or later."""
        deadline = time.monotonic() + within
        seen = 0
        with self._changed:
            while True:
                for line in self._lines[seen:]:
                    if match := re.search(pattern, line):
                        return match
                seen = len(self._lines)
                left = deadline - time.monotonic()
                if self.ended or left <= 0 or not self._changed.wait(left):
                    if seen == len(self._lines):
                        raise AssertionError(f"no line matches {pattern!r} in:\n" + "\n".join(self._lines))

    def take(self, index: int, within: float = PATIENCE) -> str | None:
        """Line number `index`; None where the output ends before it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended or len(self._lines) > index, within):
                raise AssertionError(f"no output within {within:g} s")
            return self._lines[index] if len(self._lines) > index else None

    def close(self) -> None:
        """Wait for the end of the output and close it."""
        self._thread.join(PATIENCE)
        self._stream.close()


class Place:
    """A folder with a cache of its own, and all processes that were started from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = str(folder / "home")
        (folder / "home").mkdir(parents=True)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def environ(self, **more: str) -> dict[str, str]:
        """The environment of every process here; nothing of the person's own configuration or cache is used."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NARROW_WAIST", "MCP_", "XDG_"))}
        return {
            **kept,
            "HOME": self.mark,
            "NARROW_WAIST_CACHE": str(self.cache),
            "PYTHONPATH": str(ROOT),
            **more,
        }

    def config(self, servers: Mapping[str, Any], name: str = "upstreams.yaml", **root: Any) -> Path:
        """Write a configuration (JSON is YAML too) and return its path."""
        path = self.folder / name
        path.write_text(json.dumps({"servers": servers, **root}, indent=1), encoding="utf-8")
        return path

    def processes(self) -> dict[int, str]:
        return processes(self.mark)

    def upstreams(self) -> dict[int, str]:
        """The living test servers of tests/e2e/servers."""
        return {pid: command for pid, command in self.processes().items() if str(SERVERS) in command}

    def wait_empty(self, within: float = GONE_WITHIN) -> None:
        """Fail unless every process of this place is gone in time."""
        deadline = time.monotonic() + within
        while left := self.processes():
            if time.monotonic() > deadline:
                raise AssertionError(f"still alive after {within:g} s: {left}")
            time.sleep(0.02)

    def clear(self) -> None:
        """End whatever is left; fails if anything was."""
        try:
            self.wait_empty()
        except AssertionError:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            raise

    def run(self, *words: str, within: float = PATIENCE, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            words, capture_output=True, text=True, timeout=within, check=False,
            cwd=self.folder, env=self.environ(**environ),
        )  # fmt: skip

    def cli(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run `narrow-waist` to its end."""
        return self.run(*proxy(*words), **environ)


def proxy(*words: str) -> list[str]:
    """The command line of the proxy. (-P: what lies in the working folder is not imported.)"""
    return [sys.executable, "-P", "-m", "proxy", *words]


class Running:
    """A process with its stderr (and, if asked, stdout) read as it comes."""

    def __init__(self, place: Place, words: Sequence[str], *, stdout: bool = False, **environ: str) -> None:
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=place.folder,
            env=place.environ(**environ),
        )
        assert self.process.stderr is not None
        self.stderr = Lines(self.process.stderr)
        self.stdout = Lines(self.process.stdout) if self.process.stdout is not None else None

    def close(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Signal it, wait for its end and return its exit code."""
        self.process.send_signal(sig)
        code = self.process.wait(PATIENCE)
        for lines in (self.stderr, self.stdout):
            if lines is not None:
                lines.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.close()
        else:
            self.stderr.close()
            if self.stdout is not None:
                self.stdout.close()


class Daemon(Running):
    """`narrow-waist --http` on a free port of 127.0.0.1."""

    def __init__(self, place: Place, *words: str, **environ: str) -> None:
        super().__init__(place, proxy("--http", "127.0.0.1:0", *words), **environ)
        try:
            self.base = self.stderr.wait(r"listening on (http://\S+)/mcp")[1]
        except AssertionError:
            self.__exit__()  # else its open pipes are blamed on a later test
            raise
        self.url = f"{self.base}/mcp"


@contextmanager
def http_server(place: Place, *words: str) -> Iterator[int]:
    """A server process that prints `PORT n` first; its port."""
    with Running(place, words, stdout=True) as running:
        assert running.stdout is not None
        yield int(running.stdout.wait(r"^PORT (\d+)$")[1])


def python_server(name: str, *args: str, **keys: Any) -> dict[str, Any]:
    """The config entry of a test server over stdio."""
    return {"command": sys.executable, "args": [str(SERVERS / f"{name}.py"), *args], **keys}


def text_of(result: Mapping[str, Any]) -> str:
    """The one text block of a raw result."""
    [block] = result["content"]
    return block["text"]
