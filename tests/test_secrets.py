"""Secrets are in nothing that we print or keep: however they are spelled, also when something crashes."""

import argparse
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from guarded_house import OLD, house, stdio, upstream, write
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import connect, main, parser
from proxy.cli.logs import set_up_logging
from proxy.config import ServerConfig, Settings, load
from proxy.errors import UpstreamFailure
from proxy.masking import mask, secret_parts

SECRET = 'pa"ss w/ö+rd&1\\x'
SPELLED = (
    SECRET, quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), quote(SECRET, safe="").lower(),
    urlencode({"key": SECRET}).removeprefix("key="), json.dumps(SECRET)[1:-1],
    json.dumps(SECRET, ensure_ascii=False)[1:-1], repr(SECRET)[1:-1],
)  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("spelled", SPELLED)
def test_a_secret_is_masked_in_every_spelling(spelled: str) -> None:
    parts = secret_parts([f"Bearer {SECRET}", SECRET])
    assert mask(f"GET /?key={spelled}&x=1", parts) == "GET /?key=***&x=1"


@given(st.text(min_size=8, max_size=20).filter(lambda text: len(text.strip()) >= 8 and text.isprintable()))
def test_any_secret_is_masked_in_an_address_and_in_json(secret: str) -> None:
    secret = secret.strip()
    parts = secret_parts([secret])
    for text in (
        quote(secret),
        quote_plus(secret),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    ):
        assert mask(f"<{text}>", parts) == "<***>"


async def test_what_a_server_says_before_it_dies_is_masked_in_every_spelling(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = f"import sys; sys.stderr.write({'  '.join(SPELLED)!r} + chr(10)); sys.exit(1)"
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", "-c", script],
        "env": {"API_KEY": SECRET},
        "mode": "legacy",
    }
    path = write(tmp_path / "upstreams.yaml", {"s": {**server, "mode": "legacy"}})
    with caplog.at_level(logging.DEBUG, "proxy"):
        async with house(path) as app:
            await app.fleet.connections["s"].wait_tried()
            lines = list(app.fleet.connections["s"].last_words.lines)
            said = json.dumps([app.status(), app.fleet.unavailable(), lines])
    assert "***" in said
    for spelled in SPELLED:
        assert spelled not in said and json.dumps(spelled)[1:-1] not in said and spelled not in caplog.text


async def test_the_audit_masks_every_spelling_in_arguments(tmp_path: Path) -> None:
    tool = {"name": "look", "inputSchema": {"type": "object"}}
    server = upstream(tmp_path / "s", {"tools": [tool]}, env={"API_KEY": SECRET})
    guard = {"audit": {"file": "audit.jsonl", "arguments": True}}
    path = write(tmp_path / "upstreams.yaml", {"s": server}, guard=guard)
    async with house(path, clients=1) as app, stdio(app, OLD) as client:
        await client.hello()
        await client.request("tools/list")
        await client.through("s__look", {"all": list(SPELLED), SECRET: 1})
    kept = json.loads((tmp_path / "audit.jsonl").read_text(encoding="utf-8"))
    assert kept["arguments"] == {"all": ["***"] * len(SPELLED), "***": 1}


# Crashes.

CONFIG = Settings(servers=(ServerConfig("s", "stdio", secrets=secret_parts([SECRET])),))


def test_a_traceback_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(logging.INFO, CONFIG, verbose=True, own=["own-token-of-ours"])
    try:
        raise ValueError(f"{SECRET} own-token-of-ours") from KeyError(quote(SECRET))
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
        logging.getLogger("proxy").exception("it failed with %s", SECRET)
        problem = threading.ExceptHookArgs((ValueError, error, error.__traceback__, None))
        threading.excepthook(problem)
    said = capsys.readouterr().err
    assert said.count("ValueError") >= 3 and "KeyError" in said and "Traceback" in said
    assert "own-token-of-ours" not in said and not any(spelled in said for spelled in SPELLED)


def test_a_process_that_crashes_tells_no_secret(tmp_path: Path) -> None:
    path = write(tmp_path / "u.yaml", {"s": {"command": "x", "env": {"API_KEY": SECRET}}})
    script = f"""
import logging, threading
from pathlib import Path
from proxy.cli.logs import set_up_logging
from proxy.config import load
config = load(Path({str(path)!r}), {{}})
set_up_logging(logging.INFO, config, verbose=False)
def fail(): raise RuntimeError("thread " + config.servers[0].env["API_KEY"])
thread = threading.Thread(target=fail); thread.start(); thread.join()
class Late:
    def __del__(self): fail()
Late()
fail()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("RuntimeError: thread ***") == 3
    assert not any(spelled in done.stderr for spelled in SPELLED)


def test_an_error_that_ends_a_command_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: argparse.Namespace) -> int:
        set_up_logging(logging.INFO, CONFIG, verbose=False)
        raise UpstreamFailure("s", f"no host {quote(SECRET)}", may_have_run=False)

    monkeypatch.setattr("proxy.cli.check.run", run)
    assert main(["check"]) == 1
    assert capsys.readouterr().err == "narrow-waist: server 's': no host ***\n"


# Command lines.


def test_no_option_takes_a_token_only_files_that_hold_one() -> None:
    def options(part: argparse.ArgumentParser) -> list[str]:
        found = [word for action in part._actions for word in action.option_strings]
        for action in part._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [word for each in action.choices.values() for word in options(each)]
        return found

    named = {word for word in options(parser()) if any(w in word for w in ("token", "secret", "password", "key"))}
    assert named == {"--token-file"}


def test_a_daemon_that_connect_starts_has_the_token_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(words: list[str], **_: object) -> argparse.Namespace:
        started.append(words)
        return argparse.Namespace(pid=4711)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setenv("NARROW_WAIST_TOKEN", "a-token-of-some-length")
    options = argparse.Namespace(config=__file__, connect_token="token-file", demo=False)
    connect._start("http://127.0.0.1:9/mcp", options)
    assert "a-token-of-some-length" not in " ".join(started[0]) and "--token-file" in started[0]


def test_a_secret_from_the_keyring_is_masked_like_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.config.environment.from_keyring", lambda name: (SECRET, ""))
    path = write(tmp_path / "u.yaml", {"s": {"command": "x", "args": ["--key=${keyring:NAME}"]}})
    [server] = load(path, {}).servers
    assert server.args == (f"--key={SECRET}",)
    assert mask(f"curl {quote(SECRET)}", server.secrets) == "curl ***"


def test_a_settings_text_shows_none() -> None:
    server: Any = ServerConfig("s", "http", url=f"http://h/{SECRET}", headers={"A": SECRET}, secrets=(SECRET,))
    assert SECRET not in repr(Settings(servers=(server,)))
