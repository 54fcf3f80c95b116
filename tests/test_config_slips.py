"""Several things that are wrong in one file are told together, a line each, and none of what was read is used."""

from pathlib import Path

import pytest

from proxy.cli import main
from proxy.config import load
from proxy.errors import ConfigError

MANY = """\
servers:
  a: {comand: x, timeout: soon}
  b: {command: x, tools: {inclde: [y]}}
toolsets:
  t: {servers: [a, nobody]}
profiles:
  p: {enabled: [t, u], polcy: {}}
guard: {lock: maybe}
hosts: {rws: {}}
tool_search: {enabld: on}
storage: {}
"""
LINES = [
    "11: storage: 'storage' is not supported yet",
    "2: servers.a.comand: unknown key 'comand'; did you mean 'command'?",
    "2: servers.a.timeout: expected a number more than 0",
    "3: servers.b.tools.inclde: unknown key 'inclde'; did you mean 'include'?",
    "9: hosts.rws: unknown key 'rws'; did you mean 'rows'?",
    "10: tool_search.enabld: unknown key 'enabld'; did you mean 'enabled'?",
    "5: toolsets.t.servers: no server 'nobody'",
    "7: profiles.p.polcy: unknown key 'polcy'; did you mean 'policy'?",
    "7: profiles.p.enabled: no toolset 'u'",
    "8: guard.lock: expected one of off, warn, strict, on",
]


def slips(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return str(caught.value).splitlines()


def test_what_is_wrong_in_every_block_is_told_together_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "upstreams.yaml"
    said = slips(path, MANY)
    assert len(said) == len(LINES)
    for line, expected in zip(said, LINES, strict=True):
        assert line.startswith(f"{path}:{expected}"), "a server that is wrong is still there for what names it"


def test_of_many_the_first_ten_are_told(tmp_path: Path) -> None:
    keys = "".join(f"  s{number}: {{command: x, lazy: maybe}}\n" for number in range(13))
    said = slips(tmp_path / "upstreams.yaml", f"servers:\n{keys}")
    assert len(said) == 11 and "s9.lazy" in said[9] and said[10] == "and 3 more"


@pytest.mark.parametrize(
    "block", ["comand: x", "{}", "command: {x: 1}", "url: {x: 1}", "just text", "{command: x, url: 'http://x'}"]
)
def test_one_slip_is_one_line(block: str, tmp_path: Path) -> None:
    assert len(slips(tmp_path / "upstreams.yaml", f"servers:\n  s:\n    {block}\n")) == 1


def test_slips_of_what_protects_are_told_together_in_json_too(tmp_path: Path) -> None:
    text = '{"mcpServers": {"s": {"command": "x"}}, "guards": {}, "guard": {"lock": 7}, "profiles": {"p": 1}}'
    said = slips(tmp_path / "mcp.json", text)
    assert [line.split(": ")[1] for line in said] == ["guards", "profiles.p", "guard.lock"]


def test_the_command_line_prints_them_and_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "upstreams.yaml"
    path.write_text(MANY, encoding="utf-8")
    assert main(["list", "--config", str(path)]) == 2
    done = capsys.readouterr()
    assert done.err.startswith(f"narrow-waist: {path}:11: storage") and done.err.count("\n") == len(LINES)
