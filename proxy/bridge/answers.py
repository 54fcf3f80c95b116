"""What search and describe answers have in common: one text block of JSON, one match per line, bounded."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from proxy.catalog import Catalog, Server
from proxy.listing import TextCache
from proxy.text import first_sentence, one_line, shorten

TopicOf = Callable[[Server], str]

ANSWER_TOKENS = 8_000
"""Claude Code warns above 10,000 tokens of a result and refuses 25,000 (failure report L8)."""
_CHARACTERS_PER_TOKEN = 5
"""More than a token of an answer ever has, so that a limit of characters holds."""
_TOPIC = 80
_REASON = 200
_SERVERS = 40
_DOWN = 15


def room_in(characters: int | None) -> int:
    """The tokens that an answer may have where a host keeps so many characters of a result."""
    return ANSWER_TOKENS if characters is None else min(ANSWER_TOKENS, characters // _CHARACTERS_PER_TOKEN)


def dump(value: object) -> str:
    """`value` as compact JSON that can always be sent: what UTF-8 cannot hold is escaped, NaN and Infinity are null."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return dump(json.loads(json.dumps(value), parse_constant=lambda _: None))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def result(text: str, *, error: bool = False) -> dict[str, Any]:
    """A CallToolResult of one text block."""
    found: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if error:
        found["isError"] = True
    return found


def rows(key: str, lines: Sequence[str]) -> str:
    """`"key":[` with one line per item, so that a host that cuts between lines leaves whole matches."""
    return f"{dump(key)}:[" + ("\n" + ",\n".join(lines) + "\n" if lines else "") + "]"


def tail(extra: Mapping[str, object]) -> str:
    """The further keys of an answer, each after a comma; those without a value are left out, objects by line."""
    parts: list[str] = []
    for key, value in extra.items():
        entries = _entries(value)
        if len(entries) > 1:
            lines = [f"{dump(name)}:{dump(text)}" for name, text in entries.items()]
            parts.append(f",{dump(key)}:{{\n" + ",\n".join(lines) + "\n}")
        elif value:
            parts.append(f",{dump(key)}:{dump(value)}")
    return "".join(parts)


def _entries(value: object) -> dict[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


def listed_topics(cache: TextCache) -> TopicOf:
    """The topics that the listing gives to servers: nouns of their tools' names where nothing else is known."""

    def topic_of(server: Server) -> str:
        texts = cache.of(server)
        summaries = [text for width, text in texts.summaries if width <= _TOPIC] if texts else []
        return summaries[-1].partition("): ")[2] if summaries else ""

    return topic_of


def configured_topic(server: Server) -> str:
    """The topic from the config, or the one that the server gives itself."""
    return first_sentence(server.topic, _TOPIC) if server.topic else ""


def servers(catalog: Catalog, topic_of: TopicOf) -> dict[str, str]:
    """Each server with its number of tools and its topic."""
    found: dict[str, str] = {}
    for server in list(catalog.servers.values())[:_SERVERS]:
        tools = len(server.tools)
        count = (f"{tools} tool{'s' if tools != 1 else ''}") if server.known else "tools not known yet"
        topic = one_line(topic_of(server))
        found[one_line(server.key)] = f"{count}: {topic}" if topic else count
    if len(catalog.servers) > _SERVERS:
        found["…"] = f"and {len(catalog.servers) - _SERVERS} more servers"
    return found


def down(unavailable: Mapping[str, str], keys: Sequence[str] | None = None) -> dict[str, str]:
    """The servers that cannot be reached now, with the reason; of all or of `keys`."""
    chosen = sorted(unavailable) if keys is None else [key for key in dict.fromkeys(keys) if key in unavailable]
    found = {one_line(key): shorten(one_line(unavailable[key]), _REASON) for key in chosen[:_DOWN]}
    if len(chosen) > _DOWN:
        found["…"] = f"and {len(chosen) - _DOWN} more servers"
    return found
