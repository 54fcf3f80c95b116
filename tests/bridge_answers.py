"""Catalogs for tests of the bridge, and a look at its answers that every one of them gets."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from proxy.bridge import describe_answer, search_answer
from proxy.catalog import Catalog, make_server
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.search import Index

CATALOGS = Path(__file__).parent / "catalogs"
SETTINGS = ToolSearchConfig()
RENAMED = ToolSearchConfig(search_name="find_it", describe_name="show_it", call_name="do_it")

Raw = dict[str, Any]


def tool(name: str, description: str = "", **more: Any) -> Raw:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}, **more}


def catalog(servers: dict[str, list[Raw] | None], topics: dict[str, str] | None = None) -> Catalog:
    topics = topics or {}
    return Catalog(
        make_server(ServerConfig(key, "stdio", description=topics.get(key)), tools) for key, tools in servers.items()
    )


@cache
def five_servers() -> tuple[Catalog, Index]:
    """Five real servers, one with a topic, and their index."""
    keys = ("github", "filesystem", "memory", "time", "git")
    servers = {k: json.loads((CATALOGS / f"{k}.json").read_text(encoding="utf-8"))["tools"] for k in keys}
    found = catalog(servers, {"github": "issues, pull requests, code"})
    return found, Index(found)


def text_of(result: dict[str, Any]) -> str:
    assert "structuredContent" not in result
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]


def checked(result: dict[str, Any], key: str) -> dict[str, Any]:
    """The answer as JSON, after a look at its lines: each item under `key` stands alone on one."""
    text = text_of(result)
    answer = json.loads(text)
    lines = [json.loads(line.rstrip(",")) for line in text.split("\n") if line.startswith('{"name"')]
    expected = [m for group in answer.get("results", [answer]) for m in group.get(key, [])]
    if key == "tools":
        expected += answer["not_found"]
    assert lines == expected
    return answer


def search(catalog: Catalog, index: Index, arguments: Any, settings: ToolSearchConfig = SETTINGS, **down: str) -> Any:
    return checked(search_answer(arguments, catalog, index, settings, unavailable=down), "matches")


def describe(catalog: Catalog, arguments: Any, settings: ToolSearchConfig = SETTINGS, **down: str) -> Any:
    return checked(describe_answer(arguments, catalog, settings, unavailable=down), "tools")
