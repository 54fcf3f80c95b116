"""The parts of the guard by themselves: risk, the lock's file, the audit's, kept results, the keyring, tokens."""

import errno
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from proxy.catalog import make_server
from proxy.config import AuditConfig, GuardConfig, ServerConfig, load
from proxy.errors import ConfigError
from proxy.guard import policy
from proxy.guard.audit import Audit, read_entries
from proxy.guard.lock import Lock, read_lock, write_lock
from proxy.guard.policy import Policy
from proxy.guard.spill import KEPT_FOR, KEPT_SIZE, Spill
from proxy.guard.tokens import TokenFile
from proxy.tool import Tool


def tool(name: str = "t", locked: bool = False, **notes: bool) -> Tool:
    return Tool("s", name, {"name": name, "annotations": notes}, f"s__{name}", locked=locked)


def test_a_server_may_raise_the_risk_of_its_tool_and_not_lower_it() -> None:
    policy = Policy(GuardConfig())
    assert policy.risk(tool()) == "write"
    assert policy.risk(tool(destructiveHint=True)) == "destructive"
    assert policy.risk(tool(readOnlyHint=True)) == "write"
    assert policy.risk(tool(readOnlyHint=True, destructiveHint=True)) == "destructive"


def test_trust_the_lock_and_the_person_lower_it() -> None:
    reads = {"readOnlyHint": True}
    assert Policy(GuardConfig(trust_annotations=True)).risk(tool(**reads)) == "read"
    assert Policy(GuardConfig(trust_annotations=("s*",))).risk(tool(**reads)) == "read"
    assert Policy(GuardConfig(trust_annotations=("other",))).risk(tool(**reads)) == "write"
    assert Policy(GuardConfig()).risk(tool(locked=True, **reads)) == "read"
    said = Policy(GuardConfig(risk={"read": ("s/t",)}))
    assert said.risk(tool(destructiveHint=True)) == "read", "what the person wrote decides alone"


def test_a_lock_is_read_as_it_was_written_and_a_broken_one_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "upstreams.lock"
    assert not read_lock(path).exists
    server = make_server(ServerConfig("s", "stdio"), [{"name": "a", "description": "x"}, {"name": "b"}])
    write_lock(path, Lock().approved("s", server.tools, "about"))
    lock = read_lock(path)
    assert lock.exists and not lock.difference("s", server.tools, "about")
    changed = make_server(ServerConfig("s", "stdio"), [{"name": "a", "description": "y"}, {"name": "c"}])
    difference = lock.difference("s", changed.tools, "other")
    assert (difference.changed, difference.new, difference.gone, difference.about) == (("a",), ("c",), ("b",), True)
    for broken in ("", "[]", "{", '{"version": 2}'):
        path.write_text(broken)
        with pytest.raises(ConfigError, match="lock"):
            read_lock(path)


def test_the_audit_rotates_keeps_so_many_files_and_masks_secrets(tmp_path: Path) -> None:
    config = AuditConfig(tmp_path / "private" / "audit.jsonl", max_bytes=2_000, keep=2)
    audit = Audit(config, ["s3cret-of-length", 'quo"ted\\secret'])
    for number in range(200):
        audit.write({"n": number})
    audit.write({"arguments": {"a": "s3cret-of-length", "b": ['x quo"ted\\secret y'], "s3cret-of-length": 1}})
    files = sorted(p.name for p in config.file.parent.iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert config.file.stat().st_mode & 0o077 == 0
    entries = list(read_entries(config))
    assert [e["n"] for e in entries[:-1]] == list(range(200))[-(len(entries) - 1) :]
    assert entries[-1]["arguments"] == {"a": "***", "b": ["x *** y"], "***": 1}
    audit.close()


@pytest.mark.parametrize("levels", [500, 100_000])
def test_a_call_is_written_down_however_deep_its_arguments_are(tmp_path: Path, levels: int) -> None:
    """Masking goes down into what has a secret in it: the call had run, and left no line."""
    config = AuditConfig(tmp_path / "audit.jsonl", arguments=True)
    deep: list[Any] = ["s3cret-of-length"]
    for _ in range(levels):
        deep = [deep]
    audit = Audit(config, ["s3cret-of-length"])
    audit.write({"tool": "t", "arguments": deep})
    audit.close()
    assert [(e["tool"], e["arguments"]) for e in read_entries(config)] == [("t", "nested too deeply")]
    while isinstance(deep, list) and deep:  # freeing it at once would need as much stack
        deep = deep.pop()


def test_what_is_known_of_tools_does_not_grow_with_the_names_that_a_server_thinks_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "MOST", 3)
    asked: list[str] = []

    def work_out(tool: Tool) -> str:
        asked.append(tool.name)
        return tool.name

    known = policy.PerTool(work_out)
    tools = make_server(ServerConfig("s", "stdio"), [{"name": f"t{n}"} for n in range(9)]).tools
    assert [known(tool) for tool in tools] == [tool.name for tool in tools] == asked
    assert known(tools[-1]) == asked[-1] and len(asked) == len(tools)
    known(tools[0])
    assert len(asked) == len(tools) + 1


