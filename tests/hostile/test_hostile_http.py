"""Servers over HTTP that answer with anything but an answer, forget sessions, restart or go away."""

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hostile_proxy import GOOD, PATIENCE, SERVERS, HttpServer, Proxy, eventually, hostile, http_server, in_process

SUCCEED = ("fine", "sse_multi", "sse_big", "redirect", "slow_body", "sse_raw", "no_ctype")
FAIL = {
    "html502": "HTTP 502", "html200": "HTTP 200", "empty200": "empty body", "not_json": "HTTP 200",
    "sse_cut": "", "s429": "HTTP 429", "s503": "HTTP 503", "wrong_id": "id", "accepted": "HTTP 202",
}  # fmt: skip


async def test_bad_bodies_fail_one_call_each_with_status_and_excerpt(tmp_path: Path) -> None:
    """X8."""
    async with http_server("http_bad_bodies") as server:
        async with in_process(tmp_path, {"bad": server.upstream(), "good": GOOD}) as proxy:
            await proxy.tried()
            for name in SUCCEED:
                text = await proxy.text(f"bad__{name}")
                assert text == ("x" * 2_097_152 if name == "sse_big" else f"{name} ok")
            for name, says in FAIL.items():
                text = await proxy.refusal(f"bad__{name}")
                assert "'bad'" in text and says in text, text
                assert len(text) < 600 and not re.search(r"<\w+>", text)
                if len(FAIL) > 4:  # five failures in a row are the breaker's business, not this test's
                    assert await proxy.text("bad__fine") == "fine ok"
            assert "retry after 7" in await proxy.refusal("bad__s429")
            assert proxy.connection("bad").state == "ready"
            assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


async def stats(proxy: Proxy) -> dict[str, int]:
    return json.loads(await proxy.text("lost__stats"))


async def test_a_forgotten_session_is_opened_again_once_and_the_refused_call_repeated(tmp_path: Path) -> None:
    """X6: the caller notices nothing, and no call runs twice."""
    async with http_server("http_session_404", 2, "404") as server:
        async with in_process(tmp_path, {"lost": server.upstream()}) as proxy:
            await proxy.tried()
            listed = await proxy.tools()
            assert [await proxy.text("lost__work") for _ in range(7)] == [f"executed {n}" for n in range(1, 8)]
            seen = await stats(proxy)
            assert seen["executed"] == 7 and seen["initializes"] <= 4
            assert await proxy.tools() == listed and not proxy.notifications


async def test_concurrent_calls_share_one_new_session(tmp_path: Path) -> None:
    """X6: single-flight. The server forgets after five calls; eight at once are answered by two or three sessions."""
    async with http_server("http_session_404", 5, "404") as server:
        async with in_process(tmp_path, {"lost": server.upstream()}) as proxy:
            await proxy.tried()
            results: list[bool] = []

            async def work() -> None:
                results.append((await proxy.call("lost__work")).is_error)

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(work)
            seen = await stats(proxy)
            assert seen["executed"] == len(results) - sum(results) and seen["initializes"] <= 3


@pytest.mark.parametrize("dialect", ["400", "500", "200err"])
async def test_other_spellings_of_a_lost_session_cost_at_most_one_call(tmp_path: Path, dialect: str) -> None:
    """X7."""
    async with http_server("http_session_404", 2, dialect) as server:
        async with in_process(tmp_path, {"lost": server.upstream()}) as proxy:
            await proxy.tried()
            outcomes = [(await proxy.call("lost__work")).is_error for _ in range(9)]
            for before, after in pairwise(outcomes):
                assert not (before and after), outcomes
            seen = await stats(proxy)
            assert seen["executed"] == outcomes.count(False) and seen["initializes"] <= 6


async def test_a_server_that_always_forgets_is_no_endless_loop(tmp_path: Path) -> None:
    """X6."""
    async with http_server("http_session_404", 0, "404") as server:
        async with in_process(tmp_path, {"lost": server.upstream()}) as proxy:
            await proxy.tried()
            text = await proxy.refusal("lost__work")
            assert "'lost'" in text and "forgotten our session" in text
            seen = await stats(proxy)
            assert seen["executed"] == 0 and seen["initializes"] <= 5


STATUSES = ["401", "403", "404", "405", "410", "429", "500", "502", "503"]
BODIES = ["html", "empty", "cut", "reset", "loop", "elsewhere", "wrong_id", "not_object", "null_result", "no_answer",
          "gzip_lie"]  # fmt: skip


@pytest.mark.parametrize("fault", [*STATUSES, *BODIES])
async def test_a_fault_in_a_call_fails_that_call_at_once_with_a_reason(tmp_path: Path, fault: str) -> None:
    """X8 and its kin; `timeout` is 300 s, so whatever ends here was noticed, not waited for."""
    async with http_server("http_faults", fault) as server:
        async with in_process(tmp_path, {"web": server.upstream()}) as proxy:
            await proxy.tried()
            text = await proxy.refusal("web__hit")
            assert "'web'" in text and "'hit'" in text and len(text) < 600 and "<" not in text, text
            assert "did not run" in text or "may have run" in text
            if fault.isdecimal():
                assert f"HTTP {fault}" in text
            assert ("check the login this server needs" in text) == (fault in ("401", "403"))
            assert await proxy.text("web__fine") == "fine ok"
            counts = json.loads(await proxy.text("web__counts"))
            if fault != "loop":  # that one is asked again and again by being redirected; it never runs
                assert counts["tools/call"] == 3  # none was sent twice


