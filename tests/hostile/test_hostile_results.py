"""Servers whose answers are unusual, wrong or late: what reaches the client."""

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from hostile_proxy import GOOD, Proxy, eventually, hostile, in_process, raw_process, text_of
from mcp import MCPError


async def test_every_kind_of_block_comes_back_as_it_was(tmp_path: Path) -> None:
    """R1-R6: same order, same bytes; unknown and malformed blocks cost nobody else."""
    async with raw_process(tmp_path, {"rich": hostile("rich_content")}) as client:
        result = await client.call("rich__all")
        kinds = [block["type"] for block in result["content"]]
        assert kinds == ["text", "image", "audio", "resource_link", "resource", "resource", "text"]
        first, image = result["content"][:2]
        assert first == {
            "type": "text", "text": "first", "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"k": 1},
        }  # fmt: skip
        assert image["mimeType"] == "image/png" and image["_meta"] == {"codex/imageDetail": "original"}
        assert result["_meta"] == {"result": "meta"}
        assert (await client.call("rich__image_only"))["content"] == [image]
        unknown = await client.call("rich__unknown")
        assert unknown["content"][0] == first and unknown["content"][-1]["text"] == "last"
        assert "isError" not in unknown
        bad = await client.call("rich__bad_block")
        assert bad["content"][-1]["text"] == "last" and "isError" not in bad
        assert all(isinstance(block["text"], str) for block in bad["content"])


async def test_payloads_in_unusual_places_reach_clients_that_read_only_text(tmp_path: Path) -> None:
    """R1: nothing lost, nothing encoded twice; what the handshake era does not allow becomes text."""
    payload = {"ok": False, "trace": "compile_error", "rows": [1, 2, 3], "nested": {"ü": "✓"}}
    async with raw_process(tmp_path, {"shapes": hostile("structured_only")}) as client:

        async def call(name: str) -> dict[str, Any]:
            return await client.call(f"shapes__{name}")

        for name in ("structured_only", "no_content"):
            result = await call(name)
            assert result["structuredContent"] == payload
            assert [json.loads(block["text"]) for block in result["content"]] == [payload]
        assert await call("empty") == {"content": []}
        assert (await call("null_struct"))["content"] == [{"type": "text", "text": "t"}]
        assert json.loads((await call("array_struct"))["content"][0]["text"]) == [1, 2, 3]
        assert json.loads((await call("scalar_struct"))["content"][0]["text"]) == 42
        both = await call("text_and_struct")
        assert both["content"] == [{"type": "text", "text": "summary"}] and both["structuredContent"] == payload
        error = await call("error_struct")
        assert error["isError"] is True and error["structuredContent"] == payload
        extra = await call("extra_fields")
        assert extra["_meta"] == {"vendor/trace": "abc", "n": 1} and extra["vendorTop"] == {"a": 1}
        assert (await call("empty_text"))["content"] == [{"type": "text", "text": ""}]


async def test_an_output_schema_that_is_not_honoured_costs_no_result(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"out": hostile("output_schema_mismatch")}) as proxy:
        await proxy.tried()
        assert proxy.app.status()["servers"]["out"]["tools"] == 8
        assert await proxy.text("out__wrong_shape") == "usable text"
        assert (await proxy.call("out__wrong_shape")).structured_content == {"wrong": "shape"}
        for name in ("no_struct", "null_schema"):
            assert await proxy.text(f"out__{name}") == "usable text"
        for name in ("right", "bad_schema", "typeless"):
            assert (await proxy.call(f"out__{name}")).structured_content == {"n": 1}
        assert (await proxy.call("out__dangling")).structured_content == {"s": {"id": "1"}}
        assert await proxy.refusal("out__error_ok") == "upstream says no"


MALFORMED = ("string_code", "no_msg", "null_result", "list_result")


