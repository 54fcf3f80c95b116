"""When servers are started, stopped and tried again, what is known of them meanwhile, and how everything ends."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hostile_proxy import (
    GOOD,
    PATIENCE,
    ROOT,
    alive,
    environment,
    eventually,
    hostile,
    in_process,
    pids_in,
    raw_process,
    write_config,
)

LAZY = {"start": "lazy", "idle_timeout": 0.3}


async def test_what_is_known_from_disk_serves_while_the_server_hangs(tmp_path: Path) -> None:
    """P7, T2: listed, found and described at once; a call is what waits, and no longer than `connect_timeout`."""
    mode = tmp_path / "mode"
    mode.write_text("alpha beta", encoding="utf-8")
    servers = {"kept": hostile("by_file", mode, connect_timeout=1)}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        first = await proxy.tools()
    mode.write_text("hang", encoding="utf-8")
    async with in_process(tmp_path, servers) as proxy:
        assert await proxy.tools() == first
        assert "kept__alpha" in await proxy.finds("alpha")
        assert (await proxy.describe("kept__beta"))["tools"][0]["description"] == "The beta tool."
        assert "not ready within 1 s" in await proxy.refusal("kept__alpha")
        assert await proxy.tools() == first and not proxy.notifications


async def test_the_live_list_replaces_what_the_disk_said_at_once(tmp_path: Path) -> None:
    mode = tmp_path / "mode"
    mode.write_text("alpha beta", encoding="utf-8")
    servers = {"kept": hostile("by_file", mode)}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
    mode.write_text("beta gamma", encoding="utf-8")
    async with in_process(tmp_path, servers) as proxy:
        assert "kept__alpha" in await proxy.finds("alpha")
        assert await proxy.text("kept__beta") == "beta ok"
        assert "no tool" in await proxy.refusal("kept__alpha")
        assert await proxy.text("kept__gamma") == "gamma ok"
        assert "kept__gamma" in await proxy.finds("gamma")
    async with in_process(tmp_path, servers) as proxy:
        assert {t.public_name for t in proxy.app.catalog.tools} == {"kept__beta", "kept__gamma"}


async def test_two_proxies_share_one_folder(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"good": GOOD}) as one, in_process(tmp_path, {"good": GOOD}) as two:
        await one.tried()
        await two.tried()
        assert await one.tools() == await two.tools()
        assert await one.text("good__pid") != await two.text("good__pid")


async def test_a_lazy_server_starts_with_its_first_call_and_stops_when_idle(tmp_path: Path) -> None:
    pids, mode = tmp_path / "pids", tmp_path / "mode"
    mode.write_text("alpha", encoding="utf-8")
    servers = {"lazy": hostile("by_file", mode, pids, **LAZY), "good": GOOD}
    async with in_process(tmp_path, servers) as proxy:  # never seen: started once, for its list
        await proxy.tried("lazy")
        listed = await proxy.tools()
        await eventually(lambda: proxy.connection("lazy").state == "stopped")
        await eventually(lambda: not alive(pids_in(pids)[0]))
    async with in_process(tmp_path, servers) as proxy:
        assert await proxy.tools() == listed
        await proxy.tried("good")
        assert "lazy__alpha" in await proxy.finds("alpha") and len(pids_in(pids)) == 1
        assert proxy.app.status()["servers"]["lazy"]["state"] == "known"
        for started in (2, 3):
            assert await proxy.text("lazy__alpha") == "alpha ok"
            assert len(pids_in(pids)) == started
            await eventually(lambda: proxy.connection("lazy").state == "stopped")
            await eventually(lambda: not any(map(alive, pids_in(pids))))
            assert "lazy__alpha" in await proxy.finds("alpha")
            assert "lazy" not in (await proxy.search("zzz")).get("unavailable", {})
        assert await proxy.tools() == listed and not proxy.notifications


async def test_a_call_in_flight_holds_off_the_idle_stop(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"lazy": hostile("slow_concurrent", **LAZY)}) as proxy:
        assert await proxy.text("lazy__sleep", {"ms": 900}) == "slept 900"


async def test_a_call_wakes_a_server_that_was_given_up(tmp_path: Path) -> None:
    """A missing command is permanent (next try in five minutes), until a call asks."""
    command = tmp_path / "server"
    servers = {"late": {"command": str(command)}, "good": GOOD}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        text = await proxy.refusal("late__echo", {"text": "x"})
        assert "command not found" in text and re.search(r"next try in (300|29\d) s", text)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{GOOD["args"][0]}"\n', encoding="utf-8")
        command.chmod(0o755)
        assert await proxy.text("late__echo", {"text": "there"}) == "there"


async def test_calls_to_a_server_that_crashes_in_each_are_held_back_and_say_so(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"odd": hostile("twisted", "exit0", mode="legacy"), "good": GOOD}) as proxy:
        await proxy.tried()
        for _ in range(5):
            assert "exited with code 0" in await proxy.refusal("odd__hit")
        held = await proxy.refusal("odd__fine")
        assert "calls are held back, next try in" in held and "did not run" in held
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


async def test_last_words_are_told_without_secrets(tmp_path: Path) -> None:
    """E5: what a server writes to stderr before it dies is the best reason there is, and may hold its login."""
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, sys\nsys.exit('cannot log in with ' + os.environ['TOKEN'] + ': expired')\n", encoding="utf-8"
    )
    servers = {"dies": {"command": sys.executable, "args": [str(script)], "env": {"TOKEN": "t0ps3cret-value"}}}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        text = await proxy.refusal("dies__x")
        assert "exited with code 1" in text and "cannot log in with ***: expired" in text
        assert "t0ps3cret" not in text + str(proxy.app.status()) + str(await proxy.search("zzz"))


async def test_a_server_that_dies_while_it_is_asked_for_its_tools_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`check` and the log put the name before the reason: "server 's' is unavailable: server 's': ..."."""
    script = tmp_path / "dies.py"
    script.write_text(
        "import json, sys\n"
        "hello = {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's'}}\n"
        "ident = json.loads(sys.stdin.readline())['id']\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': ident, 'result': hello}), flush=True)\n"
        "sys.stdin.readline(), sys.stdin.readline()\n"
        "sys.exit(3)\n",
        encoding="utf-8",
    )
    servers = {"dies": {"command": sys.executable, "args": [str(script)], "mode": "legacy"}}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        await eventually(lambda: "is unavailable" in caplog.text)
    assert "server 'dies' is unavailable: the server's process exited with code 3 (" in caplog.text


