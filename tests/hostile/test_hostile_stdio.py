"""Servers that misuse their pipes, hang, crash or do not end: each stands for the reports its docstring names."""

import hashlib
import json
import logging
import time
from pathlib import Path

import pytest
from hostile_proxy import GOOD, alive, eventually, hostile, in_process, pids_in, process

CONNECTED = 30.0
"""connect_timeout of servers that must have none of it: what a test would wait for if a failure were not seen."""


async def test_noise_on_stdout_is_skipped_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """X1."""
    caplog.set_level(logging.WARNING)
    async with in_process(tmp_path, {"junk": hostile("junk_stdout"), "good": GOOD}) as proxy:
        await proxy.tried()
        assert [await proxy.text("junk__noisy") for _ in range(3)] == ["ok 1", "ok 2", "ok 3"]
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
    told = [r.getMessage() for r in caplog.records if "not MCP" in r.getMessage()]
    assert len(told) == 1 and "'junk'" in told[0] and len(told[0]) < 300


async def test_a_server_that_never_gets_ready_is_told_with_what_it_wrote_to_stdout_and_stderr(tmp_path: Path) -> None:
    """X1, T3: a program that is none, or greets on stdout, was only "not ready within 1 s"; secrets are masked."""
    said = "echo usage: hello $TOKEN; echo no such option >&2; exec sleep 60"
    banner = {"command": "sh", "args": ["-c", said], "env": {"TOKEN": "sk-FAKE-SECRET-123"}}
    async with in_process(tmp_path, {"banner": {**banner, "connect_timeout": 1, "mode": "legacy"}}) as proxy:
        await proxy.tried()
        reason = proxy.connection("banner").reason
        assert "not ready within 1 s (connect_timeout); it wrote to stdout what is not MCP: 'usage: hello ***" in reason
        assert "no such option" in reason and "sk-FAKE" not in reason


async def test_a_command_that_may_still_be_downloading_is_told_how_to_get_the_time_for_it(tmp_path: Path) -> None:
    """A first start with `npx` that is ended before its download is done starts over the next time, for ever."""
    npx = tmp_path / "npx"
    npx.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    npx.chmod(0o755)
    server = {"command": str(npx), "args": ["-y", "a-server"], "connect_timeout": 1, "mode": "legacy"}
    async with in_process(tmp_path, {"first": server}) as proxy:
        await proxy.tried()
        reason = proxy.connection("first").reason
    assert reason.startswith(
        "not ready within 1 s (connect_timeout); if npx was still downloading, run it once by hand"
    )


async def test_noise_on_stdout_never_reaches_the_proxys_own(tmp_path: Path) -> None:
    """X1: the SDK's client would fail on a line that is not JSON-RPC."""
    async with process(tmp_path, {"junk": hostile("junk_stdout")}) as proxy:
        assert await proxy.text("junk__noisy") == "ok 1"
        assert await proxy.text("junk__noisy") == "ok 2"


async def test_long_lines_arrive_whole(tmp_path: Path) -> None:
    """X2."""
    async with in_process(tmp_path, {"lines": hostile("long_line"), "good": GOOD}) as proxy:
        await proxy.tried()
        for size in (200_000, 5_000_000):
            body = await proxy.text("lines__big", {"bytes": size})
            assert len(body) == size
            assert hashlib.sha256(body.encode()).hexdigest() == await proxy.text("lines__sha", {"bytes": size})
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
        match = next(m for m in (await proxy.search("bytes of text"))["matches"] if m["name"] == "lines__big")
        assert len(match["description"]) <= 200
        assert len(await proxy.tools()) < 50_000


async def test_bytes_that_are_not_utf8_cost_no_call(tmp_path: Path) -> None:
    """X3."""
    async with in_process(tmp_path, {"latin": hostile("invalid_utf8"), "good": GOOD}) as proxy:
        await proxy.tried()
        assert await proxy.text("latin__bad_text") == "caf\ufffd \ufffd"
        assert await proxy.text("latin__good") == "good"
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


async def test_a_flood_of_stderr_blocks_nobody_and_is_kept_short_and_masked(tmp_path: Path) -> None:
    """X4, E5: the secret of one server is in no line that is kept of it."""
    flood = hostile("stderr_flood", env={"TOKEN": "sk-FAKE-SECRET-123"})
    async with in_process(tmp_path, {"flood": flood, "good": GOOD}) as proxy:
        await proxy.tried()
        assert [await proxy.text("flood__chatty") for _ in range(3)] == ["done"] * 3
        kept = list(proxy.connection("flood").last_words.lines)
        assert kept and len(kept) <= 20 and all(len(line) <= 500 for line in kept)
        assert "sk-FAKE" not in "".join(kept)


async def test_a_server_that_never_answers_delays_nobody(tmp_path: Path) -> None:
    """T1, T3, T4: it is told as starting, then as failed with the reason, in the search answers and in `check`."""
    servers = {"mute": hostile("hang_initialize", connect_timeout=1), "good": GOOD}
    async with in_process(tmp_path, servers, first_list_wait=0.1) as proxy:
        assert b"tool_search" in await proxy.tools()
        assert proxy.connection("mute").state == "starting"
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
        await proxy.tried("mute")
        status = proxy.app.status()["servers"]  # before anything is awaited: the next attempt may follow at once
        reason = "not ready within 1 s (connect_timeout)"
        assert reason in (await proxy.search("nothing matches zzz"))["unavailable"]["mute"]
        assert status["mute"]["state"] == "failed" and reason in status["mute"]["reason"]
        assert status["good"]["state"] == "ready"
        assert f"{reason} (next try in " in await proxy.refusal("mute__anything")


