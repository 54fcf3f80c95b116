"""The command line says how risky a tool is taken to be, why, and what becomes of a call, where that is guarded."""

import json
from pathlib import Path
from typing import Any

import pytest
from guarded_house import upstream, write

from proxy.cli import main

TOOLS: list[dict[str, Any]] = [
    {"name": "get", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "put", "inputSchema": {"type": "object"}},
    {"name": "drop", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}},
    {"name": "list", "inputSchema": {"type": "object"}},
]
PROFILES = {
    "careful": {"policy": {"write": "ask", "destructive": "deny"}},
    "default": {},
    "lists": {"enabled": ["lists"]},
}
ROOT: dict[str, Any] = {
    "toolsets": {"lists": {"tools": ["s/list"]}},
    "profiles": PROFILES,
    "guard": {"risk": {"read": ["s/list"]}},
}


def said(
    words: list[str],
    root: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[str, str]:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path / "upstreams.json", {"s": upstream(tmp_path / "s", {"tools": TOOLS})}, **root)
    assert main([*words, "--config", str(path)]) == 0
    done = capsys.readouterr()
    return done.out, done.err


def test_describe_says_the_risk_what_decided_it_and_what_becomes_of_a_call_by_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = said(["describe", "s__get", "s__put", "s__drop", "s__list"], ROOT, tmp_path, monkeypatch, capsys)
    assert [tool["name"] for tool in json.loads(out)["tools"]] == ["s__get", "s__put", "s__drop", "s__list"]
    by = "a call, by profile: careful {}, default allow, lists {}"
    assert err.splitlines() == [
        "narrow-waist: s__get: risk: write (by guard.default_risk; its annotations say read and are not trusted); "
        + by.format("ask", "not there"),
        f"narrow-waist: s__put: risk: write (by guard.default_risk); {by.format('ask', 'not there')}",
        f"narrow-waist: s__drop: risk: destructive (by its annotations); {by.format('deny', 'not there')}",
        f"narrow-waist: s__list: risk: read (by guard.risk); {by.format('allow', 'allow')}",
    ]


def test_describe_for_a_profile_tells_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = said(["describe", "s__put", "--profile", "careful"], ROOT, tmp_path, monkeypatch, capsys)
    assert err == "narrow-waist: s__put: risk: write (by guard.default_risk); a call: ask\n"


def test_annotations_that_count_are_named_with_why_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = said(["describe", "s__get"], {"guard": {"trust_annotations": True}}, tmp_path, monkeypatch, capsys)
    assert err == "narrow-waist: s__get: risk: read (by its annotations, trusted)\n"


def test_the_list_of_a_server_marks_each_tool_with_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = said(["list", "s", "--profile", "careful"], ROOT, tmp_path, monkeypatch, capsys)
    assert [line.rstrip() for line in out.splitlines()] == [
        "s (3 tools)", "  s__get [write: ask]", "  s__list [read]", "  s__put [write: ask]",
    ]  # fmt: skip


def test_where_nothing_is_guarded_nothing_is_said_of_risk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = said(["describe", "s__put"], {}, tmp_path, monkeypatch, capsys)
    listed, _ = said(["list", "s"], {}, tmp_path, monkeypatch, capsys)
    assert err == "" and "risk" not in out and "[" not in listed
