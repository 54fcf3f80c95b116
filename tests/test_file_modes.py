"""Files and other users: what they can read is made private, refused or told; what they wrote starts nothing."""

import json
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from guarded_house import upstream, write

from proxy.cli import main
from proxy.config import AuditConfig, load
from proxy.guard.audit import Audit
from proxy.guard.tokens import TokenFile
from proxy.upstream.snapshot import Snapshot

pytestmark = pytest.mark.skipif(os.name != "posix", reason="rights of files are of POSIX systems")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _open_umask() -> Any:
    """The rights must not come from the person's umask."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"command": "x", "env": {"API_KEY": "sk-literal-value"}}, "s: env.API_KEY"),
        ({"url": "http://h", "headers": {"Authorization": "Bearer abcdefghij"}}, "s: headers.Authorization"),
        ({"command": "x", "env": {"API_KEY": "${API_KEY}"}}, None),
        ({"command": "x", "env": {"API_KEY": "${keyring:API}"}}, None),
        ({"command": "x", "env": {"API_KEY_FILE": "/run/secrets/key"}}, None),
        ({"command": "x", "env": {"LOG_LEVEL": "debugging"}}, None),
    ],
)
@pytest.mark.parametrize("name", ["upstreams.yaml", "mcp.json"])
def test_a_configuration_that_holds_secrets_and_that_others_can_read_is_warned_about(
    name: str, server: dict[str, Any], told: str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(json.dumps({"mcpServers": {"s": server}}), encoding="utf-8")
    path.chmod(0o644)
    warnings = [w for w in load(path, {"API_KEY": "value-of-the-variable"}).warnings if "other users" in w]
    if told is None:
        assert not warnings
    else:
        assert told in warnings[0] and f"chmod 600 {path}" in warnings[0] and "sk-literal" not in warnings[0]
    path.chmod(0o600)
    assert not [w for w in load(path, {"API_KEY": "value-of-the-variable"}).warnings if "other users" in w]


@pytest.mark.parametrize("rights", [0o640, 0o604, 0o620])
@pytest.mark.parametrize("command", [["--http", "127.0.0.1:0"], ["connect", "http://127.0.0.1:9/mcp"]])
def test_a_file_with_a_token_that_others_can_reach_is_refused(
    command: list[str], rights: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, token = tmp_path / "upstreams.yaml", tmp_path / "token"
    config.write_text(json.dumps({"servers": {"s": {"command": sys.executable}}}), encoding="utf-8")
    token.write_text("a-token-of-some-length\n", encoding="utf-8")
    token.chmod(rights)
    assert main([*command, "--token-file", str(token), "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert f"chmod 600 {token}" in said and "a-token" not in said


@pytest.mark.parametrize("rights", [0o640, 0o604, 0o660])
def test_an_audit_that_others_can_read_is_mended_and_that_is_told(
    rights: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("", encoding="utf-8")
    file.chmod(rights)
    audit = Audit(AuditConfig(file), [])
    with caplog.at_level(logging.WARNING):
        audit.write({"n": 1})
        audit.write({"n": 2})
    audit.close()
    assert mode(file) == 0o600 and caplog.text.count("could be read by other users") == 1
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2


def test_what_we_make_is_private(tmp_path: Path) -> None:
    audit = Audit(AuditConfig(tmp_path / "state" / "audit.jsonl", max_bytes=100, keep=1), [])
    for number in range(10):
        audit.write({"n": number})
    audit.close()
    TokenFile(tmp_path / "config" / "tokens.json").create("me", ())
    Snapshot(tmp_path / "cache").save_counts({"a": 1})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 4 and {mode(path) for path in files} == {0o600}
    assert {mode(tmp_path / name) for name in ("state", "config", "cache")} == {0o700}


def test_the_file_of_a_folder_does_not_take_the_place_of_a_persons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hosts start us in the folder that they have open: a cloned repository's file would start its programs."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    for name in ("own/narrow-waist", "cloned"):
        (tmp_path / name).mkdir(parents=True)
    mark = tmp_path / "started"
    write(tmp_path / "cloned" / "upstreams.yaml", {"theirs": {"command": "touch", "args": [str(mark)]}})
    write(tmp_path / "own" / "narrow-waist" / "upstreams.yaml", {"mine": upstream(tmp_path / "up", {"tools": []})})
    monkeypatch.chdir(tmp_path / "cloned")
    assert main(["list"]) == 0
    done = capsys.readouterr()
    assert "mine (0 tools)" in done.out and "theirs" not in done.out and not mark.exists()
    assert done.err == (
        f"narrow-waist: using {tmp_path}/own/narrow-waist/upstreams.yaml; "
        "the upstreams.yaml of this folder needs --config upstreams.yaml\n"
    )