async def test_a_name_is_not_taken_for_that_of_a_server_whose_key_is_within_it(tmp_path: Path) -> None:
    """T4: `git` is down, and `github__creat_issue` and `digit` were answered as its tools, after a wait for it."""
    servers = {"git": hostile("hang_initialize", connect_timeout=1), "github": GOOD}
    async with in_process(tmp_path, servers, first_list_wait=0.1) as proxy:
        for name in ("github__ecko", "digit_sum", "terminal.git__echo"):
            assert f"There is no tool '{name}'" in await proxy.refusal(name)
        for name in ("git__status", "git/status", "mcp__git__status", "mcp_git_status"):
            assert "Server 'git': its tools are not known yet" in await proxy.refusal(name)


async def test_a_slow_starter_becomes_usable_and_is_announced_once(tmp_path: Path) -> None:
    """T2, P7."""
    servers = {"slow": hostile("slow_start", 2), "good": GOOD}
    async with in_process(tmp_path, servers, first_list_wait=0.1) as proxy:
        before = await proxy.tools()
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
        await proxy.tried("slow")
        assert await proxy.text("slow__late_tool") == "finally"
        assert "slow__late_tool" in await proxy.finds("late tool")
        await eventually(lambda: "notifications/tools/list_changed" in proxy.notifications)
        assert await proxy.tools() != before
        assert proxy.notifications.count("notifications/tools/list_changed") == 1


async def test_a_call_to_a_server_known_from_disk_waits_for_its_start(tmp_path: Path) -> None:
    """T2: the second start lists it at once; the first call is held until it has started."""
    servers = {"slow": hostile("slow_start", 0.5)}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        first = await proxy.tools()
    async with in_process(tmp_path, servers) as proxy:
        assert proxy.connection("slow").state in ("known", "starting")
        assert await proxy.tools() == first
        assert await proxy.text("slow__late_tool") == "finally"


async def test_a_server_that_dies_of_the_probe_is_started_again_for_the_old_era(tmp_path: Path) -> None:
    """T12: one process more at most, and the era is remembered."""
    servers = {"old": hostile("exit_on_discover", connect_timeout=CONNECTED)}
    async with in_process(tmp_path, servers) as proxy:
        await eventually(lambda: proxy.connection("old").state == "ready")
        assert await proxy.text("old__legacy_tool") == "legacy ok"
        assert proxy.connection("old")._attempts == 1
    async with in_process(tmp_path, servers) as proxy:
        assert await proxy.text("old__legacy_tool") == "legacy ok"
        assert proxy.connection("old")._attempts == 0


async def test_a_crash_in_a_call_fails_that_call_at_once_and_nothing_runs_twice(tmp_path: Path) -> None:
    """T5, T6."""
    ledger = tmp_path / "ledger"
    async with in_process(tmp_path, {"mortal": hostile("dies_third_call", ledger), "good": GOOD}) as proxy:
        await proxy.tried()
        listed = await proxy.tools()
        for _ in range(2):
            await proxy.text("mortal__transfer")
        started = time.monotonic()
        failure = await proxy.refusal("mortal__transfer")
        assert time.monotonic() - started < 5  # told by the exit, not by a time-out of 300 s
        assert "'mortal'" in failure and "exited with code 7" in failure and "may have run" in failure
        assert len(ledger.read_text().splitlines()) == 3
        assert (await proxy.text("mortal__transfer")).startswith("call 1 ")
        assert len(ledger.read_text().splitlines()) == 4
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
        assert await proxy.tools() == listed
        assert not proxy.notifications


async def test_a_stubborn_tree_is_gone_when_the_client_leaves(tmp_path: Path) -> None:
    """T9, T10: EOF on our stdin; the wrapper and its grandchild ignore EOF and SIGTERM."""
    pids = tmp_path / "pids"
    async with process(tmp_path, {"stubborn": hostile("stubborn_child", pids)}) as proxy:
        assert await proxy.text("stubborn__alive") == "alive"
        tree = pids_in(pids)
        assert len(tree) == 2 and all(map(alive, tree))
    await eventually(lambda: not any(map(alive, tree)), patience=5)


async def test_the_old_tree_is_gone_before_a_new_one_starts(tmp_path: Path) -> None:
    """T9: five reconnects, never two generations at once, none left."""
    seen = tmp_path / "seen"
    servers = {"mortal": hostile("dies_third_call", tmp_path / "ledger"), "gen": hostile("generations", seen)}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        for _ in range(4):
            assert "exited with code 3" in await proxy.refusal("gen__die")
            assert await proxy.text("gen__others_alive") == "[]"
        generations = [json.loads(line) for line in seen.read_text().splitlines()]
        assert len(generations) == 5
        assert [g["alive_before"] for g in generations] == [[]] * 5
        pids = [pid for g in generations for pid in g["pids"]]
    await eventually(lambda: not any(map(alive, pids)), patience=6)
