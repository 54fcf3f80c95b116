"""`doctor`: what each host will see, before it sees it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from guarded_house import upstream

from proxy.cli import main
from proxy.cli.seen import Text, TokenCounter
from proxy.cli.startup import Startup, measure
from proxy.hosts import ROWS
from proxy.hosts.programs import Surroundings

SERVER = {"command": sys.executable, "args": ["-P", "-m", "proxy.demo.notes"]}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a configuration with the notes server and further keys; returns its path."""
    monkeypatch.setattr("proxy.cli.doctor.measure", lambda *_: Startup(0.1, 0.2))
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write(server: dict[str, Any] | None = None, key: str = "notes", **root: Any) -> str:
        path = tmp_path / "upstreams.yaml"
        root.setdefault("tool_search", {})["tokenizer"] = "estimate"
        text = yaml.safe_dump({"servers": {key: {**SERVER, **(server or {})}}, **root})
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def report(capsys: pytest.CaptureFixture[str], path: str, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *words, "--json", "--config", path])
    return code, json.loads(capsys.readouterr().out)


def test_every_host_of_the_table_is_examined(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, config())
    assert code == 0
    assert [each["host"] for each in found["hosts"]] == [row.name for row in ROWS]
    assert found["startup"]["tools_list_seconds"] == 0.2
    for each in found["hosts"]:
        slots = {slot["slot"] for slot in each["slots"]}
        assert slots == {"tool_search", "tool_search, query", "tool_describe", "tool_call", "instructions"}
        assert all(slot["tokens"] > 0 and slot["bytes"] >= slot["characters"] for slot in each["slots"] if slot["text"])


def test_a_real_start_is_timed(config: Any) -> None:
    found = measure(["--config", config()], "doctor")
    assert found.initialized is not None and found.listed is not None
    assert 0 < found.initialized <= found.listed


def test_a_start_that_fails_is_no_time(tmp_path: Path) -> None:
    assert measure(["--config", str(tmp_path / "none.yaml")], "doctor") == Startup(None, None)


async def test_tokens_are_counted_exactly_and_once() -> None:
    counter = TokenCounter()
    assert (await counter.count(["hello world", "hello world"]))["hello world"] == 2
    assert (await TokenCounter(exact=False).count(["hello world"]))["hello world"] == 2


def test_nothing_is_to_change_for_a_host_that_keeps_everything(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, config(), "opencode")
    assert (code, found["hosts"][0]["advice"]) == (0, [])
    assert found["hosts"][0]["forms"] == {"notes": "full"}


def test_a_text_that_a_host_would_cut_is_told_with_the_setting_that_helps(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"rows": {"tight": {"like": "openai-1024", "description": 512}}}
    code, found = report(capsys, config(hosts=rows), "tight")
    advice = " ".join(found["hosts"][0]["advice"])
    assert code == 1 and "of which tight keeps 512" in advice and "host_row: tight" in advice
    assert [slot["cut"] for slot in found["hosts"][0]["slots"]] == [True, False, False, False, False]
    code, found = report(capsys, config(hosts={**rows, "unnamed": "tight"}), "tight")
    assert (code, found["hosts"][0]["advice"], found["hosts"][0]["row"]) == (0, [], "tight")


