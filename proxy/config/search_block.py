"""The `tool_search:` block -> `ToolSearchConfig`. Its values are clamped with a warning; they never stop the proxy."""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from proxy.config.document import Node, present
from proxy.config.fields import Reader, unknown_key
from proxy.config.settings import ToolSearchConfig
from proxy.errors import ConfigError
from proxy.hosts import HostTable

KEYS = (
    "enabled", "threshold_pct", "context_length", "listing", "listing_max_tokens", "search_default_limit",
    "max_search_limit", "eager_below_tokens", "names", "host_row", "tokenizer", "announce_changes",
    "semantic",
)  # fmt: skip
_NAME_KEYS = ("search", "describe", "call")

_SWITCH: Mapping[str, str] = {"auto": "auto", "on": "on", "off": "off", "true": "on", "false": "off"}
_ANNOUNCE: Mapping[str, str] = {"auto": "auto", "never": "never", "true": "auto", "false": "never"}
_SEMANTIC: Mapping[str, str] = {"off": "off", "on": "on", "false": "off", "true": "on"}
_TOKENIZER: Mapping[str, str] = {"o200k": "o200k", "estimate": "estimate"}

_LIMITS: Mapping[str, tuple[float, float]] = {
    "threshold_pct": (0, 100),
    "context_length": (1_000, 100_000_000),
    "listing_max_tokens": (200, 60_000),
    "max_search_limit": (1, 50),
    "search_default_limit": (1, 50),
    "eager_below_tokens": (0, 1_000_000),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What every model API takes as the name of a tool."""


def search_settings(
    node: Node | None, hosts: HostTable, reader: Reader, unknown: Callable[[Node, str], None]
) -> ToolSearchConfig:
    """The block's settings. `hosts` has the rows there are; `unknown` is told of keys that do not exist, may raise."""
    if not present(node):
        return ToolSearchConfig()
    if not node.is_map:
        options = {"auto": "auto", "true": "auto", "false": "off", "on": "on", "off": "off"}
        word = {True: "true", False: "false"}.get(node.value) if isinstance(node.value, bool) else None
        enabled = options[word] if word else reader.choice(node, options, "auto")
        return ToolSearchConfig(enabled=cast(Any, enabled))
    for key, child in node.items.items():
        if key not in KEYS:
            unknown(child, unknown_key(key, KEYS))
    items = node.items
    default = ToolSearchConfig()
    values: dict[str, Any] = {
        "enabled": reader.choice(items.get("enabled"), _SWITCH, default.enabled),
        "listing": reader.choice(items.get("listing"), _SWITCH, default.listing),
        "tokenizer": reader.choice(items.get("tokenizer"), _TOKENIZER, default.tokenizer),
        "announce_changes": reader.choice(items.get("announce_changes"), _ANNOUNCE, default.announce_changes),
        "semantic": reader.choice(items.get("semantic"), _SEMANTIC, default.semantic),
        "host_row": _host_row(items.get("host_row"), hosts, reader),
    }
    for key, (low, high) in _LIMITS.items():
        number = _clamped(items.get(key), getattr(default, key), low, high, reader)
        values[key] = number if key == "threshold_pct" else int(number)
    if values["search_default_limit"] > values["max_search_limit"]:
        if (chosen := items.get("search_default_limit")) is not None:
            reader.complain(chosen, f"is more than max_search_limit; {values['max_search_limit']} is used")
        values["search_default_limit"] = values["max_search_limit"]
    values |= _names(items.get("names"), reader, unknown)
    return ToolSearchConfig(**values)


def _clamped(node: Node | None, default: float, low: float, high: float, reader: Reader) -> float:
    if not present(node):
        return default
    found = reader.any_number(node)
    if found is None:
        reader.complain(node, f"expected a number from {low:g} to {high:g}; {default:g} is used")
        return default
    kept = min(max(found, low), high)
    if kept != found:
        reader.complain(node, f"expected a number from {low:g} to {high:g}; {kept:g} is used")
    return kept


def _host_row(node: Node | None, hosts: HostTable, reader: Reader) -> str | None:
    name = reader.text(node)
    if node is None or not name:
        return None
    try:
        return hosts.named(name).name
    except ConfigError as error:
        why = str(error).removeprefix("host_row: ")
        reader.complain(node, f"{why}; each client's own row is used")
        return None


def _names(node: Node | None, reader: Reader, unknown: Callable[[Node, str], None]) -> dict[str, str]:
    if not present(node):
        return {}
    if not node.is_map:
        reader.complain(node, "expected search:, describe: and call: below it; the default names are used")
        return {}
    default = ToolSearchConfig()
    names = {f"{key}_name": cast(str, getattr(default, f"{key}_name")) for key in _NAME_KEYS}
    for key, child in node.items.items():
        if key not in _NAME_KEYS:
            unknown(child, unknown_key(key, _NAME_KEYS))
        elif present(child):
            name = reader.text(child) or ""
            if _NAME.fullmatch(name):
                names[f"{key}_name"] = name
            else:
                reader.complain(
                    child, f"expected letters, digits, _ and -, at most 64; the name {names[f'{key}_name']!r} is used"
                )
    if len(set(names.values())) < len(names):
        reader.complain(node, "the three names must differ; the default names are used")
        return {}
    return names
