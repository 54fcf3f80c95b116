"""What we say to models, in a person's words: `tool_call({"name": "x", ...})` is `narrow-waist call x ...`.

Only what we say ourselves changes. It is known by the names that `for_people` gives to the three tools, which no
server's own text has.
"""

import json
import re
import shlex
from dataclasses import replace
from typing import Any

from proxy.config import Settings

_SEARCH, _DESCRIBE, _CALL = "narrow-waist search", "narrow-waist describe", "narrow-waist call"
_USE = re.compile(f"({_SEARCH}|{_DESCRIBE}|{_CALL})\\((?=\\{{)")


def for_people(settings: Settings) -> Settings:
    """Settings with which the proxy's advice names our commands."""
    names = replace(settings.tool_search, search_name=_SEARCH, describe_name=_DESCRIBE, call_name=_CALL)
    return replace(settings, tool_search=names)


def in_words(text: str) -> str:
    """`text` with each use of a tool as the command that does it."""
    parts: list[str] = []
    end = 0
    while (use := _USE.search(text, end)) is not None:
        parts.append(text[end : use.start()])
        try:
            given, stop = json.JSONDecoder().raw_decode(text, use.end())
        except ValueError:  # shortened
            given, stop = None, use.end()
        if isinstance(given, dict) and text.startswith(")", stop):
            parts.append(_command(use[1], given))  # pyright: ignore[reportUnknownArgumentType]
            end = stop + 1
        else:
            parts.append(use[0])
            end = use.end()
    return "".join((*parts, text[end:]))


def _command(program: str, given: dict[str, Any]) -> str:
    """The words to type. (A query is a word or more, a server an option; names are words.)"""
    words = [str(given[key]) for key in ("name", "query") if key in given]
    if "server" in given:
        words += ["--server", str(given["server"])]
    if "arguments" in given:
        words.append(json.dumps(given["arguments"], ensure_ascii=False))
    return f"{program} {shlex.join(words)}"
