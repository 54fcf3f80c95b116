"""Every hostile server behind one proxy: a good one among them never notices, and each does what it does alone."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hostile_proxy import GOOD, Proxy, hostile, http_server, process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@asynccontextmanager
async def everybody(folder: Path) -> AsyncGenerator[dict[str, dict[str, object]]]:
    """All 25 hostile servers, some of them in several modes, and more of the same kinds."""
    async with AsyncExitStack() as stack:
        web = {
            "badhttp": ("http_bad_bodies",),
            "lost404": ("http_session_404", 2, "404"),
            "lost400": ("http_session_404", 2, "400"),
            "lost500": ("http_session_404", 2, "500"),
            "lost200": ("http_session_404", 2, "200err"),
            "web401": ("http_faults", "401", "initialize"),
            "webreset": ("http_faults", "reset"),
        }
        servers = {key: (await stack.enter_async_context(http_server(*args))).upstream() for key, args in web.items()}
        plain = (
            "args_echo", "bad_schemas", "bridge_name_clash", "env_probe", "error_results", "exit_on_discover",
            "hang_initialize", "invalid_utf8", "junk_stdout", "list_changed", "long_line", "many_tools", "odd_names",
            "output_schema_mismatch", "progress_cancel", "rich_content", "slow_concurrent", "stderr_flood",
            "structured_only", "crashes_each_second", "floods_for_ever",
        )  # fmt: skip
        servers |= {name: hostile(name) for name in plain}
        servers |= {f"pages_{mode}": hostile("paginate", mode) for mode in ("normal", "loop", "empty", "badlast")}
        servers |= {
            "dies_third_call": hostile("dies_third_call", folder / "ledger"),
            "slow_start": hostile("slow_start", 5),
            "stubborn_child": hostile("stubborn_child", folder / "stubborn"),
            "missing": {"command": "no-such-command"},
            "unset": hostile("good", env={"TOKEN": "${NOT_SET_ANYWHERE}"}),
            "good": GOOD,
        }
        yield servers


CALLS = {
    "args_echo__echo": '"tool": "echo"', "bad_schemas__empty_schema": "called with",
    "bridge_name_clash__tool_call": "UPSTREAM",
    "exit_on_discover__legacy_tool": "legacy ok", "invalid_utf8__good": "good", "junk_stdout__noisy": "ok",
    "list_changed__storm": "storm", "long_line__sha": "", "output_schema_mismatch__right": '{"n": 1}',
    "progress_cancel__seen": "finished", "rich_content__all": "first", "slow_concurrent__peak": "",
    "stderr_flood__chatty": "done",
    "structured_only__text_and_struct": "summary", "floods_for_ever__loud": "loud ok",
    "pages_normal__t11": "called t11",
    "pages_empty__t11": "called t11", "pages_loop__t03": "called t03", "pages_badlast__t07": "called t07",
    "slow_start__late_tool": "finally", "stubborn_child__alive": "alive", "badhttp__fine": "fine ok",
    "webreset__fine": "fine ok",
}  # fmt: skip
FAILING = {
    "error_results__internal": "-32603", "error_results__no_msg": "malformed", "hang_initialize__x": "not known yet",
    "missing__x": "command not found", "unset__echo": "NOT_SET_ANYWHERE", "web401__fine": "HTTP 401",
    "badhttp__html502": "HTTP 502", "webreset__hit": "may have run",
}  # fmt: skip


async def test_all_of_them_behind_one_proxy(tmp_path: Path) -> None:
    async with everybody(tmp_path) as servers, process(tmp_path, servers, mode="legacy") as proxy:
        good_calls = 0
        done = anyio.Event()

        async def keep_calling() -> None:
            nonlocal good_calls
            while not done.is_set():
                with anyio.fail_after(10):
                    assert await proxy.text("good__echo", {"text": f"{good_calls}"}) == f"{good_calls}"
                good_calls += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_calling)
            await each_does_what_it_does(proxy, tmp_path)
            done.set()
        assert good_calls > 50
        assert len(json.loads(await proxy.tools())) == 3


async def each_does_what_it_does(proxy: Proxy, folder: Path) -> None:
    async def works(name: str, says: str) -> None:
        assert says in await proxy.text(name, {"ms": 1, "bytes": 1000}), name

    async def fails(name: str, says: str) -> None:
        with anyio.fail_after(60):
            result = await proxy.client.call_tool("tool_call", {"name": name, "arguments": {"text": "x"}})
        assert result.is_error and says in str(result.content), (name, result.content)

    async def forgets(server: str) -> None:
        outcomes = [(await proxy.call(f"{server}__work")).is_error for _ in range(6)]
        assert outcomes.count(False) >= 3, (server, outcomes)

    async def dies() -> None:
        outcomes = [(await proxy.call("dies_third_call__transfer")).is_error for _ in range(4)]
        assert outcomes == [False, False, True, False]
        assert len((folder / "ledger").read_text(encoding="utf-8").splitlines()) == 4

    async with anyio.create_task_group() as tasks:
        for name, says in CALLS.items():
            tasks.start_soon(works, name, says)
        for name, says in FAILING.items():
            tasks.start_soon(fails, name, says)
        for server in ("lost404", "lost400", "lost500", "lost200"):
            tasks.start_soon(forgets, server)
        tasks.start_soon(dies)
    unavailable = (await proxy.search("zzz nothing"))["unavailable"]
    assert "command not found" in unavailable["missing"] and "NOT_SET_ANYWHERE" in unavailable["unset"]
    assert "HTTP 401" in unavailable["web401"] and "good" not in unavailable
