"""What the command line says where a server is down, or where its words make no sense together."""

import logging
from pathlib import Path

import pytest
from guarded_house import house, listening, write

from proxy.cli import main


@pytest.fixture
def down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration whose only server cannot be started."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    return str(write(tmp_path / "upstreams.json", {"docs": {"command": str(tmp_path / "nowhere")}}))


@pytest.mark.parametrize("words", [["list"], ["search", "page"], ["call", "docs__read"]])
def test_a_command_that_ends_promises_no_next_try(
    words: list[str], down: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "--config", down])
    done = capsys.readouterr()
    assert "command not found" in done.out, "the reason stays"
    assert "next try" not in done.out + done.err


async def test_that_a_daemon_listens_is_no_warning(down: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy")
    async with house(Path(down)) as app, listening(app):
        pass
    assert [r.levelname for r in caplog.records if r.getMessage().startswith("listening on ")] == ["INFO"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--token-file", "x", "list"], "--token-file before a command means nothing"),
        (["--token-file", "x", "connect"], "give it after the command"),
        (["--http", "127.0.0.1:0", "check"], "--http before a command means nothing"),
        (["--http", "list"], "the command is: narrow-waist list"),
        (["list", "--demo", "--config", "x"], "choose one"),
        (["--demo", "--config", "x"], "choose one"),
    ],
)
def test_options_that_cannot_be_meant_together_are_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("narrow-waist: ") and says in line
