"""What the garbage collector no longer looks at, and what the C library keeps at hand."""

import gc
import platform
import subprocess
import sys
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


ENDING = """
import gc, os, sys
from proxy.cli import main
def seen(phase, info):
    if phase == "start":
        os.write(1, b"%d\\n" % len(gc.get_objects()))
code = main(["check", "--config", "/nowhere"])
gc.callbacks.append(seen)
sys.exit(code)
"""


def test_a_command_ends_without_a_search_for_garbage() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert 0 < int(ended.stdout.split()[-1]) < 1_000


LARGE_MESSAGES = """
import resource, sys
from proxy.memory import keep_at_hand
if sys.argv[1] == "kept":
    keep_at_hand()
def message():
    return [b"x" * (1 << 20) for _ in range(4)]
message()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    message()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these two numbers")
def test_the_memory_of_a_large_message_serves_the_next_one() -> None:
    def faults(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", LARGE_MESSAGES, how], capture_output=True, check=True)
        return int(done.stdout)

    assert faults("kept") * 10 < faults("as it comes")