@pytest.mark.parametrize("fault", ["text", "slow"])
async def test_a_whole_answer_counts_however_it_comes(tmp_path: Path, fault: str) -> None:
    async with http_server("http_faults", fault) as server:
        async with in_process(tmp_path, {"web": server.upstream()}) as proxy:
            await proxy.tried()
            assert await proxy.text("web__hit") == "late ok"


async def test_an_event_stream_without_an_end_costs_the_time_out_of_one_call(tmp_path: Path) -> None:
    async with http_server("http_faults", "endless") as server:
        async with in_process(tmp_path, {"web": server.upstream(timeout=0.5)}) as proxy:
            await proxy.tried()
            assert "no answer within 0.5 s" in await proxy.refusal("web__hit")
            assert await proxy.text("web__fine") == "fine ok"


@pytest.mark.parametrize("fault", [*STATUSES, *BODIES])
async def test_a_fault_at_initialize_is_told_as_the_reason(tmp_path: Path, fault: str) -> None:
    async with http_server("http_faults", fault, "initialize") as server:
        servers = {"web": server.upstream(connect_timeout=10, mode="legacy"), "good": GOOD}
        async with in_process(tmp_path, servers) as proxy:
            await proxy.tried()
            assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
            status = proxy.app.status()["servers"]["web"]
            assert status["state"] == "failed" and status["reason"] and "<" not in status["reason"]
            if fault.isdecimal():
                assert f"HTTP {fault}" in status["reason"]
            await eventually(lambda: proxy.connection("web").next_try is not None)
            trouble = proxy.connection("web").trouble
            if fault in ("401", "403"):
                assert "check the login" in trouble and re.search(r"next try in (300|29\d) s", trouble)
            else:
                assert re.search("HTTP|connection|malformed|id|Redirect", trouble)


@pytest.mark.parametrize("where", ["initialize", "tools/list"])
@pytest.mark.parametrize("fault", ["503", "reset", "no_answer"])
async def test_a_fault_that_passes_is_recovered_by_the_next_call(tmp_path: Path, fault: str, where: str) -> None:
    """A call wakes the sleeping reconnect."""
    async with http_server("http_faults", fault, where, 1) as server:
        async with in_process(tmp_path, {"web": server.upstream(mode="legacy")}) as proxy:
            await proxy.tried()
            assert await proxy.text("web__fine") == "fine ok"


async def test_a_server_that_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    servers = {"gone": {"url": "http://127.0.0.1:9/mcp"}, "good": GOOD}
    async with in_process(tmp_path, servers) as proxy:
        await proxy.tried()
        assert "cannot reach http://127.0.0.1:9" in await proxy.refusal("gone__x")
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


async def restarted(script: str, port: int, *args: object) -> anyio.abc.Process:
    """The same server on the same port."""
    running = await anyio.open_process([sys.executable, str(SERVERS / f"{script}.py"), *map(str, args), f"port={port}"])
    assert running.stdout is not None
    await running.stdout.receive()
    return running


async def stopped(server: HttpServer) -> None:
    server.process.kill()
    await server.process.wait()


@pytest.mark.parametrize("script", ["http_sessions", "http_sse"])
async def test_a_server_that_restarts_on_its_port_is_used_again(tmp_path: Path, script: str) -> None:
    """X6: down, its calls fail with the reason; up again, the next call works; tools/list never changes."""
    async with http_server(script) as server:
        transport = "sse" if script == "http_sse" else "http"
        upstream = server.upstream(transport=transport, connect_timeout=5)
        async with in_process(tmp_path, {"web": upstream, "good": GOOD}) as proxy:
            await proxy.tried()
            listed = await proxy.tools()
            assert await proxy.text("web__echo", {"text": "one"}) == "one"
            await stopped(server)
            text = await proxy.refusal("web__echo", {"text": "two"})
            assert "'web'" in text and ("did not run" in text or "may have run" in text)
            assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
            again = await restarted(script, server.port)
            try:

                async def works() -> bool:
                    return not (await proxy.call("web__echo", {"text": "three"})).is_error

                await eventually(works)
                assert await proxy.tools() == listed
                assert not proxy.notifications
            finally:
                again.kill()
                with anyio.fail_after(PATIENCE):
                    await again.wait()


async def test_the_death_of_an_event_stream_server_fails_its_calls_at_once(tmp_path: Path) -> None:
    """The legacy transport: the answer would have come over a stream that is gone."""
    async with http_server("http_sse") as server:
        async with in_process(tmp_path, {"old": server.upstream(transport="sse")}) as proxy:
            await proxy.tried()
            texts: list[str] = []

            async def hang() -> None:
                texts.append(await proxy.refusal("old__hang"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hang)
                await eventually(lambda: proxy.connection("old")._session.peer.in_flight == 1)
                await stopped(server)
            assert "may have run" in texts[0] and "stream" in texts[0]


async def test_what_is_no_server_of_the_old_transport_is_told(tmp_path: Path) -> None:
    async with http_server("http_faults", "404", "any") as server:
        async with in_process(tmp_path, {"old": server.upstream(transport="sse"), "x": hostile("good")}) as proxy:
            await proxy.tried("old")
            assert "no event stream: HTTP 405" in await proxy.refusal("old__x")


async def test_that_a_server_over_sse_does_not_speak_the_era_it_is_asked_for_is_told(tmp_path: Path) -> None:
    async with http_server("http_sse") as server:
        async with in_process(tmp_path, {"old": server.upstream(transport="sse", mode="modern")}) as proxy:
            await proxy.tried("old")
            assert "the server does not speak 2026-07-28" in await proxy.refusal("old__x")
