"""What every test relies on: none leaves a trace in another."""

import logging
import sys
import threading
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than some seconds; left out of the quick run")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that runs in the test's own process sets up logging for good; here it ends with the test."""
    root, names = logging.getLogger(), ("proxy", "mcp", "httpx2", "httpcore2", "uvicorn", "sse_starlette", "asyncio")
    handlers, levels = list(root.handlers), {name: logging.getLogger(name).level for name in names}
    level = root.level
    gathered = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")
    before = {name: getattr(logging, name) for name in gathered}
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    for name, value in before.items():
        setattr(logging, name, value)
    root.handlers[:] = [handler for handler in root.handlers if handler in handlers] or handlers
    root.setLevel(level)
    for name, value in levels.items():
        logging.getLogger(name).setLevel(value)
