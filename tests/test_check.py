"""`check`, and what the other commands say of a lock that withholds tools; `--profile` narrows every command."""

import json
from pathlib import Path
from typing import Any

import pytest
from guarded_house import upstream, write

from proxy.cli import main
from proxy.cli.startup import Startup

SCHEMA = {"type": "object"}
TOOLS = [
    {"name": "get_page", "description": "Read a page", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "put_page", "description": "Write a page", "inputSchema": SCHEMA},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("proxy.cli.doctor.measure", lambda *_: Startup(0.1, 0.2))


def config(folder: Path, **root: Any) -> str:
    servers = {key: upstream(folder / key, {"tools": TOOLS}) for key in ("docs", "secrets")}
    return str(write(folder / "upstreams.json", servers, **root))


def test_check_is_not_content_with_tools_that_the_lock_withholds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, guard={"lock": "strict"}, profiles={"default": {}})
    assert main(["check", "--config", path]) == 1
    assert "4 tools are withheld by the lock; see: narrow-waist lock --diff" in capsys.readouterr().out
    main(["list", "--config", path])
    assert "4 tools are withheld by the lock" in capsys.readouterr().err
    assert main(["lock", "--config", path]) == 0
    assert main(["check", "--config", path]) == 0
    main(["list", "--config", path])
    done = capsys.readouterr()
    assert "withheld" not in done.out + done.err


def test_a_lock_that_only_warns_withholds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "--config", config(tmp_path, guard={"lock": "warn"})]) == 0
    assert json.loads(capsys.readouterr().out)["withheld"] == ""


def test_check_names_the_tools_that_no_client_can_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"type": "object", "properties": {"to whom?": {"type": "string"}}}
    servers = {"odd": {**upstream(tmp_path / "odd", {"tools": [{"name": "t", "inputSchema": bad}]}), "lazy": False}}
    main(["check", "--config", str(write(tmp_path / "upstreams.json", servers))])
    assert "t: not shown to clients: its parameter 'to whom?' has a name" in capsys.readouterr().out


READER = {"toolsets": {"pages": {"servers": ["docs"]}}, "profiles": {"reader": {"enabled": ["pages"]}}}


@pytest.mark.parametrize("command", [["check"], ["tokens"], ["doctor"], ["doctor", "cursor", "--text"]])
def test_a_profile_narrows_every_command(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, guard={"lock": "warn"}, **READER)
    main([*command, "--config", path])
    everything = capsys.readouterr().out
    main([*command, "--profile", "reader", "--config", path])
    narrowed = capsys.readouterr().out
    assert narrowed != everything and "secrets" not in narrowed
    assert main([*command, "--profile", "nobody", "--config", path]) == 2


def test_check_names_the_profiles_that_leave_nothing_of_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles = {"reader": {**READER["profiles"]["reader"], "read_only": True}, "other": {}}
    path = config(tmp_path, **{**READER, "profiles": profiles})
    assert main(["check", "--config", path]) == 0
    printed = capsys.readouterr().out
    assert "profile reader: leaves no tool of docs: all count as write (see guard.risk" in printed
    assert printed.count("leaves no tool") == 1, "of what a profile was never to hold, nothing is said"
    trusting = config(tmp_path, guard={"trust_annotations": True}, **{**READER, "profiles": profiles})
    main(["check", "--config", trusting])
    assert "leaves no tool" not in capsys.readouterr().out


@pytest.mark.parametrize(("tokenizer", "named"), [("o200k", "o200k tokens"), ("estimate", "estimated tokens")])
def test_check_counts_what_tokens_counts(
    tokenizer: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One catalog had two figures, 1,233,164 and 1,030,330 tokens."""
    path = config(tmp_path, tool_search={"tokenizer": tokenizer})
    assert main(["tokens", "--json", "--config", path]) == 0
    direct = {row["server"]: row["eager"] for row in json.loads(capsys.readouterr().out)["servers"]}
    assert main(["check", "--json", "--config", path]) == 0
    assert {row["server"]: row["eager_tokens"] for row in json.loads(capsys.readouterr().out)["servers"]} == direct
    assert main(["check", "--config", path]) == 0
    assert f"{sum(direct.values())} {named} a turn" in capsys.readouterr().out


def table(printed: str) -> dict[str, str]:
    """Server -> the last cell of its row."""
    rows = [line.split() for line in printed.split("\n\n")[0].splitlines()[1:]]
    return {row[0]: row[-1] for row in rows}


def test_where_nothing_can_be_counted_the_causes_are_all_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They came after `All 0 tools sent whole by their servers, without the proxy: 0 tokens a turn`."""
    servers = {key: {"command": str(tmp_path / "nowhere")} for key in ("docs", "secrets")}
    for shown in ("auto", "on", "off"):
        path = write(tmp_path / "u.json", servers, tool_search={"enabled": shown, "tokenizer": "estimate"})
        assert main(["check", "--config", str(path)]) == 1
        printed = capsys.readouterr().out
        assert "tokens a turn" not in printed and "listing of" not in printed and "narrow-waist tokens" not in printed
        assert printed.split("\n\n")[1].startswith("docs: command not found")
        assert table(printed) == {"docs": "-", "secrets": "-"}


def test_what_shows_nothing_is_not_called_eager_and_no_lock_is_no_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`16 new since the lock`, where there was no lock file."""
    path = config(tmp_path, guard={"lock": "strict"})
    assert main(["check", "--config", path]) == 1
    printed = capsys.readouterr().out
    assert table(printed) == {"docs": "-", "secrets": "-"}
    assert "docs: none of its 2 tools is approved, withheld until then: get_page, put_page" in printed
    assert "approve all with: narrow-waist lock" in printed and "since the lock" not in printed
    assert main(["lock", "--config", path]) == 0
    docs = tmp_path / "docs"
    (docs / "offers.json").write_text(json.dumps({"tools": [*TOOLS, {**TOOLS[0], "name": "new"}]}), encoding="utf-8")
    main(["check", "--config", path])
    assert "docs: 1 new since the lock, withheld until approved: new" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no servers are configured; add one below `servers:`, or take over those of other programs with: narrow-"),
        ("servers:\n", "no servers are configured; add one below `servers:`"),
        ("servers: {s: {command: x, enabled: false}}\n", "no server is enabled"),
    ],
)
def test_without_a_server_check_and_list_say_so_and_fail(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "upstreams.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["check", "--config", str(path)]) == 1
    assert says in capsys.readouterr().out
    assert main(["list", "--config", str(path)]) == 1
    done = capsys.readouterr()
    assert done.err == "narrow-waist: there is no server; narrow-waist check says what to do\n" and not done.out


def test_check_of_a_profile_that_leaves_no_server_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, profiles={"nothing": {"enabled": []}})
    assert main(["check", "--profile", "nothing", "--config", path]) == 1
    assert capsys.readouterr().out == "no server is left by the profile\n"
