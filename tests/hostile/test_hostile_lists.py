"""Servers whose tool list is broken, huge, strangely named or changing."""

import json
import logging
import re
from collections.abc import Awaitable
from pathlib import Path

import anyio
import pytest
from hostile_proxy import GOOD, Proxy, eventually, hostile, in_process, text_of

ODD = 29
"""Tools of `odd_names`."""


@pytest.mark.parametrize("mode", ["normal", "empty", "blank"])
async def test_every_page_of_a_list_is_read(tmp_path: Path, mode: str) -> None:
    """P1."""
    async with in_process(tmp_path, {"pages": hostile("paginate", mode)}) as proxy:
        await proxy.tried()
        assert proxy.app.status()["servers"]["pages"]["tools"] == 12
        assert await proxy.text("pages__t11") == "called t11"


@pytest.mark.parametrize(("mode", "kept", "warning"), [("loop", 4, "repeat"), ("badlast", 8, "page 3")])
async def test_a_list_without_a_right_end_keeps_what_was_read(
    tmp_path: Path, mode: str, kept: int, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P2."""
    caplog.set_level(logging.WARNING)
    async with in_process(tmp_path, {"pages": hostile("paginate", mode)}) as proxy:
        await proxy.tried()
        assert proxy.app.status()["servers"]["pages"]["tools"] == kept
        assert await proxy.text("pages__t03") == "called t03"
    assert any(warning in record.getMessage() for record in caplog.records)


async def test_a_broken_schema_loses_neither_its_tool_nor_any_other(tmp_path: Path) -> None:
    """D2."""
    async with in_process(tmp_path, {"schemas": hostile("bad_schemas"), "good": GOOD}) as proxy:
        await proxy.tried()
        tools = [tool.public_name for tool in proxy.app.catalog.servers["schemas"].tools]
        assert len(tools) == 33 and "schemas__good" in tools
        assert await proxy.text("schemas__good", {"q": "x"}) == "good called with {'q': 'x'}"
        for name in tools:
            described = (await proxy.describe(name))["tools"]
            assert [tool["name"] for tool in described] == [name]
            assert name in await proxy.finds(name)
            if name != "schemas__good":
                result = await proxy.call(name, {"zone": "zone-00001", "k": "y", "a": "1", "count": 1})
                # Called, or refused by its schema with the reason; never lost.
                assert "called with" in text_of(result) or (result.is_error and "schemas" in text_of(result))
        listing = await proxy.tools()
        assert b"anyOf" not in listing and b"never-fetch-me" not in listing


async def test_odd_names_are_called_back_byte_for_byte(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"odd": hostile("odd_names")}) as proxy:
        await proxy.tried()
        tools = proxy.app.catalog.tools
        assert len(tools) == ODD and len({tool.public_name for tool in tools}) == ODD
        for tool in tools:
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.public_name)
            assert await proxy.text(tool.public_name) == tool.name
            assert (await proxy.describe(tool.public_name))["tools"][0]["tool"] == tool.name


async def test_the_bridge_wins_over_tools_of_the_same_name(tmp_path: Path) -> None:
    async with in_process(tmp_path, {"clash": hostile("bridge_name_clash")}) as proxy:
        await proxy.tried()
        assert await proxy.text("clash__tool_search", {"query": "x"}) == "UPSTREAM tool_search"
        assert await proxy.text("clash__tool_call") == "UPSTREAM tool_call"
        assert "matches" in await proxy.search("anything")
        nested = {"name": "clash__tool_describe", "arguments": {}}
        assert await proxy.text("tool_call", nested) == "UPSTREAM tool_describe"
        assert proxy.app.status()["servers"]["clash"]["tools"] == 4
        (dup,) = (await proxy.describe("clash__dup"))["tools"]
        assert dup["description"] == "First dup."


@pytest.mark.parametrize("kind", [(), ("long",)], ids=["plain", "long"])
async def test_thousands_of_tools_in_any_order_give_the_same_bytes(tmp_path: Path, kind: tuple[str, ...]) -> None:
    """P5, E6."""
    seen = set()
    for start in range(2):
        (tmp_path / str(start)).mkdir()
        async with in_process(tmp_path / str(start), {"cloud": hostile("many_tools", 3300, *kind)}) as proxy:
            await proxy.tried()
            listed = await proxy.tools()
            assert await proxy.tools() == listed
            seen.add(listed)
            found = await proxy.search("zones_dns_records_update_33")
            assert found["matches"][0]["name"] == "cloud__zones_dns_records_update_33"
            assert found["total"] == 3300
    assert len(seen) == 1
    descriptions = [tool["description"] for tool in json.loads(seen.pop())]
    assert len(descriptions) == 3
    for text in descriptions:
        assert not re.search("[\x00-\x08\x0b-\x1f\u200b\u202e]", text)
        assert "delete_everything" not in text[:600]
        assert not re.search(r"^(## github|- fake_tool|</catalog>)", text, re.MULTILINE)


async def lists(proxy: Proxy) -> int:
    return int(await proxy.text("changing__stats"))


async def finds_extra(proxy: Proxy) -> bool:
    return "changing__extra_1" in await proxy.finds("extra tool number")


async def not_(found: Awaitable[bool]) -> bool:
    return not await found


async def test_a_changed_list_is_read_again_and_announced_once(tmp_path: Path) -> None:
    """P3."""
    async with in_process(tmp_path, {"changing": hostile("list_changed"), "good": GOOD}) as proxy:
        await proxy.tried()
        before = await proxy.tools()
        await proxy.text("changing__grow")
        await eventually(lambda: finds_extra(proxy))
        assert await proxy.text("changing__extra_1") == "extra_1: 1 extra"
        await eventually(lambda: proxy.notifications)
        assert await proxy.tools() != before
        await proxy.text("changing__shrink")
        await eventually(lambda: not_(finds_extra(proxy)))
        assert "no tool" in await proxy.refusal("changing__extra_1")
        await eventually(lambda: len(proxy.notifications) > 1)
        assert await proxy.tools() == before
        assert proxy.notifications == ["notifications/tools/list_changed"] * 2


async def test_a_storm_of_changes_without_a_change_is_read_once_and_told_to_nobody(tmp_path: Path) -> None:
    """P4."""
    async with in_process(tmp_path, {"changing": hostile("list_changed")}) as proxy:
        await proxy.tried()
        await proxy.tools()
        before = await lists(proxy)
        await proxy.text("changing__storm")

        async def read_again() -> bool:
            return await lists(proxy) > before

        await eventually(read_again)
        assert await lists(proxy) - before <= 3
        await anyio.sleep(2.5)  # the announcer's own delay: nothing may come after it
        assert not proxy.notifications
        assert await lists(proxy) - before <= 3
