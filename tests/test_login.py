"""What is kept of a login, and the `oauth:` block that few servers need."""

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from guarded_house import write
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from proxy.cli import main
from proxy.config import OAuthConfig, ServerConfig, load
from proxy.errors import ConfigError
from proxy.masking import learn, mask
from proxy.upstream.authority import fits
from proxy.upstream.credentials import login_of
from proxy.upstream.kept import Kept, LoginFile

URL = "https://mcp.example.com/mcp"
KEPT = Kept(
    OAuthToken(access_token="access-token-of-mine", refresh_token="refresh-token-of-mine", expires_in=60),
    12.5,
    OAuthClientInformationFull(client_id="c", redirect_uris=None),
    None,
    None,
)


def server(key: str = "hosted", **keys: Any) -> ServerConfig:
    return ServerConfig(key=key, transport="http", **{"url": URL, **keys})


def strict(tmp_path: Path, entry: Any) -> ServerConfig:
    path = write(tmp_path / "upstreams.yaml", {})
    path.write_text(json.dumps({"servers": {"hosted": {"url": URL, **entry}}}), encoding="utf-8")
    [found] = load(path, {"MY_SECRET": "s3cret-of-mine"}).servers
    return found


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_login_is_read_as_it_was_written(state: dict[str, str]) -> None:
    file = LoginFile(server(), state)
    assert file.read() is None and file.stamp() is None
    file.write(KEPT)
    assert LoginFile(server(), state).read() == KEPT and file.stamp() is not None
    assert "of-mine" not in repr(KEPT)
    assert file.remove() and not file.remove() and file.read() is None


@pytest.mark.parametrize("other", [server("another"), server(url=f"{URL}/"), server(url="https://evil.example/mcp")])
def test_a_login_is_of_one_name_and_address(other: ServerConfig, state: dict[str, str]) -> None:
    file, wrong = LoginFile(server(), state), LoginFile(other, state)
    file.write(KEPT)
    assert wrong.read() is None
    file.path.rename(wrong.path)
    with pytest.raises(ConfigError, match="is not a login that was kept for this server"):
        wrong.read()


