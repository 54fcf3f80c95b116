"""What every command that needs the configuration shares: reading it, and logging without secrets."""

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from proxy.config import Settings, find, load, user_file
from proxy.masking import mask
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


def set_up_logging(level: int, config: Settings, *, verbose: bool) -> None:
    """Everything to stderr; other libraries only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    secrets = frozenset(s for server in config.servers for s in server.secrets)
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
