"""An upstream's result as the client's era allows it on the wire; unknown fields stay."""

import json
from collections.abc import Mapping
from typing import Any, cast


def adapt(result: Mapping[str, Any], *, modern: bool) -> dict[str, Any]:
    """A shallow copy of a tool's result for a client of that era.

    A handshake client gets no `resultType`, no question it cannot answer, and no `structuredContent` that is not an
    object. Where there is no content block, `structuredContent` is added as text first, because most hosts show a
    model nothing else. Blocks that no client could read (not an object, or text without a string) become text, so
    that the others arrive.
    """
    adapted: dict[str, Any] = dict(result)
    if adapted.get("resultType") == "input_required":
        if modern:
            return adapted
        asked = json.dumps(adapted.get("inputRequests") or {}, ensure_ascii=False)
        text = f"The tool asks for input that this client cannot give: {asked}"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    structured = adapted.get("structuredContent")
    content = adapted["content"] = _blocks(adapted.get("content"))
    if not content and structured is not None:
        adapted["content"] = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    elif any(map(_unreadable, content)):
        adapted["content"] = [_readable(block) if _unreadable(block) else block for block in content]
    if not modern:
        adapted.pop("resultType", None)
        if "structuredContent" in adapted and not isinstance(structured, dict):
            del adapted["structuredContent"]
    return adapted


def _blocks(content: object) -> list[object]:
    """The blocks of a result; what is sent without the list around it is one."""
    if isinstance(content, list):
        return cast(list[object], content)
    return [] if content is None else [content]


def _unreadable(block: object) -> bool:
    if not isinstance(block, dict):
        return True
    fields = cast(dict[str, Any], block)
    return fields.get("type") == "text" and not isinstance(fields.get("text"), str)


def _readable(block: object) -> dict[str, Any]:
    """A block that no client could read, as text (failure report R6: one such block cost the whole result)."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        fields = cast(dict[str, Any], block)
        text = fields.get("text")
        return {**fields, "text": "" if text is None else json.dumps(text, ensure_ascii=False)}
    return {"type": "text", "text": json.dumps(block, ensure_ascii=False)}