@pytest.mark.parametrize(
    "change", [{"tokens": {"token": "of-mine"}}, {"client": None}, {"version": 9}, {"identity": 1}]
)
def test_a_file_that_is_no_login_is_refused_and_not_shown(change: dict[str, Any], state: dict[str, str]) -> None:
    file = LoginFile(server(), state)
    file.write(KEPT)
    file.path.write_text(json.dumps({**json.loads(file.path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a login that was kept") as caught:
        file.read()
    assert "of-mine" not in str(caught.value)


async def test_who_waits_is_woken_by_a_login(state: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.upstream.login.LOOK", 0.01)
    login = login_of(server(), state)
    assert login is not None
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(login.awaited, anyio.Event())
            LoginFile(server(), state).write(KEPT)
        wake = anyio.Event()
        wake.set()
        await login.awaited(wake)


@pytest.mark.parametrize(
    "keys",
    [
        {"headers": {"AUTHORIZATION": "Bearer x"}},
        {"url": "https://me:secret@mcp.example.com/mcp"},
        {"url": None, "command": "x", "transport": "stdio"},
    ],
)
def test_a_server_with_another_login_has_none_of_ours(keys: dict[str, Any]) -> None:
    assert login_of(ServerConfig(**{"key": "k", "transport": "http", "url": URL, **keys}), {}) is None


def test_what_was_learned_is_masked_everywhere_and_what_is_long_gone_is_not() -> None:
    for generation in ("first-secret", "second-secret", "third-secret"):
        learn("test", [generation])
    assert mask("first-secret second-secret third-secret", ()) == "first-secret *** ***"
    learn("test", [])
    learn("test", ["other-secret"])
    learn("test", [])


def test_the_block_is_read_with_references(tmp_path: Path) -> None:
    block = {"scopes": ["a", "b c"], "client_id": "me", "client_secret": "${MY_SECRET}", "callback_port": 8765}
    found = strict(tmp_path, {"oauth": block})
    assert found.oauth == OAuthConfig(("a", "b", "c"), "me", "s3cret-of-mine", 8765)
    assert "s3cret-of-mine" in found.secrets and "s3cret" not in repr(found)
    assert strict(tmp_path, {"oauth": None}).oauth == strict(tmp_path, {}).oauth == OAuthConfig()


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (True, "hosted.oauth: expected a mapping"),
        ({"scope": "a"}, "unknown key 'scope'; did you mean 'scopes'"),
        ({"scopes": {"a": 1}}, "expected a list of strings"),
        ({"scopes": ['a"b']}, "expected names of scopes"),
        ({"client_secret": "s"}, "means nothing without `client_id`"),
        ({"callback_port": 70000}, "expected a number of at least 1 and at most 65535"),
        ({"grant": "password"}, "expected one of authorization_code, client_credentials"),
        ({"grant": "client_credentials", "client_id": "c"}, "needs `client_id` and `client_secret`"),
        ({"issuer": "auth.example.com"}, "expected the address of an authorization server"),
    ],
)
def test_what_is_wrong_in_the_block_is_an_error_that_names_it(block: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        strict(tmp_path, {"oauth": block})
    assert says in str(caught.value)


@pytest.mark.parametrize("block", [{"oauth": True}, {"oauth": False}, {"auth": "${NO}"}, {"auth": "oauth"}])
def test_what_other_clients_mean_by_such_a_key_changes_nothing(block: dict[str, Any], tmp_path: Path) -> None:
    [found] = load(write(tmp_path / "mcp.json", {"hosted": {"url": URL, **block}}), {}).servers
    assert found.problem is None and found.oauth == OAuthConfig()


CLAUDE_CODE = {"clientId": "c", "callbackPort": 8080, "scopes": "a b", "authServerMetadataUrl": "https://x.example"}
CURSOR = {"CLIENT_ID": "c", "CLIENT_SECRET": "${MY_SECRET}", "scopes": ["a", "b"]}
GEMINI = {"enabled": True, "clientId": "c", "tokenUrl": "https://x.example", "redirectUri": "http://localhost:1/x"}
OPENCODE = {"clientId": "c", "clientSecret": "${MY_SECRET}", "scope": "a b"}


@pytest.mark.parametrize(
    ("block", "expected", "ignored"),
    [
        ({"oauth": CLAUDE_CODE}, OAuthConfig(("a", "b"), "c", None, 8080), "'authServerMetadataUrl'"),
        ({"auth": CURSOR}, OAuthConfig(("a", "b"), "c", "s3cret-of-mine"), ""),
        ({"oauth": GEMINI}, OAuthConfig((), "c"), "'tokenUrl', 'redirectUri'"),
        ({"oauth": OPENCODE}, OAuthConfig(("a", "b"), "c", "s3cret-of-mine"), ""),
        ({"oauth": {"clientId": "c"}}, OAuthConfig((), "c"), ""),
        ({"oauth": {"tokenUrl": "https://x.example"}}, OAuthConfig(), "means nothing here: 'tokenUrl'"),
        ({"oauth": {"clientId": "c", "callbackPort": "x"}}, OAuthConfig(), "nothing of it is used"),
        ({"oauth": {"clientId": "c", "clientSecret": "${NO}"}}, OAuthConfig(), "nothing of it is used"),
    ],
)
def test_what_maps_of_other_clients_blocks_is_taken_and_the_rest_is_told(
    block: dict[str, Any], expected: OAuthConfig, ignored: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "mcp.json", {"hosted": {"url": URL, **block}})
    path.chmod(0o600)
    settings = load(path, {"MY_SECRET": "s3cret-of-mine"})
    [found] = settings.servers
    assert found.problem is None and found.oauth == expected
    assert ("s3cret-of-mine" in found.secrets) == (expected.client_secret is not None)
    assert len(settings.warnings) == bool(ignored) and ignored in "".join(settings.warnings)


def test_a_secret_that_is_written_out_in_the_block_is_masked_too(tmp_path: Path) -> None:
    found = strict(tmp_path, {"oauth": {"client_id": "me", "client_secret": "written-out-of-mine"}})
    assert "written-out-of-mine" in found.secrets


@pytest.mark.parametrize(
    "change",
    [
        {"client_id": "another"},
        {"client_id": "c", "client_secret": "s", "grant": "client_credentials"},
        {"issuer": "https://auth.example.com"},
    ],
)
def test_a_login_that_was_made_otherwise_than_is_configured_is_none(change: dict[str, Any]) -> None:
    assert fits(KEPT, OAuthConfig()) and fits(KEPT, OAuthConfig(client_id="c"))
    assert not fits(KEPT, OAuthConfig(**change))


@pytest.mark.parametrize("words", [["login", "nowhere"], ["login", "local"], ["logout", "local"], ["login", "own"]])
def test_a_server_without_such_a_login_is_one_clear_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    servers = {"local": {"command": "x"}, "own": {"url": URL, "headers": {"Authorization": "Bearer of-mine"}}}
    assert main([*words, "--config", str(write(tmp_path / "mcp.json", servers))]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"narrow-waist: {words[1]}") and "of-mine" not in line


@pytest.mark.parametrize(
    ("entry", "left"), [(CLAUDE_CODE, True), ({"enabled": True}, False), (True, False)], ids=["client", "on", "bare"]
)
def test_import_says_which_settings_of_a_login_it_leaves_behind(
    entry: Any, left: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({"mcpServers": {"hosted": {"url": URL, "oauth": entry}}}), encoding="utf-8")
    assert main(["import", "cursor", "--from", str(file), "--dry-run"]) == 0
    assert ("not taken over: oauth; if its login needs that, set `oauth`" in capsys.readouterr().out) == left
