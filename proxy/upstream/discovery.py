"""Everything a server lists, all pages, read leniently entry by entry; raw dicts throughout."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

from proxy.errors import RpcError, UpstreamFailure
from proxy.text import one_line, shorten
from proxy.upstream.session import HeaderMap, Session
from proxy.wire import writable

log = logging.getLogger(__name__)

MAX_PAGES = 1_000
ROOM = 64
"""Levels less than the 255 that the SDK can write: its clients read 200, and there are some around an entry."""

Raw = dict[str, Any]


@dataclass
class Found:
    """What a server lists."""

    tools: list[Raw] = field(default_factory=list[Raw])
    resources: list[Raw] = field(default_factory=list[Raw])
    templates: list[Raw] = field(default_factory=list[Raw])
    prompts: list[Raw] = field(default_factory=list[Raw])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As the server declared them."""


async def discover(session: Session, *, resources: bool, prompts: bool) -> tuple[Found, list[str]]:
    """All lists of a server, and warnings in words. Sets `session.header_maps` and `session.ttl`.

    Lists other than the tools are read where they are wanted and declared; one that fails costs a warning.

    Raises:
        RpcError, UpstreamFailure: the tools could not be read at all.
    """
    warnings: list[str] = []
    session.ttl = math.inf
    found = Found(capabilities=session.capabilities)
    found.tools = _usable_tools(session, await _tools(session, warnings), warnings)
    lists = [
        ("resources/list", "resources", "uri", resources and "resources" in session.capabilities),
        ("resources/templates/list", "templates", "uriTemplate", resources and "resources" in session.capabilities),
        ("prompts/list", "prompts", "name", prompts and "prompts" in session.capabilities),
    ]
    for method, attribute, key, wanted in lists:
        if wanted:
            try:
                setattr(found, attribute, await _pages(session, method, key, warnings))
            except RpcError as error:
                if attribute != "templates":  # many servers with resources have none, and say so with an error
                    warnings.append(f"{method} failed: {shorten(one_line(str(error)), 120)}")
    return found, warnings


async def _tools(session: Session, warnings: list[str]) -> list[Raw]:
    try:
        return await _pages(session, "tools/list", "name", warnings)
    except RpcError:
        if "tools" in session.capabilities or not session.capabilities:
            raise
        return []  # a server of resources or prompts alone


def _usable_tools(session: Session, tools: list[Raw], warnings: list[str]) -> list[Raw]:
    """In the stateless era clients MUST drop a tool whose `x-mcp-header` marks are invalid."""
    if not session.modern:
        return tools
    maps: dict[str, HeaderMap] = {}
    kept: list[Raw] = []
    for tool in tools:
        schema = tool.get("inputSchema")
        if "x-mcp-header" in str(schema):
            if (why := find_invalid_x_mcp_header(schema)) is not None:
                warnings.append(f"left out {tool['name']!r}: {why}")
                continue
            maps[tool["name"]] = x_mcp_header_map(schema)
        kept.append(tool)
    session.header_maps = maps
    return kept


async def _pages(session: Session, method: str, key: str, warnings: list[str]) -> list[Raw]:
    """All entries of a paginated list that have a string `key`.

    A cursor that comes again, or an error after the first page, ends the list with what was read.
    """
    entries: list[Raw] = []
    name = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
    cursor: str | None = None
    seen: set[str] = set()
    nameless: list[object] = []
    for page in range(MAX_PAGES):
        try:
            result = await session.request(method, {"cursor": cursor} if cursor is not None else None)
        except RpcError as error:
            if page == 0:
                raise
            why = shorten(one_line(str(error)), 120)
            warnings.append(f"page {page + 1} of {method} failed ({why}); kept {len(entries)}")
            break
        ttl = result.get("ttlMs")
        if session.modern and isinstance(ttl, int | float) and ttl > 0:  # 0 says nothing of when it will change
            session.ttl = min(session.ttl, ttl / 1000)
        raw: object = result.get(name)
        if not isinstance(raw, list):
            sent = f": {shorten(one_line(repr(raw)), 100)}" if name in result else ""
            warnings.append(f"the answer to {method} has no list {name!r}{sent}")
            raw = []
        listed = cast(list[object], raw)
        whole = writable(listed, ROOM)
        for entry in listed:
            if not isinstance(entry, dict) or not isinstance(cast(Raw, entry).get(key), str):
                nameless.append(cast(object, entry))
            elif whole or writable(cast(Raw, entry), ROOM):
                entries.append(cast(Raw, entry))
            else:
                what = shorten(one_line(cast(Raw, entry)[key]), 100)
                warnings.append(f"left out {what!r} of {method}: it is nested too deeply")
        following = result.get("nextCursor")
        if not isinstance(following, str) or not following:
            break
        if following in seen:
            at = shorten(one_line(following), 40)
            warnings.append(f"the pages of {method} repeat (cursor {at!r}); kept {len(entries)}")
            break
        seen.add(following)
        cursor = following
    else:
        warnings.append(f"more than {MAX_PAGES} pages of {method}; kept {len(entries)}")
    if nameless:
        what, more = shorten(one_line(repr(nameless[0])), 100), len(nameless) - 1
        warnings.append(
            f"left out an entry of {method} without a {key}: {what}" + (f"; and {more} more like it" if more else "")
        )
    return entries


async def listen(session: Session, filters: Mapping[str, Any]) -> None:
    """Keep a `subscriptions/listen` stream with these `filters` open until it ends (2026-07-28)."""
    try:
        await session.request("subscriptions/listen", {"notifications": dict(filters)})
    except (RpcError, UpstreamFailure) as error:
        log.debug("server %r: its subscription ended: %s", session.peer.server, error)
