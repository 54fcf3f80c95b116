"""`audit`: reads what the audit kept."""

import argparse
import json
from collections import deque
from typing import Any

from proxy.cli.common import settings
from proxy.errors import LIMITED, ConfigError
from proxy.guard.audit import read_entries
from proxy.text import one_line, shorten

_FINE = ("ok", "asked")


def run(options: argparse.Namespace) -> int:
    """Print the calls; raises ConfigError where none are kept."""
    config = settings(options).guard
    if config is None or config.audit is None:
        raise ConfigError("no audit is kept; write `audit: true` below `guard:` in the configuration")
    chosen = (entry for entry in read_entries(config.audit) if _wanted(entry, options))
    for entry in deque(chosen, maxlen=options.last or None):
        print(json.dumps(entry, ensure_ascii=False) if options.json else _line(entry))
    return 0


def _wanted(entry: dict[str, Any], options: argparse.Namespace) -> bool:
    given = {"server": options.server, "tool": options.tool, "caller": options.caller}
    if any(value is not None and entry.get(key) != value for key, value in given.items()):
        return False
    return not options.failed or entry.get("outcome") not in _FINE


def _line(entry: dict[str, Any]) -> str:
    """One call in a line; what was kept is a caller's text, so nothing in it may move the cursor."""
    who = "/".join(str(entry[key]) for key in ("caller", "client", "profile") if entry.get(key))
    kind = str(entry.get("kind", "tool"))
    place = f"{entry['server']}/{entry.get(kind)}" if entry.get("server") else _unplaced(entry, kind)
    tool = f"{'' if kind == 'tool' else kind + ' '}{place}"
    parts = [str(entry.get("time")), who, tool, str(entry.get("risk") or "-"), str(entry.get("outcome"))]
    return shorten(one_line(f"{'  '.join(parts)}  {entry.get('ms')} ms  {entry.get('received')} chars"), 400)


def _unplaced(entry: dict[str, Any], kind: str) -> str:
    """A name that stands for nothing of a server, and why."""
    return f"{entry.get(kind)} ({'not looked up' if entry.get('outcome') == LIMITED else 'unknown'})"
