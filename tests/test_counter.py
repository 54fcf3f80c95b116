"""The child that counts tokens: started early or not, and never left behind."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counter import Counter
from proxy.tokens import estimate

LINES = ["- docs (3): find notes", "create_issue", "漢字 é"]
ECHO = "import json, os, sys; sys.stdout.write(json.dumps([os.getpid()] * len(json.loads(sys.stdin.buffer.read()))))"


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_child_that_was_started_early_counts_once_and_the_next_count_has_its_own() -> None:
    async with Counter(child(ECHO)) as counter:
        await counter.start()
        first, second = await counter.count(LINES), await counter.count(LINES)
    assert len(set(first)) == len(set(second)) == 1 and first != second


async def test_the_counts_are_those_of_the_vocabulary() -> None:
    async with Counter() as counter:
        await counter.start()
        assert await counter.count(["hello world", "a"]) == [2, 1]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('nonsense')", "import os; os.close(0); os.close(1)"])
async def test_a_child_that_does_not_answer_is_an_error_and_no_hang(code: str, early: bool) -> None:
    async with Counter(child(code)) as counter:
        if early:
            await counter.start()
        with pytest.raises((ValueError, OSError)):
            await counter.count(LINES * 10_000)


async def test_a_child_that_cannot_be_started_is_told_of_when_it_is_needed() -> None:
    async with Counter(["no-such-command-anywhere"]) as counter:
        await counter.start()
        with pytest.raises(OSError):
            await counter.count(LINES)


async def test_a_child_that_nobody_needed_is_gone_with_the_counter() -> None:
    counter = Counter(child("import time; time.sleep(600)"))
    async with counter:
        await counter.start()
        process = counter._early
    assert process is not None and process.returncode is not None


async def test_a_child_that_is_dismissed_is_gone_at_once_and_another_can_count() -> None:
    async with Counter(child(ECHO)) as counter:
        await counter.start()
        process = counter._early
        await counter.dismiss()
        assert process is not None and process.returncode is not None
        assert len(await counter.count(LINES)) == len(LINES)


@given(st.text())
def test_an_estimate_has_a_bound_that_costs_nothing(text: str) -> None:
    """Answers of search rely on it: lines that are short enough are not estimated at all."""
    assert estimate(text) <= (len(text) if text.isascii() else 2 * len(text))
