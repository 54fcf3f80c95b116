"""The parameter list of a tool in one line, for search answers.

`owner: str, repo: str, state?: 'open'|'closed'='open', labels?: [str], …+7`: required parameters first, in schema
order, then optional ones. Most tools can be called from it at once; where a required place stays vague, the line ends
in `(see tool_describe)`. Rules and figures: 300 characters keep 94 % callable, 200 would keep 93.7, 400 94.2.
"""

from collections.abc import Mapping
from typing import Any

from proxy.signature.render import PASSES, Renderer, name_text
from proxy.signature.schema import Fields, Reader

__all__ = ["signature"]

_REQUIRED_OVERRUN = 2
"""Required parameters may exceed the limit by this factor before they lose their types too."""
_ALTERNATIVES = 4


def signature(schema: Mapping[str, Any], limit: int = 300, describe: str = "tool_describe") -> str:
    """The parameters of `schema` in about `limit` characters; "" where there are none. Never raises.

    `describe` is the name of the tool that shows the whole schema, for the closing mark.
    """
    reader = Reader(schema)
    root = reader.resolve(schema)
    fields = reader.fields(root)
    if fields is None:
        return ""
    alternatives = _alternatives(fields)
    room = limit - len(alternatives)
    for options in PASSES:
        renderer = Renderer(Reader(schema), options)
        required, optional = renderer.parameters(fields)
        text = ", ".join([*required, *optional])
        if len(text) <= room:
            break
    else:
        text, renderer = _squeezed(schema, fields, room)
    marked = renderer.vague or bool(fields.alternatives) or fields.conditional
    return text + alternatives + (f" (see {describe})" if marked else "")


def _alternatives(fields: Fields) -> str:
    if not fields.alternatives:
        return ""
    shown = ["+".join(map(name_text, names)) for names in fields.alternatives[:_ALTERNATIVES]]
    more = len(fields.alternatives) - _ALTERNATIVES
    return f" (one of: {' | '.join(shown)}{f' | …+{more}' if more > 0 else ''})"


def _squeezed(schema: Mapping[str, Any], fields: Fields, room: int) -> tuple[str, Renderer]:
    """Required parameters with types, if need be with their objects closed; optional ones by name while they fit."""
    renderer = Renderer(Reader(schema), PASSES[-1])
    required, _ = renderer.parameters(fields)
    if len(", ".join(required)) > room:
        renderer = Renderer(Reader(schema), PASSES[-1], closed=True)
        required, _ = renderer.parameters(fields)
    parts: list[str] = []
    length = 0
    for number, part in enumerate(required):
        if length + len(part) > _REQUIRED_OVERRUN * room:
            parts.append(f"…+{len(required) - number} required")
            renderer.vague = True
            return ", ".join(parts), renderer
        parts.append(part)
        length += len(part) + 2
    names = [f"{name_text(name)}?" for name in fields.properties if name not in fields.required]
    for number, name in enumerate(names):
        rest = f"…+{len(names) - number}"
        if length + len(name) + (len(rest) + 2 if number + 1 < len(names) else 0) > room:
            parts.append(rest)
            break
        parts.append(name)
        length += len(name) + 2
    return ", ".join(parts), renderer
