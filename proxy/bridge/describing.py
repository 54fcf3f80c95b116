"""The answer of describe: whole schemas, verbatim.

One name is never shortened; of several, what does not fit is told with its size.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.bridge.answers import ANSWER_TOKENS, down, dump, result, rows, tail
from proxy.bridge.reading import read_names
from proxy.bridge.tools import MAX_NAMES
from proxy.catalog import Catalog, NotFound
from proxy.config import ToolSearchConfig
from proxy.search import near_names, unknown_name
from proxy.text import one_line, shorten
from proxy.tokens import estimate
from proxy.tool import Tool

_NAME = 128
_OPTIONAL = ("annotations", "outputSchema")


def describe_answer(
    arguments: object,
    catalog: Catalog,
    settings: ToolSearchConfig,
    *,
    unavailable: Mapping[str, str],
    room: int = ANSWER_TOKENS,
) -> dict[str, Any]:
    """Answer one call of describe, as a CallToolResult dict; understands or teaches, never raises.

    `room` is in tokens (`room_in` the characters that the host keeps).
    """
    names = _names(read_names(arguments), catalog)
    if not names:
        example = catalog.tools[0].public_name if catalog.tools else "server__tool"
        return result(
            f"Give the name of a tool: {settings.describe_name}({dump({'name': example})}). "
            f"{settings.search_name} finds names.",
            error=True,
        )
    tools: dict[Tool, None] = {}
    missing: list[dict[str, object]] = []
    unknown: list[str] = []
    for name in names:
        try:
            tools[catalog.resolve(name)] = None
        except NotFound as error:
            unknown += (servers := catalog.unknown_in(name))
            missing.append(_missing(error, catalog, settings, servers))
    lines = {tool: dump(_described(tool)) for tool in tools}
    tokens = {tool: estimate(line) for tool, line in lines.items()}
    shown: list[Tool] = []
    for tool in tools:
        if tokens[tool] <= room and len(shown) < MAX_NAMES:
            shown.append(tool)
            room -= tokens[tool]
    shown = shown or list(tools)[:1]  # where none fits, one is still more than none
    omitted = [{"name": tool.public_name, "tokens": tokens[tool]} for tool in tools if tool not in shown]
    extra: dict[str, object] = {"omitted": omitted}
    if omitted:
        extra["hint"] = (
            f"Describe the omitted ones one by one, or call them by the signature from {settings.search_name}."
        )
    extra["unavailable"] = down(unavailable, [*(tool.server for tool in tools), *unknown])
    found = rows("tools", [lines[tool] for tool in shown])
    return result("{" + found + "," + rows("not_found", [dump(m) for m in missing]) + tail(extra) + "}")


def _names(names: tuple[str, ...], catalog: Catalog) -> list[str]:
    """`names`, where one that nothing has but that holds commas or spaces is several."""
    found: list[str] = []
    for name in names:
        parts = [part for part in name.replace(",", " ").split() if part]
        found += parts if len(parts) > 1 and not _exists(catalog, name) else [name]
    return list(dict.fromkeys(found))[: 2 * MAX_NAMES]


def _exists(catalog: Catalog, name: str) -> bool:
    try:
        catalog.resolve(name)
    except NotFound as error:
        return bool(error.candidates)
    return True


def _described(tool: Tool) -> dict[str, object]:
    found: dict[str, object] = {"name": tool.public_name, "server": tool.server, "tool": tool.name}
    if tool.title is not None:
        found["title"] = tool.title
    found |= {"description": tool.description, "inputSchema": tool.input_schema}
    return found | {key: tool.raw[key] for key in _OPTIONAL if tool.raw.get(key) is not None}


def _missing(
    error: NotFound, catalog: Catalog, settings: ToolSearchConfig, unknown: Sequence[str]
) -> dict[str, object]:
    """Why one name is not found; `unknown`: the servers that may have it, whose tools were never seen."""
    shown = shorten(one_line(error.name), _NAME)
    if error.name in (settings.search_name, settings.describe_name, settings.call_name):
        return {"name": shown, "why": f"{shown} is a tool of this server itself; call it directly."}
    if error.candidates:
        return {"name": shown, "why": unknown_name(catalog, error, settings.search_name)}
    if unknown:
        return {
            "name": shown,
            "why": f"The tools of server {one_line(unknown[0])!r} are not known yet; try again later.",
        }
    near = list(near_names(catalog, error.name))
    return {"name": shown, "near": near} if near else {"name": shown, "why": f"Find names with {settings.search_name}."}
