"""The script that checks a directory of catalogs, over the catalogs of the tests."""

import json
import subprocess
import sys
from pathlib import Path

from listing_reader import CATALOGS

SCRIPT = Path(__file__).parent.parent / "scripts" / "check_catalogs.py"


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(directory), *options],
        cwd=SCRIPT.parent.parent,
        env={"PYTHONPATH": str(SCRIPT.parent.parent)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=50,
    )


def test_all_is_well_with_the_catalogs_of_real_servers() -> None:
    done = run(CATALOGS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout


def test_the_script_says_what_it_found_and_fails(tmp_path: Path) -> None:
    tools = [{"name": "a" * 60, "inputSchema": {}}, {"name": "twice"}, {"name": "twice", "description": "other"}]
    (tmp_path / "one.json").write_text(json.dumps({"server": "one", "tools": tools}))
    assert run(tmp_path).returncode == 0
    (tmp_path / "two.json").write_text(json.dumps({"server": "one", "tools": tools}))
    done = run(tmp_path)
    assert done.returncode == 1
    assert "PROBLEM: " in done.stdout
