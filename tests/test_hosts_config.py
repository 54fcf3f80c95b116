"""`hosts:` in the configuration: every cell can be changed, and nothing wrong in it is passed over."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config import load
from proxy.config.hosts_block import CELLS
from proxy.errors import ConfigError
from proxy.hosts import ROWS, HostRow, HostTable


def table(tmp_path: Path, text: str, name: str = "upstreams.yaml") -> HostTable:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load(path, {}).hosts


VALUES: dict[str, Any] = {
    "client_names": ["x"],
    "description": 777,
    "parameter": 0,
    "instructions": 99,
    "first_line": 9,
    "deferred": True,
    "slots": ["search", "parameter"],
    "result": 1,
    "tool_name": "a_{server}_{tool}",
    "tool_name_limit": 20,
    "tools": 3,
    "reserved": ["y"],
    "patience": 0.5,
    "source": "mine",
}


def test_every_cell_of_the_table_can_be_overridden(tmp_path: Path) -> None:
    assert set(VALUES) == set(CELLS) == {f.name for f in fields(HostRow)} - {"name"}
    for row in ROWS:
        found = table(tmp_path, yaml.safe_dump({"servers": {}, "hosts": {"rows": {row.name: VALUES}}})).named(row.name)
        for key, value in VALUES.items():
            assert getattr(found, key) == (tuple(value) if isinstance(value, list) else value)


def test_a_limit_can_be_lifted(tmp_path: Path) -> None:
    found = table(tmp_path, "hosts: {rows: {claude-code: {description: none, instructions: null}}}")
    assert (found.named("claude-code").description, found.named("claude-code").instructions) == (None, None)


def test_a_new_row_can_be_like_another_one_and_take_over_a_client(tmp_path: Path) -> None:
    found = table(tmp_path, "hosts: {rows: {strict: {like: openai-1024, client_names: [codex-mcp-client]}}}")
    row = found.row_for("codex-mcp-client")
    assert (row.name, row.description, row.slots) == ("strict", 1024, ("search", "describe", "call"))


def test_a_client_that_does_not_say_who_it_is_can_be_given_a_host(tmp_path: Path) -> None:
    found = table(tmp_path, "hosts: {unnamed: openai-1024}")
    assert found.row_for(None).name == "openai-1024"
    assert found.row_for("somebody").name == "unknown"


def test_a_client_of_a_new_protocol_or_an_old_one_gets_the_same_row(tmp_path: Path) -> None:
    found = table(tmp_path, "servers: {}")
    assert found.row_for("claude-code").description == 4_096
    assert found.row_for("claude-code", "codex").name == "codex"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts: {row: {}}", "hosts.row: unknown key 'row'; did you mean 'rows'"),
        ("hosts: {rows: {codex: {descripton: 3}}}", "did you mean 'description'"),
        ("hosts: {rows: {codex: {description: 10}}}", "at least 512"),
        ("hosts: {rows: {codex: {description: many}}}", "expected a number"),
        ("hosts: {rows: {codex: {slots: [parameter]}}}", "begins with search"),
        ("hosts: {rows: {codex: {slots: [search, search]}}}", "begins with search"),
        ("hosts: {rows: {codex: {tool_name: '{nonsense}'}}}", "expected a form"),
        ("hosts: {rows: {a: {like: nobody}}}", "expected one of"),
        ("hosts: {rows: {a: 3}}", "expected cells"),
        ("hosts: {rows: 3}", "expected a mapping"),
        ("hosts: 3", "expected `rows:`"),
        ("hosts: {unnamed: curser}", "did you mean 'cursor'"),
    ],
)
def test_what_is_wrong_is_an_error_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        table(tmp_path, text)
    assert "upstreams.yaml:1" in str(raised.value)


def test_in_a_lenient_file_what_is_wrong_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x"}}, "hosts": {"unnamed": "nobody", "x": 1}}', encoding="utf-8")
    settings = load(path, {})
    assert len(settings.warnings) == 2
    assert settings.hosts.row_for(None).name == "unknown"