async def test_every_way_to_fail_becomes_one_readable_result(tmp_path: Path) -> None:
    """Malformed answers fail their own call, at once: the time-out here is 300 s."""
    async with in_process(tmp_path, {"errors": hostile("error_results"), "good": GOOD}) as proxy:
        await proxy.tried()
        assert await proxy.refusal("errors__is_error") == "upstream tool failed: disk full"
        invalid = await proxy.refusal("errors__invalid")
        for part in ("'errors'", "'invalid'", "-32602", "'path' is required", '{"field": "path"}'):
            assert part in invalid
        assert '{"retryAfter": 5}' in await proxy.refusal("errors__custom")
        for name, code in (("internal", "-32603"), ("not_found", "-32601")):
            assert code in await proxy.refusal(f"errors__{name}")
        for name in MALFORMED:
            text = await proxy.refusal(f"errors__{name}")
            assert "'errors'" in text and "malformed answer" in text and "may have run" in text
        await proxy.call("errors__both")  # either reading is right; it must end
        with pytest.raises(MCPError) as raised:
            await proxy.call("errors__url")
        assert raised.value.error.code == -32042
        assert raised.value.error.data["elicitations"][0]["url"] == "http://127.0.0.1/auth"
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


async def test_answers_that_are_errors_never_open_the_breaker(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"errors": hostile("error_results")}) as proxy:
        await proxy.tried()
        for name in ("is_error", "internal") * 6:
            assert "held back" not in await proxy.refusal(f"errors__{name}")


async def test_arguments_arrive_as_they_were_meant(tmp_path: Path) -> None:
    """A1, B1."""
    async with in_process(tmp_path, {"args": hostile("args_echo")}) as proxy:
        await proxy.tried()

        async def given(arguments: dict[str, Any]) -> Any:
            result = await proxy.client.call_tool("tool_call", arguments)
            assert not result.is_error, text_of(result)
            return json.loads(text_of(result))["value"]

        exact = {
            "big": 2**53 + 1,
            "float": 1.0,
            "empty": "",
            "null": None,
            "ü": "✓",
            "json": '{"a": 1}',
            "z": 1,
            "a": 2,
        }
        got = await given({"name": "args__echo", "arguments": exact})
        assert got == exact and list(got) == list(exact) and isinstance(got["float"], float)
        assert await given({"name": "args__echo", "arguments": '{"a": "[1]"}'}) == {"a": "[1]"}
        for nothing in ("", None):
            assert await given({"name": "args__echo", "arguments": nothing}) in ({}, None)
        assert await given({"name": "args__echo"}) in ({}, None)
        assert await given({"name": "args__typed", "count": 3}) == {"count": 3}
        shadow = {"name": "n", "arguments": {"x": 1}, "query": "q"}
        assert await given({"name": "args__shadow", "arguments": shadow}) == shadow
        for wrong in ("not json", [1], 5):
            result = await proxy.client.call_tool("tool_call", {"name": "args__echo", "arguments": wrong})
            assert result.is_error and '"arguments"' in text_of(result)


async def test_a_server_gets_its_own_environment_and_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """E1, E2, E5."""
    caplog.set_level("DEBUG")
    secret, other = "s3cret-of-this-one", "s3cret-of-the-other"
    servers = {
        "env": hostile("env_probe", "--x", "${FOO}", "${BAR:-d}", env={"TOKEN": "${SECRET}"}, cwd="sub"),
        "other": hostile("env_probe", env={"OTHER_TOKEN": other}),
        "unset": hostile("env_probe", env={"TOKEN": "${MISSING_ONE}"}),
    }
    (tmp_path / "sub").mkdir()
    environ = {"FOO": "foo value", "SECRET": secret, "UNRELATED": "x"}
    async with in_process(tmp_path, servers, environ=environ) as proxy:
        await proxy.tried()
        assert json.loads(await proxy.text("env__argv")) == ["--x", "foo value", "d"]
        assert json.loads(await proxy.text("env__cwd")) == str(tmp_path / "sub")
        seen = json.loads(await proxy.text("env__env"))
        assert seen["TOKEN"] == secret and "PATH" in seen and "HOME" in seen
        assert "UNRELATED" not in seen and other not in seen.values()
        assert json.loads(await proxy.text("env__tty")) is False
        assert "MISSING_ONE" in proxy.app.status()["servers"]["unset"]["reason"]
        assert "MISSING_ONE" in await proxy.refusal("unset__env")
        status = json.dumps(proxy.app.status())
        told = " ".join(r.getMessage() for r in caplog.records if r.name.startswith("proxy"))
        for hidden in (secret, other):
            assert hidden not in status and hidden not in told