def test_check_tells_the_state_and_the_reason_of_each_server(tmp_path: Path) -> None:
    servers = {
        "good": GOOD,
        "missing": {"command": "no-such-command"},
        "mute": hostile("hang_initialize", connect_timeout=1),
        "dying": hostile("twisted", "start_exit1"),
    }
    command = [sys.executable, "-m", "proxy", "--config", str(write_config(tmp_path, servers)), "check"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=False, cwd=ROOT, env=environment(tmp_path)
    )
    assert done.returncode == 1
    for part in (
        r"good\s+ready", r"missing\s+failed", r"mute\s+failed", "missing: .*command not found",
        "mute: .*not ready within 1 s", "dying: .*API_KEY is not set",
    ):  # fmt: skip
        assert re.search(part, done.stdout), part


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_nothing_is_left_when_the_proxy_is_ended(tmp_path: Path, sig: signal.Signals) -> None:
    """T9, T10: also by SIGKILL, which leaves no time to tidy up."""
    pids = tmp_path / "pids"
    servers = {
        "stubborn": hostile("stubborn_child", pids),
        "good": hostile("good", tmp_path / "good"),
        "mute": hostile("hang_initialize"),
    }
    async with raw_process(tmp_path, servers) as client:
        assert (await client.call("stubborn__alive"))["content"][0]["text"] == "alive"
        assert not (await client.call("good__pid")).get("isError"), "it has written its pid before it answers"
        tree = pids_in(pids) + pids_in(tmp_path / "good")
        assert len(tree) == 3 and all(map(alive, tree))
        client.process.send_signal(sig)
        with anyio.fail_after(PATIENCE):
            await client.process.wait()
        await eventually(lambda: not any(map(alive, tree)), patience=5)