def test_the_exact_text_is_shown_up_to_the_place_where_it_is_cut(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(hosts={"rows": {"tight": {"description": 512}}})
    assert main(["doctor", "tight", "--text", "--config", path]) == 1
    printed = capsys.readouterr().out
    kept, cut = printed.split("=== tool_search (")[1].split("--- tight cuts here; it does not show:\n")
    assert "Search the tools of all connected MCP servers." in kept
    assert "list_notes" in cut
    text = Text("x", "ab𝒳d", 1, 3)
    assert text.cut and text.text[: text.kept] == "ab", "half a character is not kept"


def test_names_over_the_hosts_limit_and_reserved_ones_are_told(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = config({"pinned": ["create_note"]}, key="a-server-with-a-really-long-name-for-its-key")
    code, found = report(capsys, path, "cursor", "--name", "narrow-waist")
    assert code == 1
    assert any("1 names are longer than the 60" in advice for advice in found["hosts"][0]["advice"])
    path = config(hosts={"unnamed": "xai"})
    code, found = report(capsys, path, "xai")
    assert any("'tool_search' is reserved there" in advice for advice in found["hosts"][0]["advice"])
    path = config(hosts={"unnamed": "xai"}, tool_search={"names": {"search": "find_tools"}})
    assert report(capsys, path, "xai")[0] == 0


def test_too_many_tools_and_a_host_that_does_not_wait_are_told(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = config({"lazy": False}, hosts={"rows": {"opencode": {"tools": 3, "patience": 0.001}}})
    code, found = report(capsys, path, "opencode")
    advice = " ".join(found["hosts"][0]["advice"])
    assert code == 1 and found["hosts"][0]["tier"] == 0
    assert "4 tools are shown directly, and opencode takes 3" in advice
    assert "opencode waits about 0.001 s" in advice and "--http" in advice


def test_a_server_without_a_list_is_told(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, config({"command": "/nowhere/at/all", "args": []}), "opencode")
    assert code == 1
    assert any("No list of tools is known of notes" in advice for advice in found["hosts"][0]["advice"])


def test_a_client_may_be_named_as_it_calls_itself(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, config(), "codex-mcp-client")[1]["hosts"][0]["host"] == "codex"


def test_a_table_and_what_to_do_are_printed_for_people(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = config()
    assert main(["doctor", "--config", path]) == 0
    assert "claude-code" in capsys.readouterr().out
    main(["doctor", "codex", "--config", path])
    printed = capsys.readouterr().out
    assert "only this is shown:\n  Gateway to other MCP servers (notes)" in printed
    assert "From start to initialize" in printed


def test_what_would_only_be_better_is_advice_and_no_failure(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration without descriptions, as the README begins with, was "to be changed" and ended with an error."""
    silent = upstream(tmp_path / "silent", {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]})
    path = config({**silent, "description": ""})
    for host, says in (
        ("claude-code", "give servers a `description`"),
        ("codex", "has a tool 'tool_search' of its own"),
    ):
        assert main(["doctor", host, "--config", path]) == 0
        done, _, advice = capsys.readouterr().out.partition("\nNothing to change. Advice:\n- ")
        assert "Tier 1" in done and says in advice
    code, found = report(capsys, path, "claude-code")
    [host] = found["hosts"]
    assert (code, host["advice"], len(host["hints"])) == (0, [], 1)


def test_clients_without_a_row_and_rows_that_are_no_clients_are_told_in_plain_words(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config()
    assert main(["doctor", "--config", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()) for line in lines if line}
    assert rows["unknown"].startswith("unknown (any other client) any other client 1 ")
    assert rows["hermes"].startswith("hermes any other client 1 ")
    assert rows["xai"].startswith("xai (an API behind clients) any other client 1 ")
    assert any(line.startswith("any other client: ") and "does not say who it is" in line for line in lines)
    assert main(["doctor", "hermes", "--config", path]) == 0
    assert "hermes: does not say who it is; texts made for any other client\n" in capsys.readouterr().out
    tight = config(hosts={"rows": {"tight": {"description": 512}}})
    assert main(["doctor", "tight", "--config", tight]) == 1
    assert "These texts were made for any other client: set `tool_search" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"), [(["doctor", "curser"], "did you mean 'cursor'"), (["doctor", "--text"], "of one host")]
)
def test_what_cannot_be_examined_is_refused(
    config: Any, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main([*words, "--config", config()]) == 2
    assert message in capsys.readouterr().err


def test_a_host_is_examined_with_the_variables_of_its_own_entry(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`install --move` leaves a server's secrets in the host's file, where no other program has them."""
    monkeypatch.delenv("NOTES_KEY", raising=False)
    monkeypatch.setattr("proxy.cli.doctor.surroundings", lambda: Surroundings(tmp_path, tmp_path / "here", os.environ))
    path = config({"env": {"KEY": "${NOTES_KEY}"}})
    assert main(["doctor", "cursor", "--config", path]) == 1
    assert "No list of tools is known of notes" in capsys.readouterr().out
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    entry = {"command": "/bin/narrow-waist", "args": [], "env": {"NOTES_KEY": "s3cret", "OTHER": "${NOT_HERE_AT_ALL}"}}
    file.write_text(json.dumps({"mcpServers": {"other": {"command": "x"}, "narrow-waist": entry}}))
    assert main(["doctor", "cursor", "--config", path]) == 0
    printed = capsys.readouterr().out
    assert f"our entry in {file} gives us: NOTES_KEY" in printed and "s3cret" not in printed
    assert "cursor knows OTHER, which is not known here" in printed
    file.write_text("{")
    main(["doctor", "cursor", "--config", path])
    assert "gives us" not in capsys.readouterr().out, "a file that cannot be read gives nothing"
