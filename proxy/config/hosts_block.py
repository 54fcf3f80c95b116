"""The `hosts:` block -> `HostTable`: every cell of the table of hosts can be overridden, and rows can be added.

hosts:
  unnamed: cursor          # the row of clients that do not say who they are
  rows:
    claude-code: {description: 2048, slots: [search, describe, call]}
    my-client: {client_names: [my-client], like: openai-1024}
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from proxy.config.document import Node, present
from proxy.config.fields import Reader, unknown_key
from proxy.errors import ConfigError
from proxy.hosts import ROWS, UNKNOWN, HostRow, HostTable, Slot

KEYS = ("rows", "unnamed")
CELLS = tuple(f.name for f in fields(HostRow) if f.name != "name")
_LIKE = "like"
_SLOTS: tuple[Slot, ...] = ("search", "describe", "call", "parameter")
_NUMBERS = ("description", "parameter", "instructions", "first_line", "result", "tool_name_limit", "tools")
_SHORTEST_DESCRIPTION = 512
"""Less would not even hold our guidance."""
_NOTHING = frozenset({"none", "null", "unlimited"})


def host_table(node: Node | None, reader: Reader) -> HostTable:
    """The table with the block's changes."""
    if not present(node):
        return HostTable()
    if not node.is_map:
        reader.complain(node, "expected `rows:` and `unnamed:` below it")
        return HostTable()
    for key, child in node.items.items():
        if key not in KEYS:
            reader.complain(child, unknown_key(key, KEYS))
    rows = {row.name: row for row in ROWS}
    block = node.items.get("rows")
    if present(block) and not block.is_map:
        reader.complain(block, "expected a mapping, one `name:` per host")
    changed = block.items if block is not None else {}
    for name, child in changed.items():
        rows[name] = _row(name, child, rows, reader)
    # A name that a row of the configuration claims is taken from the row that had it.
    claimed = {client for name in changed for client in rows[name].client_names}
    for name, row in rows.items():
        if name not in changed and claimed.intersection(row.client_names):
            kept = tuple(client for client in row.client_names if client not in claimed)
            rows[name] = replace(row, client_names=kept)
    table = HostTable(tuple(rows.values()), reader.text(node.items.get("unnamed")))
    try:
        table.row_for(None)
    except ConfigError as error:
        reader.complain(node.items["unnamed"], str(error).removeprefix("host_row: "))
        return replace(table, unnamed=None)
    return table


def _row(name: str, node: Node, rows: Mapping[str, HostRow], reader: Reader) -> HostRow:
    base = rows.get(name) or replace(UNKNOWN, name=name, source="the configuration")
    if not node.is_map:
        reader.complain(node, "expected cells such as `description: 1024`")
        return base
    if present(like := node.items.get(_LIKE)):
        other = rows.get(reader.text(like) or "")
        if other is None:
            reader.complain(like, f"expected one of {', '.join(rows)}")
        else:
            base = replace(other, name=name, client_names=base.client_names)
    values: dict[str, Any] = {}
    for key, child in node.items.items():
        if key == _LIKE:
            continue
        if key not in CELLS:
            reader.complain(child, unknown_key(key, (*CELLS, _LIKE)))
        else:
            values |= _cell(key, child, reader)
    return replace(base, **values)


def _cell(key: str, node: Node, reader: Reader) -> dict[str, Any]:
    """The value of one cell; nothing where it cannot be used. `null` and `none` mean that there is no limit."""
    nothing = not present(node) or (isinstance(node.value, str) and node.value.strip().lower() in _NOTHING)
    if key in _NUMBERS or key == "patience":
        if nothing:
            return {key: None}
        found = reader.any_number(node)
        least = _SHORTEST_DESCRIPTION if key == "description" else 0
        if found is None or found < least:
            reader.complain(node, f"expected a number of at least {least}, or none")
            return {}
        return {key: found if key == "patience" else int(found)}
    if key == "slots":
        words = reader.texts(node) or ()
        if not words or words[0] != "search" or any(w not in _SLOTS for w in words) or len(set(words)) < len(words):
            reader.complain(node, f"expected a list of {', '.join(_SLOTS)} that begins with search")
            return {}
        return {key: cast(tuple[Slot, ...], words)}
    if key in ("client_names", "reserved"):
        return {key: reader.texts(node) or ()}
    if key == "deferred":
        return {key: reader.boolean(node, False)}
    text = reader.text(node) or ""
    if key == "tool_name" and not _is_form(text):
        reader.complain(node, "expected a form such as mcp__{server}__{tool}")
        return {}
    return {key: text}


def _is_form(text: str) -> bool:
    try:
        return "x" in text.format(server="", tool="x")
    except (KeyError, IndexError, ValueError):
        return False
