"""The `risk` of a match is the class by which a call of it would be judged."""

import json
from pathlib import Path
from typing import Any

import pytest
from guarded_house import house, upstream, write

from proxy.caller import Caller

TOOLS: list[dict[str, Any]] = [
    {"name": "erase_page", "inputSchema": {"type": "object"}},
    {"name": "mark_page", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}},
]


@pytest.mark.parametrize(
    ("root", "marked"),
    [
        ({}, {"docs__mark_page"}),
        ({"guard": {}}, {"docs__mark_page"}),
        ({"guard": {"risk": {"destructive": ["docs/erase_*"], "write": ["docs/mark_*"]}}}, {"docs__erase_page"}),
    ],
)
async def test_what_a_person_wrote_about_a_tool_marks_it_in_answers(
    root: dict[str, Any], marked: set[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "upstreams.json", {"docs": upstream(tmp_path / "docs", {"tools": TOOLS})}, **root)
    async with house(path) as app:
        result = await app.call("tool_search", {"query": "page"}, {}, Caller(client="c"))
        matches = json.loads(result["content"][0]["text"])["matches"]
        assert len(matches) == 2
        assert {match["name"] for match in matches if match.get("risk") == "destructive"} == marked
