"""What goes to stderr: informative lines together and a little later, warnings at once, nothing lost at the end."""

import asyncio
import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli import logs
from proxy.config import Settings

ROOT = Path(__file__).parents[1]


class Written(io.StringIO):
    """A stderr that counts its writes."""

    writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    written = Written()
    monkeypatch.setattr(sys, "stderr", written)
    logs.set_up_logging(logging.INFO, Settings(), verbose=False)
    yield written


def lines(written: Written) -> list[str]:
    return [line.removeprefix("narrow-waist ") for line in written.getvalue().splitlines()]


async def test_informative_lines_are_written_together(stderr: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BUNDLE_DELAY", 0)
    for number in range(5):
        logs.log.info("call %d", number)
    assert lines(stderr) == []
    while not stderr.writes:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert lines(stderr) == [f"info: call {number}" for number in range(5)]
    assert stderr.writes == 1


async def test_a_warning_is_written_at_once_after_what_came_before_it(stderr: Written) -> None:
    logs.log.info("before")
    logs.log.warning("now")
    logs.log.info("later")
    assert lines(stderr) == ["info: before", "warning: now"]


async def test_a_full_bundle_does_not_wait(stderr: Written) -> None:
    for number in range(logs.BUNDLE):
        logs.log.info("call %d", number)
    assert len(lines(stderr)) == logs.BUNDLE


def test_without_an_event_loop_nothing_waits(stderr: Written) -> None:
    logs.log.info("at once")
    assert lines(stderr) == ["info: at once"]


async def test_a_stderr_that_is_gone_costs_the_line_and_nothing_else(stderr: Written) -> None:
    stderr.close()
    logs.log.info("to nobody")
    logs.log.warning("to nobody")


def test_what_waits_at_the_end_of_the_process_is_written() -> None:
    code = """
import asyncio, logging
from proxy.cli import logs
from proxy.config import Settings
logs.set_up_logging(logging.INFO, Settings(), verbose=False)
async def main():
    logs.log.info("the last call")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "narrow-waist info: the last call\n"
