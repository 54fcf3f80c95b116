"""`narrow-waist service`: what is said of serving is in the unit, or refused."""

import plistlib
from pathlib import Path

import pytest

from proxy.cli import main


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("--config {} --profile reader service print", ["--config", "{}", "--profile", "reader"]),
        ("service print --config {} --profile reader --profile all -v",
         ["--config", "{}", "--profile", "reader", "--profile", "all", "--verbose"]),
        ("service print --demo", ["--demo"]),
    ],
)  # fmt: skip
def test_the_daemon_of_the_unit_serves_what_was_asked_for(
    line: str, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile was dropped without a word."""
    config = readers(tmp_path)
    assert main([*line.format(config).split(), "--kind", "launchd"]) == 0
    started = plistlib.loads(capsys.readouterr().out.encode())["ProgramArguments"]
    assert started[started.index("--http") + 2 :] == [word.format(config) for word in given]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("service print --profile raeder", "no profile 'raeder' in the configuration; there are: reader, all"),
        ("service uninstall --profile reader", "--profile means nothing for service uninstall"),
        ("--http 127.0.0.1:1 service print", "give it as --address"),
    ],
)
def test_what_no_unit_can_have_is_refused_in_one_line(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NARROW_WAIST_CONFIG", str(readers(tmp_path)))
    assert main(line.split()) == 2
    done = capsys.readouterr()
    assert says in done.err and done.err.count("\n") == 1 and not done.out


def readers(folder: Path) -> Path:
    path = folder / "upstreams.yaml"
    path.write_text("servers: {s: {command: x}}\nprofiles: {reader: {read_only: true}, all: {}}\n", encoding="utf-8")
    return path
