"""The script behind the README's figures on how steady the listing is."""

import shutil
import sys
from pathlib import Path

import measure_stability
import pytest

CATALOGS = Path(__file__).parent / "catalogs"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["measure_stability.py", *arguments])
    return measure_stability.main()


def test_help_is_help_and_a_place_without_servers_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Both ended in a division by zero."""
    for arguments, code in ((["--help"], 0), ([str(tmp_path)], 2)):
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, *arguments)
        assert ended.value.code == code
    told = capsys.readouterr()
    assert "usage:" in told.out and f"{tmp_path}: needs two servers" in told.err


def test_a_folder_of_catalogs_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("time", "memory"):
        shutil.copy(CATALOGS / f"{name}.json", tmp_path)
    assert run(monkeypatch, str(tmp_path)) == 0
    told = capsys.readouterr().out
    assert "2 servers, 11 tools; 2 of them come and go" in told and "openai-1024" in told


def test_the_catalogs_of_the_readmes_figures_are_there() -> None:
    folder, tools = measure_stability.CATALOGS
    assert (len(measure_stability.read(folder)), len(measure_stability.read(tools))) == (34, 16)
