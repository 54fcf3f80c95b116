"""Faults of the kinds that the reports tell of, one at a time: more than the reports have, the same behaviour."""

import json
from pathlib import Path

import anyio
import pytest
from hostile_proxy import GOOD, Proxy, eventually, hostile, in_process, raw_process, text_of

UNDERSTOOD = ["float_id", "string_id", "batch", "twice", "bom", "crlf", "drip", "notifications", "progress_flood",
              "junk_before", "junk_after", "content_string", "content_object"]  # fmt: skip
LOST = {
    "cut_line": "unparseable answer (Unterminated string", "deep": "unparseable answer (it is nested too deeply)",
    "half_line_exit": "exited with code 9", "exit0": "exited with code 0", "closes_stdout": "closed its output",
    "closes_stdin": "closed its input",
}  # fmt: skip
"""What cannot be understood, and what its error says; `timeout` is 300 s, so each is noticed, not waited for."""
SILENT = ["wrong_id", "hangs"]


def servers(fault: str, *args: object, **config: object) -> dict[str, dict[str, object]]:
    return {"odd": hostile("twisted", fault, *args, mode="legacy", **config), "good": GOOD}


async def good(proxy: Proxy) -> None:
    assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


@pytest.mark.parametrize("fault", UNDERSTOOD)
async def test_an_answer_that_can_be_understood_is(tmp_path: Path, fault: str) -> None:
    async with in_process(tmp_path, servers(fault)) as proxy:
        await proxy.tried()
        for _ in range(2):
            assert await proxy.text("odd__hit") == "hit ok"
            assert await proxy.text("odd__fine") == "fine ok"
        await good(proxy)


@pytest.mark.parametrize("fault", LOST)
async def test_an_answer_that_cannot_be_understood_fails_its_call_only(tmp_path: Path, fault: str) -> None:
    async with in_process(tmp_path, servers(fault)) as proxy:
        await proxy.tried()
        text = await proxy.refusal("odd__hit")
        assert "'odd'" in text and LOST[fault] in text and "may have run" in text and len(text) < 600
        assert await proxy.text("odd__fine") == "fine ok"
        await good(proxy)


@pytest.mark.parametrize("fault", SILENT)
async def test_an_answer_that_never_comes_costs_the_time_out_of_its_call(tmp_path: Path, fault: str) -> None:
    async with in_process(tmp_path, servers(fault, timeout=0.5)) as proxy:
        await proxy.tried()
        assert "no answer within 0.5 s" in await proxy.refusal("odd__hit")
        assert await proxy.text("odd__fine") == "fine ok"


async def test_a_line_of_30_mb_arrives_whole(tmp_path: Path) -> None:
    async with in_process(tmp_path, servers("huge")) as proxy:
        await proxy.tried()
        assert len(await proxy.text("odd__hit")) == 30_000_000
        assert await proxy.text("odd__fine") == "fine ok"


@pytest.mark.parametrize("fault", ["nan", "surrogate"])
async def test_what_json_cannot_hold_never_reaches_the_client(tmp_path: Path, fault: str) -> None:
    """NaN is no JSON, and half a surrogate pair no UTF-8: strict clients would drop the line, and wait for ever."""
    async with raw_process(tmp_path, servers(fault)) as client:

        def strict(token: str) -> float:
            raise AssertionError(f"{token} is not JSON")

        result = await client.call("odd__hit")
        assert result["content"][0]["text"].startswith("hit ok")
        json.loads(json.dumps(result), parse_constant=strict)
        json.dumps(result, ensure_ascii=False).encode()


async def test_what_a_server_asks_of_its_client_is_answered_at_once(tmp_path: Path) -> None:
    """No capability is declared by this client, so all but `ping` is declined."""
    async with in_process(tmp_path, servers("asks")) as proxy:
        await proxy.tried()
        answers = json.loads(await proxy.text("odd__hit"))
        assert answers.pop("ping") == "result"
        assert all(isinstance(code, int) for code in answers.values()), answers


