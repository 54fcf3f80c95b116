"""README and SECURITY.md about the guard: the tables hold every key with its default, the example works, and each
promise has tests that name it back.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config import AuditConfig, GuardConfig, Profile, Toolset, load
from proxy.config.guard_block import AUDIT_KEYS, GUARD_KEYS, PROFILE_KEYS, TOOLSET_KEYS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def table(title: str) -> dict[str, str]:
    """Key -> default, of the first table behind a text."""
    rows = README.split(title, 1)[1].split("\n\n")[1].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {key.strip("`"): default.strip("`") for key, default, _ in cells}


TABLES: list[tuple[str, tuple[str, ...], Any]] = [
    ("below `toolsets:`", TOOLSET_KEYS, Toolset("t")),
    ("below `profiles:`", PROFILE_KEYS, Profile("p")),
    ("Below `guard:`", GUARD_KEYS, GuardConfig()),
    ("Below `audit:`", AUDIT_KEYS, AuditConfig(Path("audit.jsonl"))),
]
IN_WORDS = {
    "servers": "none", "tools": "none", "enabled": "everything", "disabled": "none", "read_only": "false",
    "policy": "allow", "risk": "none", "lock_file": "upstreams.lock", "audit": "false",
}  # fmt: skip
"""Defaults that the code holds as nothing, or computes."""


@pytest.mark.parametrize(("title", "keys", "default"), TABLES, ids=[title for title, *_ in TABLES])
def test_a_table_has_every_key_with_its_default(title: str, keys: tuple[str, ...], default: Any) -> None:
    told = table(title)
    assert set(told) == set(keys)
    values = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    for key, text in told.items():
        value = IN_WORDS.get(key, values.get(key))
        shown = (
            str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
        )
        assert text == shown, key


def test_the_example_does_what_it_says(tmp_path: Path) -> None:
    section = README.split("## Who may see and call what")[1]
    [text] = re.findall(r"^```yaml\n(.*?)^```$", section.split("\n## ")[0], flags=re.DOTALL | re.MULTILINE)
    path = tmp_path / "upstreams.yaml"
    path.write_text(text, encoding="utf-8")
    settings = load(path, {"GITHUB_TOKEN": "t" * 20})
    assert not settings.warnings and not any(server.problem for server in settings.servers)
    assert set(settings.profiles) == {"default", "careful", "reader"} == set(yaml.safe_load(text)["profiles"])
    careful, reader, guard = settings.profiles["careful"], settings.profiles["reader"], settings.guard
    assert (careful.policy, careful.rate_limit) == ({"write": "ask", "destructive": "deny"}, 60)
    assert reader.policy == {"write": "deny", "destructive": "deny"} and reader.enabled is not None
    assert guard is not None and guard.lock == "strict" and guard.lock_file == tmp_path / "upstreams.lock"
    assert guard.audit is not None and guard.audit.file == tmp_path / "audit.jsonl" and guard.audit.keep == 10


def promises() -> dict[str, list[str]]:
    """Promise -> the tests that SECURITY.md ties to it, `file::test`: the bullets, and the bullets below each."""
    found: dict[str, list[str]] = {}
    for item in re.split(r"^- ", SECURITY.split("## Promised")[1].split("## Not promised")[0], flags=re.MULTILINE)[1:]:
        text, _, tests = item.partition("\n  - ")
        found[" ".join(text.split())] = re.findall(r"`(tests/[^`]+)`", tests)
    return found


def functions(file: str) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE))


def tied() -> set[str]:
    """The names of all tests that a promise names."""
    return {test for tests in promises().values() for test in tests}


@pytest.mark.parametrize("promise", promises())
def test_a_promise_names_tests_that_there_are(promise: str) -> None:
    tests = promises()[promise]
    assert tests, "a promise without a test is none"
    for each in tests:
        file, colons, name = each.partition("::")
        assert colons, f"{each}: name the test, not only its file"
        assert name in functions(file), each


def test_every_test_of_the_guard_is_behind_a_promise() -> None:
    """The files that any promise names, but for those of whole other subjects."""
    others = {"e2e/test_daemon", "test_config_json", "test_unmatched", "test_cli_words"}
    files = {each.partition("::")[0] for each in tied()} - {f"tests/{name}.py" for name in others}
    assert {f"tests/test_guard_{part}.py" for part in ("matrix", "bounds", "offers", "told")} <= files
    assert {f"{file}::{name}" for file in files for name in functions(file)} == {
        each for each in tied() if each.partition("::")[0] in files
    }, "tie each to a promise in SECURITY.md"


def test_no_file_of_the_guards_tests_is_left_out() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_guard_*.py")}
    others = {"tests/test_guard_readme.py", "tests/e2e/test_guard_connect.py"}
    assert files - others <= {each.partition("::")[0] for each in tied()}
