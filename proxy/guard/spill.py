"""Results that are too long for a context: head and tail go to the client, the rest waits to be read.

What is kept is kept in this process's memory only, for a limited time and up to a limited size, and is given to nobody
but the caller whose call it was.
"""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from proxy.catalog import Server, make_server
from proxy.config import ServerConfig
from proxy.tool import Tool

SERVER = "narrow_waist"
READ = "read_result"
KEPT_FOR = 30 * 60.0
"""Seconds after its last use that a result is kept."""
KEPT_SIZE = 64 * 1024 * 1024
"""Characters of all kept results together; beyond it the one that was used longest ago goes."""
_MATCHES = 20
_AROUND = 120
_TAIL_PART = 4
"""The tail is one part in four of what is shown: errors and totals stand at the end, the start says what it is."""

TOOL: Mapping[str, Any] = {
    "name": READ,
    "description": "Read on in a result that was too long to be shown whole.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id that the shortened result names"},
            "offset": {"type": "integer", "minimum": 0, "description": "First character to read, default 0"},
            "search": {"type": "string", "description": "Instead of reading on: where this text stands"},
        },
        "required": ["id"],
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


def reading_server() -> Server:
    """The built-in server whose one tool reads on."""
    return make_server(CONFIG, [TOOL])


CONFIG = ServerConfig(SERVER, "stdio", description="read on in long results")


@dataclass
class _Kept:
    owner: object
    tool: Tool
    text: str
    page: int
    until: float


class Spill:
    """The results that wait to be read."""

    def __init__(self, limits: Mapping[str, int], call_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`limits`: server key -> characters; `call_name`: the tool through which the built-in is called."""
        self._limits, self._call, self._clock = limits, call_name, clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def follow(self, before: "Spill") -> None:
        """Give what it has kept too."""
        self._kept = before._kept

    def bounded(self, tool: Tool, result: dict[str, Any], owner: object) -> dict[str, Any]:
        """`result`, or where it is longer than its server's limit, a copy with head, tail and how to read on.

        Texts count (also in embedded resources, and `structuredContent` where there is no text); images and other
        blocks stay as they are.
        """
        limit = self._limits.get(tool.server, 0)
        if limit <= 0:
            return result
        content = result.get("content")
        blocks = cast(list[Any], content) if isinstance(content, list) else []
        texts = [text for block in blocks if (text := _text(block)) is not None]
        structured = result.get("structuredContent")
        if not texts and structured is not None:
            texts = [json.dumps(structured, ensure_ascii=False)]
        whole = "\n".join(texts)
        if len(whole) <= limit:
            if structured is None or len(json.dumps(structured, ensure_ascii=False)) <= limit:
                return result
            return {k: v for k, v in result.items() if k != "structuredContent"}
        ident = self._keep(whole, limit, owner, tool)
        others = [block for block in blocks if _text(block) is None]
        short = {k: v for k, v in result.items() if k != "structuredContent"}
        return {**short, "content": [{"type": "text", "text": self._cut(whole, limit, ident)}, *others]}

    def _cut(self, whole: str, limit: int, ident: str) -> str:
        tail = limit // _TAIL_PART
        head = limit - tail
        left = len(whole) - limit
        how = json.dumps({"name": f"{SERVER}__{READ}", "arguments": {"id": ident, "offset": head}})
        find = json.dumps({"id": ident, "search": "..."})
        note = (
            f"[{left:,} of {len(whole):,} characters are left out here. Read on: {self._call}({how}); "
            f"or find a text in all of it with the arguments {find}.]"
        )
        return f"{whole[:head]}\n{note}\n{whole[-tail:] if tail else ''}"

    def read(
        self, arguments: Mapping[str, Any], owner: object, may: Callable[[Tool], bool] = lambda _: True
    ) -> dict[str, Any]:
        """Answer one call of the built-in. What is another's is answered as what does not exist, and so is what came of
        a tool that the owner (`may`) must not call any more.
        """
        self._expire()
        ident = arguments.get("id")
        kept = self._kept.get(ident) if isinstance(ident, str) else None
        if kept is None or kept.owner != owner or not may(kept.tool):
            text = (
                f"There is no kept result with that id: it was kept for {KEPT_FOR / 60:.0f} minutes, or the proxy was "
                "started anew. Call the tool again."
            )
            return {"content": [{"type": "text", "text": text}], "isError": True}
        kept.until = self._clock() + KEPT_FOR
        self._kept.move_to_end(cast(str, ident))
        search = arguments.get("search")
        text = _found(kept, search) if isinstance(search, str) and search else _page(kept, arguments.get("offset"))
        return {"content": [{"type": "text", "text": text}]}

    def _keep(self, text: str, page: int, owner: object, tool: Tool) -> str:
        self._expire()
        ident = secrets.token_hex(8)
        self._kept[ident] = _Kept(owner, tool, text, page, self._clock() + KEPT_FOR)
        size = sum(len(kept.text) for kept in self._kept.values())  # another configuration's calls may add to it too
        while size > KEPT_SIZE and len(self._kept) > 1:
            size -= len(self._kept.popitem(last=False)[1].text)
        return ident

    def _expire(self) -> None:
        now = self._clock()
        for ident in [ident for ident, kept in self._kept.items() if kept.until <= now]:
            del self._kept[ident]


def _text(block: object) -> str | None:
    """The text of a block that has one."""
    if not isinstance(block, dict):
        return None
    fields = cast(dict[str, Any], block)
    text = fields.get("text")
    if fields.get("type") == "resource" and isinstance(fields.get("resource"), dict):
        text = cast(dict[str, Any], fields["resource"]).get("text")
    elif fields.get("type") != "text":
        return None
    return text if isinstance(text, str) else None


def _page(kept: _Kept, offset: object) -> str:
    start = min(max(offset, 0), len(kept.text)) if isinstance(offset, int) else 0
    end = min(start + kept.page, len(kept.text))
    more = f"go on with offset {end}" if end < len(kept.text) else "this is the end"
    return f"{kept.text[start:end]}\n[characters {start:,} to {end:,} of {len(kept.text):,}; {more}]"


def _found(kept: _Kept, search: str) -> str:
    """The places of a text, with what stands around each."""
    text, wanted = kept.text.casefold(), search.casefold()
    if len(text) != len(kept.text):  # a few letters fold to several; then the case counts
        text, wanted = kept.text, search
    lines: list[str] = []
    size, total, place = 0, 0, text.find(wanted)
    while place >= 0:
        total += 1
        around = kept.text[max(0, place - _AROUND) : place + len(wanted) + _AROUND].replace("\n", " ")
        if len(lines) < _MATCHES and size + len(around) <= max(kept.page, 2 * _AROUND + len(wanted)):
            lines.append(f"offset {place}: …{around}…")
            size += len(around)
        place = text.find(wanted, place + max(1, len(wanted)))
    if not lines:
        return f"[{search[:80]!r} does not stand in the {len(kept.text):,} characters]"
    shown = f"{total} places" if total == len(lines) else f"the first {len(lines)} of {total} places"
    return "\n".join([*lines, f"[{shown}; read around one with its offset]"])
