"""What scripts/conformance makes of what the suite reports. (The suite itself is run by the script, not by pytest.)"""

import json
from pathlib import Path
from typing import Any

import conformance_run
import pytest
from conformance_run import Run, table

STAMP = "2026-11-30T04-00-00-000Z"
REASON = {"why": "so", "spec": {"revision": "2026-07-28", "page": "server/tools", "section": "Tools", "line": "MUST"}}


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A column in which one scenario had these checks, and these entries were expected to fail."""
    monkeypatch.setattr(conformance_run, "HERE", tmp_path)

    def make(checks: dict[str, str], expected: list[str], reason: dict[str, Any] = REASON) -> Run:
        results = tmp_path / "results" / f"server-tools-list-{STAMP}"
        results.mkdir(parents=True)
        said = [{"id": check, "status": status, "errorMessage": f"about {check}"} for check, status in checks.items()]
        (results / "checks.json").write_text(json.dumps(said), encoding="utf-8")
        (tmp_path / "expected").mkdir()
        entries = [{"checks": [check], **reason} for check in expected]
        (tmp_path / "expected" / "2026-07-28-proxy.yaml").write_text(json.dumps(entries), encoding="utf-8")
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


@pytest.mark.parametrize(
    "reason", [{}, {"why": "so"}, {"spec": REASON["spec"]}, {"why": "so", "spec": {**REASON["spec"], "line": ""}}]
)
def test_an_entry_without_a_line_of_the_specification_is_a_problem(reported, reason: dict[str, Any]) -> None:
    [problem] = reported({"sorted": "FAILURE"}, ["tools-list:sorted"], reason).problems
    assert "tools-list:sorted needs `why`" in problem


def test_no_more_than_three_checks_may_be_expected_to_fail_in_pass_through(reported) -> None:
    checks = {f"check-{n}": "FAILURE" for n in range(4)}
    [problem] = reported(checks, [f"tools-list:{check}" for check in checks]).problems
    assert "4 checks are expected to fail" in problem


def test_every_entry_that_is_written_down_has_its_reason() -> None:
    columns = [(path.stem[:10], path.stem[11:]) for path in (conformance_run.HERE / "expected").glob("*.yaml")]
    assert len(columns) >= 4
    for era, column in columns:
        run = Run(era, "stdio" if column == "proxy" else column, Path(), None)
        assert list(run.unfounded()) == []
        assert run.written or column == "client"


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
