"""tests/requirements.yaml and the tests say the same: no guarantee without a test, no test that nobody asked for."""

import ast
import re
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "tests" / "requirements.yaml"
SUPPORTING = "supporting"
TIED = (
    "tests/e2e/test_*.py",
    "tests/hostile/test_*.py",
    "tests/conformance/test_*.py",
    "tests/test_peer.py",
    "tests/test_session.py",
    "tests/test_lists.py",
    "tests/test_changes.py",
    "tests/test_questions.py",
    "tests/test_offers.py",
    "tests/test_dispatch.py",
    "tests/test_stdio_transport.py",
    "tests/test_http_upstream.py",
    "tests/test_breaker.py",
    "tests/test_snapshot.py",
)
"""Where every test belongs to a guarantee, or is named as supporting."""
OWN = re.compile(r"test_guard_")
"""The guard's tests are tied to the promises of SECURITY.md instead (test_guard_readme.py)."""
PAIRING_CELLS = ("result", "progress", "cancel", "error", "question", "resources", "prompts")
"""What tests/e2e/test_pairings.py has a test of for each of the four pairings of eras."""
SOURCE = re.compile(
    r"MCP (2024-11-05|2025-03-26|2025-06-18|2025-11-25|2026-07-28), \S+"
    r"|report [A-Z]\d{1,2}: .{10,}"
    r"|contract: .{4,}"
    r"|SECURITY\.md"
)

AND = re.compile(r"; (?=MCP |report |contract: |SECURITY)")


class Strict(yaml.SafeLoader):
    """Refuses a key that is given twice, which YAML would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise AssertionError(f"given twice: {sorted(twice)} (line {node.start_mark.line + 1})")
        return super().construct_mapping(node, deep=deep)


def read(text: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The guarantees by `area.name`, and the supporting tests."""
    areas = yaml.load(text, Strict)
    supporting = areas.pop(SUPPORTING)
    return {f"{area}.{name}": entry for area, entries in areas.items() for name, entry in entries.items()}, supporting


def faults(guarantees: dict[str, dict[str, Any]], supporting: list[str], tied: set[str]) -> Iterator[str]:
    """What is wrong, in words. `tied`: the tests that have to belong to something."""
    said: dict[str, str] = {}
    for name, entry in guarantees.items():
        if entry.keys() != {"says", "source", "tests"}:
            yield f"{name} has {sorted(entry)}, not says, source and tests"
            continue
        if (other := said.setdefault(entry["says"].casefold(), name)) != name:
            yield f"{name} says the same as {other}"
        if not all(SOURCE.match(source) for source in AND.split(entry["source"])):
            yield f"{name} has no such source: {entry['source']}"
        if not entry["tests"]:
            yield f"{name} has no test"
        for test in entry["tests"]:
            if not exists(test):
                yield f"{name} names a test that does not exist: {test}"
            if entry["tests"].count(test) > 1:
                yield f"{name} names a test twice: {test}"
    proving = {test for entry in guarantees.values() for test in entry.get("tests", ())}
    for test in supporting:
        if not exists(test):
            yield f"supporting: {test} does not exist"
        if test in proving or supporting.count(test) > 1:
            yield f"supporting: {test} is named elsewhere too"
    for test in sorted(tied - proving - set(supporting)):
        yield f"{test} belongs to no guarantee: name it in {MANIFEST.name}, or there under `{SUPPORTING}`"


@cache
def names_in(path: str) -> tuple[str, ...]:
    """The names of the tests in a file."""
    file = ROOT / path
    if not file.is_file():
        return ()
    tree = ast.parse(file.read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return tuple(name for name in functions if name.startswith("test_"))


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return name in names_in(path)


def all_tied() -> set[str]:
    files = sorted({path for pattern in TIED for path in ROOT.glob(pattern) if not OWN.match(path.name)})
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return {f"{name}::{test}" for name in names for test in names_in(name)}


def test_every_guarantee_has_its_tests_and_every_test_its_guarantee() -> None:
    guarantees, supporting = read(MANIFEST.read_text("utf-8"))
    assert list(faults(guarantees, supporting, all_tied())) == []
    assert len(guarantees) >= 100


def test_no_test_name_is_given_twice_in_a_file() -> None:
    """The second would replace the first, and the guarantee with it."""
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        names = names_in(path.relative_to(ROOT).as_posix())
        assert not {name for name in names if names.count(name) > 1}, path


@pytest.mark.parametrize("cell", PAIRING_CELLS)
def test_each_cell_of_the_pairings_has_a_test_that_runs_in_all_four(cell: str) -> None:
    [test] = [name for name in names_in("tests/e2e/test_pairings.py")[: len(PAIRING_CELLS)] if cell in name]
    tree = ast.parse((ROOT / "tests/e2e/test_pairings.py").read_text("utf-8"))
    [function] = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == test]
    assert {"client", "upstream"} <= {argument.arg for argument in function.args.args}


GOOD: dict[str, Any] = {
    "says": "It works",
    "source": "MCP 2025-11-25, server/tools",
    "tests": ["tests/test_requirements.py::test_no_test_name_is_given_twice_in_a_file"],
}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({**GOOD, "tests": []}, "has no test"),
        ({**GOOD, "tests": ["tests/test_requirements.py::test_nothing"]}, "does not exist"),
        ({**GOOD, "tests": ["tests/test_nothing.py::test_nothing"]}, "does not exist"),
        ({**GOOD, "tests": GOOD["tests"] * 2}, "twice"),
        ({**GOOD, "source": "I think so"}, "no such source"),
        ({**GOOD, "source": "report R1:"}, "no such source"),
        ({**GOOD, "source": "MCP 2025-11-25, server/tools; contract: "}, "no such source"),
        ({"says": "It works", "tests": GOOD["tests"]}, "not says, source and tests"),
    ],
)  # fmt: skip
def test_a_slip_in_a_guarantee_is_found(entry: dict[str, Any], fault: str) -> None:
    [found] = set(faults({"a.b": entry}, [], set()))
    assert fault in found


def test_a_test_that_belongs_to_nothing_and_a_guarantee_that_is_said_twice_are_found() -> None:
    assert list(faults({"a.b": GOOD}, [], set())) == []
    [found] = faults({"a.b": GOOD}, [], {"tests/test_other.py::test_other"})
    assert "belongs to no guarantee" in found
    [found] = faults({"a.b": GOOD, "a.c": GOOD}, [], set())
    assert "says the same as a.b" in found
    [found] = faults({"a.b": GOOD}, GOOD["tests"], set())
    assert "named elsewhere too" in found
    with pytest.raises(AssertionError, match="given twice"):
        read("a:\n  b: {}\n  b: {}\nsupporting: []\n")
