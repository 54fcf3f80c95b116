"""The log must never cost a call: whoever starts us may read no stderr, close it, or have none."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

import pytest

from proxy.cli.logs import set_up_logging
from proxy.config import Settings

log = logging.getLogger("proxy")


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `set_up_logging` changes of the process is undone."""
    for place, names in ((sys, ("excepthook", "unraisablehook")), (threading, ("excepthook",))):
        for name in names:
            monkeypatch.setattr(place, name, getattr(place, name))
    for name in ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing"):
        monkeypatch.setattr(logging, name, getattr(logging, name))
    root = logging.getLogger()
    before = root.level, list(root.handlers), log.level
    yield
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    log.setLevel(before[2])


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIOWrapper]]:
    """The reading end's descriptor, and our stderr: a pipe."""
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    set_up_logging(logging.INFO, Settings(), verbose=False)
    yield reading, stream
    with suppress(OSError):
        os.close(reading)
    with suppress(OSError):
        stream.close()


def read(reading: int) -> str:
    os.set_blocking(reading, False)
    try:
        return os.read(reading, 1 << 20).decode()
    except BlockingIOError:
        return ""


def test_a_pipe_that_nobody_reads_holds_up_nobody_and_what_is_missing_is_told(pipe: tuple[int, TextIOWrapper]) -> None:
    """64 KiB are 1,300 calls; then each write would wait for ever, and with it every call."""
    reading, _ = pipe
    for number in range(3_000):
        log.warning("line %d %s", number, "x" * (number % 50))
    assert read(reading).startswith("narrow-waist warning: line 0\n")
    log.warning("line read again")
    told = read(reading).splitlines()
    assert "lines are missing" in told[1] and told[2] == "narrow-waist warning: line read again"


def test_a_pipe_whose_reader_is_gone_stops_nobody(pipe: tuple[int, TextIOWrapper]) -> None:
    """The error of the write reached whoever logged: the proxy ended at its first warning."""
    os.close(pipe[0])
    for number in range(300):
        log.info("line %d", number)
        log.warning("line %d", number)


def test_a_closed_stream_stops_nobody(pipe: tuple[int, TextIOWrapper]) -> None:
    pipe[1].close()
    log.warning("line")


def test_a_process_without_stderr_logs_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    set_up_logging(logging.INFO, Settings(), verbose=False)
    log.warning("line")


def test_a_line_that_cannot_be_made_costs_no_other(pipe: tuple[int, TextIOWrapper]) -> None:
    ours = next(h for h in logging.getLogger().handlers if type(h).__module__ == set_up_logging.__module__)
    ours.handle(log.makeRecord("proxy", logging.INFO, "", 0, "%d", ("no number",), None))  # pytest's own would raise
    log.warning("the next one")
    said = read(pipe[0])
    assert "could not be written" in said and said.endswith("the next one\n")


def test_a_file_gets_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stderr", file)
        set_up_logging(logging.INFO, Settings(), verbose=False)
        for number in range(3_000):
            log.info("line %d", number)
        log.warning("%s", "long" * 3_000)
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3_001 and lines[2_999].endswith("line 2999") and len(lines[-1]) > 12_000
