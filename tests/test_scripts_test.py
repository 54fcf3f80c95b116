"""`scripts/test` builds the foreign environments where the chosen tests can need them, and only there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script with stand-ins for all that it runs, each of which says its name."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "test", scripts)
    stubs = {"scripts/setup": 'echo "$PWD"', "scripts/foreign": "echo foreign", "python": 'echo pytest "$@"'}
    for name, line in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for name in ("tests/e2e", "tests/hostile"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("tests/test_config.py", "tests/e2e/test_calls.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "builds"),
    [
        ([], True),
        (["-q", "-m", "not slow", "-n", "2"], True),
        (["tests"], True),
        (["tests/e2e/test_calls.py::test_one", "-x"], True),
        (["tests/test_config.py", "tests/e2e"], True),
        (["tests/e2e", "tests/test_config.py"], True),
        (["--ignore", "tests/test_config.py"], True),
        (["tests/test_config.py"], False),
        (["-q", "./tests/test_config.py::test_one", "tests/hostile", "-k", "word"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_foreign_environments_are_built_where_they_may_be_needed(
    words: list[str], builds: bool, checkout: Path
) -> None:
    done = subprocess.run([checkout / "scripts/test", *words], capture_output=True, text=True, timeout=30, check=True)
    said = done.stdout.splitlines()
    assert said[-1] == " ".join(["pytest", "-m", "pytest", *words])
    assert ("foreign" in said) == builds


def test_only_the_end_to_end_tests_use_the_foreign_environments() -> None:
    uses = re.compile(r"\bforeign_(?:py|mcp1|fastmcp|node|part)\b|\.cache/foreign")
    files = {path for path in (ROOT / "tests").rglob("*.py") if uses.search(path.read_text(encoding="utf-8"))}
    assert {path.relative_to(ROOT / "tests").parts[0] for path in files - {Path(__file__)}} == {"e2e"}