def test_an_audit_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    audit = Audit(AuditConfig(tmp_path / "file" / "audit.jsonl"), [])
    audit.write({"n": 1})
    audit.write({"n": 2})
    assert len([r for r in caplog.records if "audit" in r.getMessage()]) == 1


def test_a_disk_that_takes_half_of_the_lines_is_told_and_spoils_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 100 lines 38 were gone and the next was glued to half a line, with no word of it."""
    room = [1_000]
    plain = os.write

    def write(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = plain(fd, data[: room[0]])
        room[0] -= taken
        return taken

    config = AuditConfig(tmp_path / "audit.jsonl")
    audit = Audit(config, [])
    monkeypatch.setattr(os, "write", write)
    audit.write(*({"n": n} for n in range(100)))
    assert len([r for r in caplog.records if "No space left" in r.getMessage()]) == 1
    room[0] = 10_000
    audit.write({"n": 100}, {"n": 101})
    numbers = [entry["n"] for entry in read_entries(config)]
    assert numbers[-2:] == [100, 101] and numbers[:-2] == list(range(len(numbers) - 2)) and len(numbers) > 10
    audit.close()


def test_a_line_has_the_time_of_its_own(tmp_path: Path) -> None:
    config = AuditConfig(tmp_path / "audit.jsonl")
    audit = Audit(config, [])
    audit.write({"time": 1_000_000_000.25, "n": 1}, {"time": 1_000_000_001.5, "n": 2}, {"time": 1_000_000_000.75})
    seen = [next(iter(entry.items())) for entry in read_entries(config)]
    assert [value[17:] for _, value in seen] == ["40.250+00:00", "41.500+00:00", "40.750+00:00"]
    assert {key for key, _ in seen} == {"time"}, "it comes first"
    audit.close()


def long_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def ident_of(result: dict[str, Any]) -> str:
    return json.loads(result["content"][0]["text"].split("call(")[1].split(");")[0])["arguments"]["id"]


def test_a_kept_result_is_its_callers_alone_and_for_a_time() -> None:
    now = [0.0]
    spill = Spill({"s": 100}, "call", lambda: now[0])
    ident = ident_of(spill.bounded(tool(), long_result("x" * 1_000), "me"))
    assert not spill.read({"id": ident}, "me").get("isError")
    assert spill.read({"id": ident}, "you") == spill.read({"id": "none"}, "me"), "as what does not exist"
    now[0] = KEPT_FOR + 1
    assert spill.read({"id": ident}, "me")["isError"]


def test_kept_results_have_a_size_together() -> None:
    spill = Spill({"s": 100}, "call")
    text = "x" * (KEPT_SIZE // 2)
    first, second, third = (ident_of(spill.bounded(tool(), long_result(text + "y"), "me")) for _ in range(3))
    assert spill.read({"id": first}, "me")["isError"] and spill.read({"id": second}, "me")["isError"]
    assert not spill.read({"id": third}, "me").get("isError")


def test_the_keyring_is_read_where_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = types.ModuleType("keyring")
    ring.get_password = lambda service, name: {"narrow-waist/TOKEN": "from-the-keyring"}.get(f"{service}/{name}")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", ring)
    file = tmp_path / "upstreams.yaml"
    file.write_text(
        "servers:\n  a: {command: x, env: {T: '${keyring:TOKEN}'}}\n  b: {command: x, env: {T: '${keyring:NO}'}}\n"
    )
    a, b = load(file, {}).servers
    assert a.env["T"] == "from-the-keyring" and "from-the-keyring" in a.secrets
    assert b.problem is not None and "keyring set narrow-waist NO" in b.problem
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "narrow-waist[keyring]" in (load(file, {}).servers[0].problem or "")


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create("me", ())
    assert (found := TokenFile(tokens.path).find(token.encode())) is not None and found.name == "me"
    with pytest.raises(ConfigError, match="already"):
        tokens.create("me", ())
    tokens.path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        TokenFile(tokens.path).look()


def test_a_file_of_tokens_that_is_emptied_or_goes_lets_nobody_in(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create("me", ()).encode()
    held = TokenFile(tokens.path)
    assert held.find(token)
    tokens.path.unlink()
    assert held.find(token) is None and held.exists
