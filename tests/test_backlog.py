"""What waits for a client that does not read is bounded in number and in size."""

from typing import Any

import pytest

from proxy.upstream import backlog
from proxy.upstream.backlog import Backlog


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "ROOM", 100)


def taken(waiting: Backlog) -> list[Any]:
    return [waiting.take()["data"] for _ in range(len(waiting))]


def test_of_too_many_the_oldest_go() -> None:
    waiting = Backlog(3)
    assert [waiting.put({"data": number}) for number in range(5)] == [True, True, True, False, False]
    assert taken(waiting) == [2, 3, 4]
    assert waiting.put({"data": 5}), "there is room again"


def test_of_too_much_the_oldest_go_and_one_alone_stays_whatever_its_size() -> None:
    waiting = Backlog(3)
    assert waiting.put({"data": "a" * 60})
    assert not waiting.put({"data": "b" * 60})
    assert not waiting.put({"data": "c" * 500})
    assert taken(waiting) == ["c" * 500]
    assert waiting.put({"data": "d" * 60}), "what was taken takes no room"


def test_what_is_nested_too_deep_to_be_measured_waits_alone() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    waiting = Backlog(3)
    waiting.put({"data": "a"})
    waiting.put({"data": deep})
    assert len(waiting) == 1
