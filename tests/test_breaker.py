"""The breaker: failures of the connection in a row hold calls back; answers, whatever they say, do not."""

import anyio
import pytest

from proxy.errors import UpstreamFailure
from proxy.upstream.breaker import COOL_DOWN, COOL_DOWN_CAP, THRESHOLD, Breaker


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(anyio, "current_time", lambda: now[0])
    return now


def opened(clock: list[float]) -> Breaker:
    breaker = Breaker("s")
    for _ in range(THRESHOLD):
        breaker.check()
        breaker.failed("crashed")
    return breaker


def test_it_opens_after_failures_in_a_row_and_says_why_and_until_when(clock: list[float]) -> None:
    with pytest.raises(UpstreamFailure) as raised:
        opened(clock).check()
    assert "crashed" in raised.value.reason and "next try in 10 s" in raised.value.reason
    assert not raised.value.may_have_run


def test_an_answer_in_between_keeps_it_closed(clock: list[float]) -> None:
    breaker = Breaker("s")
    for _ in range(3 * THRESHOLD):
        breaker.check()
        breaker.failed("crashed")
        breaker.answered()
    breaker.check()


def test_after_the_cool_down_one_call_is_let_through(clock: list[float]) -> None:
    breaker = opened(clock)
    clock[0] += COOL_DOWN + 0.1
    breaker.check()
    with pytest.raises(UpstreamFailure):
        breaker.check()
    breaker.answered()
    breaker.check()


def test_each_trial_that_fails_doubles_the_wait_up_to_a_cap(clock: list[float]) -> None:
    breaker = opened(clock)
    waits = []
    for _ in range(6):
        start = clock[0]
        while True:
            try:
                breaker.check()
            except UpstreamFailure:
                clock[0] += 1
            else:
                break
        waits.append(clock[0] - start)
        breaker.failed("crashed")
    assert waits == [10, 20, 40, 80, COOL_DOWN_CAP, COOL_DOWN_CAP]


def test_refusals_of_its_own_count_for_nothing(clock: list[float]) -> None:
    breaker = opened(clock)
    for _ in range(10):
        with pytest.raises(UpstreamFailure):
            breaker.check()
    clock[0] += COOL_DOWN + 0.1
    breaker.check()


def test_failures_to_connect_are_forgotten_once_there_is_a_connection(clock: list[float]) -> None:
    breaker = Breaker("s")
    for _ in range(THRESHOLD):
        breaker.failed("not connected", reached=False)
    with pytest.raises(UpstreamFailure):
        breaker.check()
    breaker.check(connected=True)


def test_a_crash_loop_is_not_forgotten_by_reconnecting(clock: list[float]) -> None:
    with pytest.raises(UpstreamFailure):
        opened(clock).check(connected=True)


def test_all_calls_that_one_crash_took_along_are_one_failure(clock: list[float]) -> None:
    breaker, connection = Breaker("s"), object()
    for _ in range(3 * THRESHOLD):
        breaker.failed("crashed", lost=connection)
    breaker.check()
    for _ in range(THRESHOLD - 1):
        breaker.failed("crashed", lost=object())
    with pytest.raises(UpstreamFailure):
        breaker.check()
