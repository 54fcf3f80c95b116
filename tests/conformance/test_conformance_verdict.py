"""What scripts/conformance makes of what the suite reports. (The suite itself is run by the script, not by pytest.)"""

import json
from pathlib import Path

import conformance_run
import pytest
from conformance_run import Run, table

STAMP = "2026-11-30T04-00-00-000Z"


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A column in which one scenario had these checks, and these entries were expected to fail."""
    monkeypatch.setattr(conformance_run, "HERE", tmp_path)

    def make(checks: dict[str, str], expected: list[str]) -> Run:
        results = tmp_path / "results" / f"server-tools-list-{STAMP}"
        results.mkdir(parents=True)
        said = [{"id": check, "status": status, "errorMessage": f"about {check}"} for check, status in checks.items()]
        (results / "checks.json").write_text(json.dumps(said), encoding="utf-8")
        (tmp_path / "expected").mkdir()
        (tmp_path / "expected" / "2026-07-28-proxy.yaml").write_text(json.dumps({"server": expected}), encoding="utf-8")
        run = Run("2026-07-28", "stdio", tmp_path / "results", None)
        run.judge()
        return run

    return make


def test_a_column_without_failures_has_no_problem(reported) -> None:
    run = reported({"listed": "SUCCESS", "note": "INFO"}, [])
    assert run.problems == []
    assert "tools-list  ok 1" in table("2026-07-28", [run])


def test_a_failure_that_is_not_written_down_is_a_problem(reported) -> None:
    run = reported({"listed": "SUCCESS", "sorted": "FAILURE"}, [])
    assert run.problems == ["FAILED, and not expected to: tools-list:sorted"]
    assert "FAILED tools-list:sorted: about sorted [stdio]" in table("2026-07-28", [run])


def test_a_failure_that_is_written_down_is_none_and_is_shown_as_known(reported) -> None:
    run = reported({"listed": "SUCCESS", "sorted": "FAILURE"}, ["tools-list:sorted"])
    assert run.problems == []
    assert "tools-list  known 1" in table("2026-07-28", [run])


def test_an_entry_that_no_longer_fails_is_a_problem(reported) -> None:
    run = reported({"sorted": "SUCCESS"}, ["tools-list:sorted"])
    assert run.problems == ["expected to fail, but passes (take it out of 2026-07-28-proxy.yaml): tools-list:sorted"]


def test_an_entry_of_a_scenario_that_was_not_run_is_left_alone(reported) -> None:
    assert reported({"listed": "SUCCESS"}, ["ping:ping"]).problems == []


def test_a_warning_is_shown_and_is_no_problem(reported) -> None:
    run = reported({"listed": "SUCCESS", "order": "WARNING"}, [])
    assert run.problems == []
    assert "tools-list  ok 1 (1 w)" in table("2026-07-28", [run])


def test_a_column_in_which_nothing_ran_is_a_problem(tmp_path: Path) -> None:
    run = Run("2026-07-28", "direct", tmp_path, None)
    run.judge()
    assert run.problems == ["no scenario was run"]
