"""Globs that mean no tool are told: a `deny` that was written as clients show names protected nothing, in silence."""

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from guarded_house import house, upstream, write

from proxy.cli import main
from proxy.cli.startup import Startup
from proxy.config import Settings, load
from proxy.guard.unmatched import GlobWatch, Unmatched, unmatched

NAMES = {"fs": ["create_file", "read_file", "x/y"], "git": ["push", "log"]}


def told(folder: Path, servers: dict[str, Any], names: dict[str, list[str]] = NAMES, **root: Any) -> list[Unmatched]:
    blocks = {key: {"command": "x", **servers.get(key, {})} for key in {**NAMES, **servers}}
    return unmatched(load(write(folder / "u.yaml", blocks, **root), {}), names)


@pytest.mark.parametrize(
    ("glob", "meant"),
    [
        ("fs__create_*", "create_*"), ("fs/create_*", "create_*"), ("fs.create_file", "create_file"),
        ("mcp__fs__create_file", "create_file"), ("fs__x_y_*", "x/y"), ("creat_file", "create_file"),
        ("delete_*", None), ("fs__delete_*", "delete_*"), ("fs/delete_file", "delete_file"),
    ],
)  # fmt: skip
def test_a_deny_that_denies_nothing_is_told_with_the_raw_form_that_was_meant(
    glob: str, meant: str | None, tmp_path: Path
) -> None:
    [one] = told(tmp_path, {"fs": {"deny": [glob, "read_*"]}})
    assert (one.key, one.glob, one.meant, one.protects) == ("fs: deny", glob, meant, True)
    assert str(one).startswith(f"fs: deny: {glob!r} matches no tool")


@pytest.mark.parametrize(
    ("block", "protects"),
    [
        ({"tools": {"include": ["raed_*"]}}, [True]),
        ({"tools": {"include": ["raed_*", "create_*"]}}, [False]),
        ({"tools": {"exclude": ["fs__read_*"]}}, [True]),
        ({"tools": {"exclude": ["delete_*"]}}, [False]),
        ({"pinned": ["raed_file"]}, [False]),
        ({"deny": ["read_file"], "tools": {"exclude": ["read_*"]}}, []),
        ({}, []),
    ],
)
def test_what_would_leave_more_than_was_meant_or_nothing_at_all_fails(
    block: dict[str, Any], protects: list[bool], tmp_path: Path
) -> None:
    assert [each.protects for each in told(tmp_path, {"fs": block})] == protects


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (["fs/creat_*"], [("fs/creat_*", True)]),
        (["fs/fs__create_*"], [("fs/fs__create_*", True)]),
        (["fs/create_*", "*/push", "fs/x/*"], []),
        (["*/purge_*"], [("*/purge_*", False)]),
    ],
)
def test_a_risk_of_no_tool_is_told_and_one_for_any_server_only_as_advice(
    globs: list[str], expected: list[tuple[str, bool]], tmp_path: Path
) -> None:
    found = told(tmp_path, {}, guard={"risk": {"destructive": globs}})
    assert [(each.glob, each.protects) for each in found] == expected
    assert not [each for each in told(tmp_path, {}, guard={"risk": {"read": globs}}) if each.protects]


def test_a_toolset_protects_where_it_is_disabled(tmp_path: Path) -> None:
    toolsets = {"a": {"tools": ["fs/nothing"]}, "b": {"tools": ["git/nothing"]}}
    profiles = {"p": {"enabled": ["b"], "disabled": ["a"]}}
    found = {each.key: each.protects for each in told(tmp_path, {}, toolsets=toolsets, profiles=profiles)}
    assert found == {"toolsets.a.tools": True, "toolsets.b.tools": False}


def test_of_a_server_whose_list_is_not_known_nothing_is_said(tmp_path: Path) -> None:
    guard = {"risk": {"destructive": ["git/nothing", "*/nothing"]}}
    assert told(tmp_path, {"git": {"deny": ["nothing"]}}, {"fs": NAMES["fs"]}, guard=guard) == []
    assert told(tmp_path, {"git": {"deny": ["nothing"], "enabled": False}}, {"fs": NAMES["fs"]}) == []


def test_a_deny_that_several_servers_share_is_meant_for_whichever_has_such_a_tool(tmp_path: Path) -> None:
    assert told(tmp_path, {"fs": {"deny": ["push*"]}, "git": {"deny": ["push*"]}}) == []
    found = told(tmp_path, {"fs": {"deny": ["purge*"]}, "git": {"deny": ["purge*"]}})
    assert [each.protects for each in found] == [False, False]


# On the command line, and in the log.


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("proxy.cli.doctor.measure", lambda *_: Startup(0.1, 0.2))
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("create_file", "read_file")]
    fs = upstream(tmp_path / "fs", {"tools": tools}, deny=["fs__create_*"])
    return write(tmp_path / "u.json", {"fs": fs}, guard={"risk": {"destructive": ["*/purge_*"]}})


LINE = "fs: deny: 'fs__create_*' matches no tool; did you mean 'create_*'?"


def test_check_names_each_glob_and_fails_for_those_that_protect(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config", str(path)]) == 1
    printed = capsys.readouterr().out
    assert LINE in printed
    assert "advice: guard.risk.destructive: '*/purge_*' matches no tool of any server" in printed
    assert main(["check", "--json", "--config", str(path)]) == 1
    assert [each["protects"] for each in json.loads(capsys.readouterr().out)["globs"]] == [True, False]
    root = json.loads(path.read_text(encoding="utf-8"))
    root["servers"]["fs"]["deny"] = ["create_*"]
    path.write_text(json.dumps(root), encoding="utf-8")
    assert main(["check", "--config", str(path)]) == 0, "advice fails nothing"


async def test_serving_warns_of_a_glob_that_protects_nothing(path: Path) -> None:
    heard: list[str] = []
    warned = anyio.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())
            warned.set()

    logger, ear = logging.getLogger("proxy.guard.unmatched"), Ear()
    logger.addHandler(ear)
    try:
        async with house(path):
            with anyio.fail_after(30):
                await warned.wait()
    finally:
        logger.removeHandler(ear)
    assert heard == [LINE]


def test_a_list_that_is_read_again_warns_of_nothing_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = told(tmp_path, {"fs": {"deny": ["nothing"]}, "git": {"pinned": ["nothing"]}})
    watch = GlobWatch(Settings(), dict)
    watch.tell(found)
    watch.tell(found)
    assert [record.getMessage() for record in caplog.records] == ["fs: deny: 'nothing' matches no tool"]