TOLD = {
    "start_exit0": "exited with code 0", "start_exit1": "API_KEY is not set", "list_dies": "exited with code 4",
    "init_list": "malformed answer", "init_version": "'1999-01-01'", "init_error": "license expired",
    "list_not_found": "Method not found",
}  # fmt: skip


@pytest.mark.parametrize("fault", TOLD)
async def test_a_fault_at_the_start_is_told_as_the_reason(tmp_path: Path, fault: str) -> None:
    async with in_process(tmp_path, servers(fault)) as proxy:
        await proxy.tried()
        await eventually(lambda: TOLD[fault] in proxy.app.status()["servers"]["odd"].get("reason", ""))
        assert proxy.app.status()["servers"]["odd"]["state"] == "failed"
        assert TOLD[fault] in await proxy.refusal("odd__hit")
        assert TOLD[fault] in (await proxy.search("zzz"))["unavailable"]["odd"]
        await good(proxy)


async def test_a_list_that_never_comes_is_told_after_the_connect_time_out(tmp_path: Path) -> None:
    async with in_process(tmp_path, servers("list_hangs", connect_timeout=1)) as proxy:
        await proxy.tried()
        assert "not ready within 1 s" in await proxy.refusal("odd__hit")
        await good(proxy)


@pytest.mark.parametrize("fault", ["init_twice", "init_bare", "list_error_once"])
async def test_a_start_that_is_odd_or_fails_once_ends_well(tmp_path: Path, fault: str) -> None:
    async with in_process(tmp_path, servers(fault, tmp_path / "starts")) as proxy:
        await proxy.tried()
        assert await proxy.text("odd__fine") == "fine ok"


@pytest.mark.parametrize(
    ("fault", "sent"), [("list_null", ": None"), ("list_missing", ""), ("list_object", ": {'fine': {'name': 'fine'")]
)
async def test_a_server_without_a_list_has_no_tools_is_up_and_that_is_told(
    tmp_path: Path, fault: str, sent: str
) -> None:
    async with in_process(tmp_path, servers(fault)) as proxy:
        await proxy.tried()
        status = proxy.app.status()["servers"]["odd"]
        assert (status["state"], status["tools"]) == ("ready", 0)
        (warning,) = proxy.connection("odd").lists.warnings
        assert warning.startswith(f"the answer to tools/list has no list 'tools'{sent}")


async def test_what_is_odd_about_many_entries_of_a_list_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """P2: pages that repeat are thousands of tools that come twice."""
    async with in_process(tmp_path, servers("list_repeats")) as proxy:
        await proxy.tried()
        assert proxy.app.status()["servers"]["odd"]["tools"] == 52
    told = [record.getMessage() for record in caplog.records if "of tools/list" in record.getMessage()]
    twice = [record.getMessage() for record in caplog.records if " twice" in record.getMessage()]
    assert told == ["server 'odd': left out an entry of tools/list without a name: {'title': 'x'}; and 49 more like it"]
    assert twice == ["server 'odd' lists the tool 't0' and 49 more twice; the first one is kept"]


async def test_calls_in_flight_on_others_outlive_a_crash(tmp_path: Path) -> None:
    config = {**servers("exit0"), "slow": hostile("slow_concurrent")}
    async with in_process(tmp_path, config) as proxy:
        await proxy.tried()
        slept: list[str] = []

        async def sleep() -> None:
            slept.append(await proxy.text("slow__sleep", {"ms": 500}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            assert "exited with code 0" in text_of(await proxy.call("odd__hit"))
            assert not slept
        assert slept == ["slept 500"]


async def test_an_answer_that_comes_after_the_time_out_reaches_nobody(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"slow": hostile("slow_concurrent", timeout=0.3)}) as proxy:
        await proxy.tried()
        assert "no answer" in await proxy.refusal("slow__sleep", {"ms": 600})
        for ms in (10, 250, 20, 250, 30):
            assert await proxy.text("slow__sleep", {"ms": ms}) == f"slept {ms}"
