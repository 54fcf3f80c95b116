"""What the garbage collector no longer looks at."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from proxy.memory import settle


class Thing:
    pass


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_was_built_is_out_of_the_collectors_sight() -> None:
    things = [Thing() for _ in range(1_000)]
    settle()
    assert gc.get_freeze_count() >= len(things)
    assert not any(isinstance(each, Thing) for each in gc.get_objects())


def test_what_is_out_of_its_sight_is_still_freed_when_nothing_refers_to_it() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    settle()
    del thing
    assert seen() is None
