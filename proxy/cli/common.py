"""What every command that needs the configuration shares: reading it, and logging without secrets."""

import argparse
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from proxy.config import OWN_TOKEN, Settings, find, load, others_may, user_file
from proxy.errors import ConfigError
from proxy.masking import mask, secret_parts
from proxy.text import one_line

log = logging.getLogger("proxy")


def settings(options: argparse.Namespace) -> Settings:
    """The settings that `--demo` or `--config` (or the usual places) name; raises ConfigError."""
    if options.demo:
        from proxy.demo import demo_settings

        return demo_settings()
    found = load(find(options.config, os.environ, Path.cwd()), os.environ)
    return found


def token_file(environ: Mapping[str, str]) -> Path:
    """Where the tokens of the daemon's clients are kept."""
    return user_file(environ, Path.home()).with_name("tokens.json")


def read_token(option: str, file: str) -> str:
    """The bearer token in a file that a person has named.

    Raises:
        ConfigError: it cannot be read, is empty, or others may read it.
    """
    path = Path(file).expanduser()
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror}") from None
    if others_may(path):
        raise ConfigError(f"{option} {file}: other users can read it; run: chmod 600 {path}")
    if not token:
        raise ConfigError(f"{option} {file}: the file is empty; expected one line with the token")
    return token


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

    def in_thread(self, args: threading.ExceptHookArgs) -> None:
        """Stand for `threading.excepthook`."""
        if args.exc_value is not None:
            self(args.exc_type, args.exc_value, args.exc_traceback)

    def unraisable(self, args: "sys.UnraisableHookArgs") -> None:
        """Stand for `sys.unraisablehook`."""
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


def set_up_logging(level: int, config: Settings, *, verbose: bool, own: Iterable[str] = ()) -> None:
    """Everything to stderr, also what nobody caught; other libraries only when something is wrong.

    `own`: secrets of ours, which are masked like those of the configuration.
    """
    handler = logging.StreamHandler(sys.stderr)
    mine = secret_parts([*own, os.environ.get(OWN_TOKEN, "")])
    secrets = frozenset(s for server in config.servers for s in server.secrets) | frozenset(mine)
    crash = Crash(secrets)
    sys.excepthook, threading.excepthook, sys.unraisablehook = crash, crash.in_thread, crash.unraisable
    handler.setFormatter(_OneLine(secrets, traces=verbose))
    # What no line of ours shows is not gathered either (Python's logging documentation, "Optimization"): a call writes
    # one line, and finding out who wrote it would cost as much as the call's two JSON texts.
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # The SDK logs a traceback for every odd line of a server; what matters of it we say ourselves.
    for name in ("mcp", "httpx2", "httpcore2", "uvicorn", "sse_starlette", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    log.setLevel(logging.DEBUG if verbose else level)
    for warning in config.warnings:
        log.warning(warning)
