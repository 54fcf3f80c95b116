"""What goes to stderr: one line a record, without secrets, also where nobody caught an error."""

import asyncio
import logging
import os
import select
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import TextIO

from proxy.config import OWN_TOKEN, Settings
from proxy.masking import mask, secret_parts
from proxy.text import one_line

log = logging.getLogger("proxy")

BUNDLE = 200
"""Log lines that are written together at most."""
BUNDLE_DELAY = 0.2
"""Seconds that an informative log line may wait for others."""
PIECE = 1_000
"""Characters written at once, at most 4 KB: a pipe that can be written to has room for so many."""
_LOST = "\nnarrow-waist warning: lines are missing here, because nobody read them\n"


class Crash:
    """What Python calls for an error that nobody caught: its traceback, without any secret of the configuration."""

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = secrets

    def masked(self, text: str) -> str:
        """`text` without secrets."""
        return mask(text, self._secrets)

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Stand for `sys.excepthook`."""
        sys.stderr.write(self.masked("".join(traceback.format_exception(kind, error, trace))))

    def elsewhere(self, args: "threading.ExceptHookArgs | sys.UnraisableHookArgs") -> None:
        """Stand for `threading.excepthook` and `sys.unraisablehook`."""
        if args.exc_value is not None:
            self(args.exc_type, args.exc_value, args.exc_traceback)


class _OneLine(logging.Formatter):
    """One line a record, without any secret of the configuration."""

    def __init__(self, secrets: frozenset[str], *, traces: bool) -> None:
        super().__init__()
        self._secrets, self._traces = secrets, traces

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text += f": {super().formatException(record.exc_info) if self._traces else repr(error)}"
        if not self._traces:
            text = one_line(text)
        return f"narrow-waist {record.levelname.lower()}: {mask(text, self._secrets)}"


class _Bundled(logging.StreamHandler[TextIO]):
    """Writes informative lines a little later, many at once; a warning at once, with all before it.

    One write for each call's line costs a tenth of the call.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: list[logging.LogRecord] = []
        self._lost = False
        """Whether the end of what was to be written last is lost."""

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        if record.levelno > logging.INFO or len(self._waiting) >= BUNDLE:
            self.flush()
        elif len(self._waiting) == 1:
            try:
                asyncio.get_running_loop().call_later(BUNDLE_DELAY, self.flush)
            except RuntimeError:  # nothing runs that could do it later
                self.flush()

    def flush(self) -> None:
        """Write what waits; `logging` does so at the end of the process."""
        with self.lock or nullcontext():
            waiting, self._waiting = self._waiting, []
            if waiting:
                text = "".join(map(self._line, waiting))
                with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed: no reason to stop
                    self._write(f"{_LOST}{text}" if self._lost else text)

    def _write(self, text: str) -> None:
        """Write as much as goes without waiting: a host that reads no stderr must not hold up its own calls."""
        for at in range(0, len(text), PIECE):
            self._lost = not _has_room(self.stream)
            if self._lost:
                break
            self.stream.write(text[at : at + PIECE])
            self.stream.flush()

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return f"{self.format(record)}\n"
        except Exception as error:  # must not cost the other lines, or whoever logs
            return f"narrow-waist error: a line of {record.name} could not be written: {error!r}\n"


def _has_room(stream: TextIO) -> bool:
    """Whether a pipe takes a page without waiting; True for what cannot be asked (files, and Windows)."""
    try:
        return bool(select.select([], [stream], [], 0)[1])
    except (OSError, ValueError):
        return True


def set_up_logging(level: int, config: Settings, *, verbose: bool, own: Iterable[str] = ()) -> None:
    """Everything to stderr, also what nobody caught; other libraries only when something is wrong.

    `own`: secrets of ours, which are masked like those of the configuration.
    """
    handler: logging.Handler = logging.NullHandler()
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison] -- where fd 2 is closed there is none
        handler = logging.StreamHandler(sys.stderr) if verbose else _Bundled(sys.stderr)
    mine = secret_parts([*own, os.environ.get(OWN_TOKEN, "")])
    secrets = frozenset(s for server in config.servers for s in server.secrets) | frozenset(mine)
    crash = Crash(secrets)
    sys.excepthook, threading.excepthook, sys.unraisablehook = crash, crash.elsewhere, crash.elsewhere
    handler.setFormatter(_OneLine(secrets, traces=verbose))
    # What no line of ours shows is not gathered either (Python's logging documentation, "Optimization"): a call writes
    # one line, and finding out who wrote it would cost as much as the call's two JSON texts.
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # The SDK logs a traceback for every odd line of a server; what matters of it we say ourselves.
    for name in ("mcp", "httpx2", "httpcore2", "uvicorn", "sse_starlette", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # its errors show the answers that hold tokens
    log.setLevel(logging.DEBUG if verbose else level)
    for warning in config.warnings:
        log.warning(warning)