async def test_progress_comes_under_the_clients_own_token(tmp_path: Path) -> None:
    """C1."""
    async with in_process(tmp_path, {"jobs": hostile("progress_cancel")}) as proxy:
        await proxy.tried()
        seen: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        result = await proxy.call("jobs__job", {"steps": 8, "step_ms": 20}, progress_callback=on_progress)
        assert text_of(result) == "job done"
        assert seen == sorted(seen) and len(seen) >= 7
        assert json.loads(await proxy.text("jobs__seen"))["progress_tokens"] == 1
        # Without a token of the client, none is sent.
        await proxy.text("jobs__job", {"steps": 1, "step_ms": 1})
        assert json.loads(await proxy.text("jobs__seen"))["progress_tokens"] == 1


async def cancellations(proxy: Proxy) -> list[Any]:
    return json.loads(await proxy.text("jobs__seen"))["cancelled"]


async def test_a_cancelled_call_is_cancelled_upstream_under_the_upstreams_id(tmp_path: Path) -> None:
    """C2."""
    async with in_process(tmp_path, {"jobs": hostile("progress_cancel"), "good": GOOD}) as proxy:
        await proxy.tried()
        started = anyio.Event()

        async def on_progress(*_: object) -> None:
            started.set()

        async with anyio.create_task_group() as tasks:

            async def job() -> None:
                await proxy.call("jobs__job", {"steps": 400}, progress_callback=on_progress)

            tasks.start_soon(job)
            await started.wait()
            tasks.cancel_scope.cancel()

        async def cancelled() -> bool:
            return len(await cancellations(proxy)) == 1

        await eventually(cancelled, patience=5)
        assert isinstance((await cancellations(proxy))[0], int)
        assert json.loads(await proxy.text("jobs__seen"))["finished"] == 0
        assert await proxy.text("good__echo", {"text": "hi"}) == "hi"


async def test_the_proxys_own_time_out_cancels_too_and_progress_extends_it(tmp_path: Path) -> None:
    """C3: for every transport the configured time-out, counted from the last progress; the session stays."""
    async with in_process(tmp_path, {"jobs": hostile("progress_cancel", timeout=0.8)}) as proxy:
        await proxy.tried()
        text = await proxy.refusal("jobs__job", {"steps": 1, "step_ms": 5000})
        assert "no answer within 0.8 s" in text and "may have run" in text
        assert len(await cancellations(proxy)) == 1

        async def on_progress(*_: object) -> None:
            pass

        long_job = {"steps": 8, "step_ms": 200}
        assert text_of(await proxy.call("jobs__job", long_job, progress_callback=on_progress)) == "job done"
        assert proxy.connection("jobs").state == "ready"


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    """C4."""
    async with in_process(tmp_path, {"many": hostile("slow_concurrent"), "good": GOOD}) as proxy:
        await proxy.tried()
        times = [300, 250, 200, 150, 100]
        answers: dict[int, str] = {}

        async def sleep(ms: int) -> None:
            answers[ms] = await proxy.text("many__sleep", {"ms": ms})

        async with anyio.create_task_group() as tasks:
            for ms in times:
                tasks.start_soon(sleep, ms)
            assert await proxy.text("good__echo", {"text": "hi"}) == "hi"
            assert not answers  # the quick one did not wait for the slow ones
        assert answers == {ms: f"slept {ms}" for ms in times}
        assert await proxy.text("many__peak") == "5"


async def test_max_concurrency_holds_calls_back_and_loses_none(tmp_path: Path) -> None:
    """C5."""
    async with in_process(tmp_path, {"one": hostile("slow_concurrent", max_concurrency=1)}) as proxy:
        await proxy.tried()
        done: list[str] = []

        async def sleep(ms: int) -> None:
            done.append(await proxy.text("one__sleep", {"ms": ms}))

        async with anyio.create_task_group() as tasks:
            for ms in (30, 20, 10):
                tasks.start_soon(sleep, ms)
        assert sorted(done) == ["slept 10", "slept 20", "slept 30"]
        assert await proxy.text("one__peak") == "1"


async def test_a_server_for_one_call_at_a_time_answers_all(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"one": hostile("slow_concurrent", "serial")}) as proxy:
        await proxy.tried()
        done: list[types.CallToolResult] = []

        async def sleep() -> None:
            done.append(await proxy.call("one__sleep", {"ms": 10}))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(sleep)
        await eventually(lambda: len(done) == 5)
        assert [text_of(result) for result in done] == ["slept 10"] * 5
