"""What the command line says where a server is down, or where its words make no sense together."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from guarded_house import house, listening, upstream, write

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
    assert "command not found" in done.out + done.err, "the reason stays"
    assert "next try" not in done.out + done.err


@pytest.mark.parametrize("words", [["list"], ["list", "docs"]])
def test_a_list_of_nothing_is_a_failure_that_says_why(
    words: list[str], down: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--config", down]) == 1
    done = capsys.readouterr()
    [line] = done.err.splitlines()
    assert line.startswith("narrow-waist: docs: command not found") and not done.out


def test_a_list_without_some_servers_is_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    servers = {"docs": {"command": str(tmp_path / "nowhere")}, "up": upstream(tmp_path / "up", {"tools": []})}
    assert main(["list", "--config", str(write(tmp_path / "upstreams.json", servers))]) == 0
    done = capsys.readouterr()
    assert "docs (0 tools)  unavailable: command not found" in done.out and "up (0 tools)\n" in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["docs__read"], 'narrow-waist call docs__read \'{"page": "..."}\''),
        (["docs__read"], "narrow-waist describe docs__read shows all"),
        (["docs__read", "no json"], 'narrow-waist call docs__read \'{"page": "..."}\''),
        (["docs__red"], "Or find it with narrow-waist search."),
    ],
)
def test_a_refused_call_tells_a_person_what_to_type(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It told people to send tool_call({"name": ...})."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    schema = {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]}
    server = upstream(tmp_path / "docs", {"tools": [{"name": "read", "inputSchema": schema}]})
    assert main(["call", *words, "--config", str(write(tmp_path / "upstreams.json", {"docs": server}))]) == 1
    said = capsys.readouterr().out
    assert says in said and "tool_" not in said


@pytest.mark.parametrize(("names", "code"), [(["docs__read"], 0), (["docs__red"], 1), (["docs__read", "nosuch"], 1)])
def test_who_asks_for_a_tool_that_is_not_there_gets_an_exit_code_that_says_so(
    names: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    server = upstream(tmp_path / "docs", {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]})
    assert main(["describe", *names, "--config", str(write(tmp_path / "upstreams.json", {"docs": server}))]) == code
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["tools"] + found.get("not_found", [])] == names


def test_what_a_server_says_of_a_tool_call_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    server = upstream(tmp_path / "docs", {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]})
    text = 'Use tool_call({"name": "x"}), or tool_search.'
    (tmp_path / "docs" / "answers").mkdir()
    answer = {"content": [{"type": "text", "text": text}], "isError": True}
    (tmp_path / "docs" / "answers" / "read.json").write_text(json.dumps(answer), encoding="utf-8")
    assert main(["call", "docs__read", "--config", str(write(tmp_path / "upstreams.json", {"docs": server}))]) == 1
    assert capsys.readouterr().out.strip() == text


def test_a_call_leaves_no_shorter_list_behind_and_still_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some servers list more to clients that can be asked; nobody can be during `narrow-waist call`."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))

    def named(*names: str) -> list[dict[str, Any]]:
        return [{"name": name, "inputSchema": {"type": "object"}} for name in names]

    def listed() -> set[str]:
        capsys.readouterr()
        assert main(["list", "docs", "--config", path]) == 0
        return {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}

    server = upstream(tmp_path / "docs", {"tools": named("plain"), "asking": named("asks")})
    path = str(write(tmp_path / "upstreams.json", {"docs": server}))
    assert listed() == {"docs__plain", "docs__asks"}
    assert main(["call", "docs__plain", "--config", path]) == 0
    assert listed() == {"docs__plain", "docs__asks"}
    upstream(tmp_path / "docs", {"tools": named("plain", "new")})
    assert main(["call", "docs__plain", "--config", path]) == 0
    assert listed() == {"docs__plain", "docs__new"}


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
        (["--token-file", "x"], "--token-file means nothing without --http"),
        (["lock", "--profile", "reader"], "--profile means nothing for lock"),
        (["--profile", "reader", "audit"], "--profile means nothing for audit"),
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


def test_a_bare_name_beside_a_broken_server_is_answered_with_the_full_name_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "Try again later" cannot help where the server that the name seems to hold never starts."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    up = upstream(tmp_path / "up", {"tools": [{"name": "get-sum", "inputSchema": {"type": "object"}}]})
    servers = {"sum": {"command": str(tmp_path / "nowhere")}, "up": up}
    path = str(write(tmp_path / "upstreams.json", servers))
    assert main(["call", "get-sum", "--config", path]) == 1
    said = capsys.readouterr().out
    assert "use the full name: up__get-sum." in said and "later" not in said
    assert main(["call", "sum__get", "--config", path]) == 1
    assert "its tools are not known yet: command not found" in capsys.readouterr().out


def test_a_server_that_repeats_its_arguments_tells_no_secret_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse does: `check` and `list -v` printed the key."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    script = "import sys; sys.exit(f'error: unrecognized arguments: {sys.argv[1:]} {chr(32).join(sys.argv[1:])}')"
    key, password = "sk-abcdefghij0123456789", "correcthorsebattery"
    args = ["-I", "-S", "-c", script, f"--api-key={key}", "--password", password]
    path = write(tmp_path / "u.yaml", {"s": {"command": sys.executable, "args": args, "mode": "legacy"}})
    for words in (["check"], ["check", "--json"], ["list"], ["list", "-v"], ["call", "-v", "s__x"]):
        assert main([*words, "--config", str(path)]) == 1
        done = capsys.readouterr()
        said = done.out + done.err
        assert "unrecognized arguments" in said and "--api-key=***" in said, words
        assert key not in said and password not in said, words
