"""The answer of search: matches that can be called at once, and misses that teach.

One match per line, name and signature first: what a call needs survives a cut line. 5 matches are about 400 tokens.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.bridge.answers import ANSWER_TOKENS, TopicOf, configured_topic, down, dump, result, rows, servers, tail
from proxy.bridge.reading import SearchRequest, read_search
from proxy.bridge.tools import MAX_QUERIES
from proxy.catalog import Catalog
from proxy.config import ToolSearchConfig
from proxy.search import Hits, Index, near_names
from proxy.signature import signature
from proxy.text import one_line, shorten
from proxy.tokens import estimate
from proxy.tool import Tool

_DESCRIPTION = 200
_SHORTEST_CUT = 60
"""A cut at a sentence's end must leave at least so many characters, else it is at a word."""
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^)\s]*\)")
_SENTENCE_END = re.compile(r"[.!?](?=\s)")
_LEAD = 2.0
"""The first match carries its schema when it scores so many times the second."""
_LEAD_TOKENS = 600
_SCHEMA_TOKENS = 5_000
"""With `detail: full`, a larger schema is left to describe, so that one tool cannot take the whole answer."""
_MORE = 5
"""Names of further matches: ranks 6 to 10 hold 2 points of recall, and a name costs 8 tokens."""
_ELSEWHERE = 3
"""Names from other servers where the one that was asked for has no match."""
_QUERY = 200
_EXTRA_TOKENS = 2_000
"""Kept back from the matches for the other keys of an answer; a quarter of a smaller room."""


def says_destructive(tool: Tool) -> bool:
    """By its annotations: what a server says of itself where nobody knows better."""
    return tool.annotations.get("destructiveHint") is True and tool.annotations.get("readOnlyHint") is not True


def search_answer(
    arguments: object,
    catalog: Catalog,
    index: Index,
    settings: ToolSearchConfig,
    *,
    unavailable: Mapping[str, str],
    topic_of: TopicOf = configured_topic,
    room: int = ANSWER_TOKENS,
    destructive: Callable[[Tool], bool] = says_destructive,
) -> dict[str, Any]:
    """Answer one call of search, as a CallToolResult dict; understands or teaches, never raises.

    `catalog` is the caller's view and `index` that view's index; `unavailable` has the reason for each server that
    cannot be reached now; `topic_of` gives the topics for answers that list the servers (`listed_topics`); `room` is in
    tokens (`room_in` the characters that the host keeps); `destructive` tells which matches are marked as such.
    """
    request = read_search(arguments, settings)
    server = _server_key(catalog, request.server) if request.server is not None else None
    matches = room - min(_EXTRA_TOKENS, room // 4)
    answer = _Answer(catalog, index, settings, unavailable, topic_of, destructive, request, server, matches)
    if request.server is not None and server is None:
        return result(answer.unknown_server(request.server))
    if not request.queries:
        return result(answer.page())
    if len(request.queries) == 1:
        return result(answer.single(request.queries[0]))
    return result(answer.several())


@dataclass(frozen=True, slots=True)
class _Line:
    """One match as text, with what it would be if only its name fitted."""

    text: str
    name: str

    @property
    def tokens(self) -> int:
        """About how many; to be asked only where it matters, because it costs as much as all the rest of a search."""
        return estimate(self.text)

    @property
    def most_tokens(self) -> int:
        """Never less than `tokens`, for nothing: a character is at most 1.6 of them, one of ASCII at most 1."""
        return len(self.text) if self.text.isascii() else 2 * len(self.text)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one answer is made from."""

    catalog: Catalog
    index: Index
    settings: ToolSearchConfig
    unavailable: Mapping[str, str]
    topic_of: TopicOf
    destructive: Callable[[Tool], bool]
    request: SearchRequest
    server: str | None
    """The key of the only one that is asked for."""
    room: int
    """Tokens that the matches may have."""

    def single(self, query: str) -> str:
        """The matches of one query."""
        request = self.request
        wanted = request.offset + request.limit
        hits = self.index.search(query, wanted + _MORE, self.server)
        end = max(wanted, hits.exact)
        shown = hits.matches[request.offset : end]
        lines = [self._line(tool, lead=n == 0 and self._leads(hits)) for n, (tool, _) in enumerate(shown)]
        kept, left = _fitting(lines, self.room)
        extra: dict[str, object] = {"omitted": left}
        if request.detail == "brief":
            extra["more"] = [tool.public_name for tool, _ in hits.matches[end : end + _MORE]]
        if hits.matched > end:
            extra |= {"matched": hits.matched, "next_offset": end}
        extra |= self._notes(hits, [tool for tool, _ in shown])
        if not shown:
            extra |= self._miss(query, hits)
        return self._text("matches", kept, extra)

    def several(self) -> str:
        """The matches of several queries, grouped; a tool that was shown already is a name only."""
        queries = self.request.queries[:MAX_QUERIES]
        seen: set[Tool] = set()
        groups: list[list[_Line]] = []
        notes: list[dict[str, object]] = []
        shown: list[Tool] = []
        missed = False
        for query in queries:
            hits = self.index.search(query, self.request.limit, self.server)
            lines: list[_Line] = []
            for tool, _ in hits.matches:
                lines.append(_name_only(tool) if tool in seen else self._line(tool))
                seen.add(tool)
                shown.append(tool)
            groups.append(lines)
            missed = missed or not lines
            near = near_names(self.catalog, query) if not lines else ()
            notes.append({"unmatched": _words(hits.unmatched), "near": list(near)})
        fitting = _fitting_groups(groups, self.room)
        results = [
            f'{{"query":{dump(shorten(one_line(query), _QUERY))},' + rows("matches", lines) + tail(note) + "}"
            for query, lines, note in zip(queries, fitting, notes, strict=True)
        ]
        left = sum(map(len, groups)) - sum(map(len, fitting))
        extra: dict[str, object] = {}
        if left:
            extra["omitted"] = f"{left} matches, to keep the answer short"
        if dropped := [shorten(one_line(q), _QUERY) for q in self.request.queries[MAX_QUERIES : 2 * MAX_QUERIES]]:
            extra["omitted_queries"] = dropped
        extra["unavailable"] = down(self.unavailable, None if missed else [t.server for t in shown])
        if missed:
            extra |= {"servers": servers(self.catalog, self.topic_of), "hint": self._advice()}
        return self._text("results", results, extra)

    def page(self) -> str:
        """One page of all tools in view, or of one server's."""
        request = self.request
        chosen = self.catalog.servers[self.server].tools if self.server is not None else self.catalog.tools
        limit = request.limit if request.limited else self.settings.max_search_limit
        lines = [self._line(tool) for tool in chosen[request.offset : request.offset + limit]]
        kept, _ = _fitting(lines, self.room)
        end = request.offset + len(kept)
        extra: dict[str, object] = {}
        if kept and end < len(chosen):
            extra["next_offset"] = end
        if self.server is None and request.offset == 0:
            extra["servers"] = servers(self.catalog, self.topic_of)
        if self.server is not None or request.offset == 0:
            extra["unavailable"] = down(self.unavailable, None if self.server is None else [self.server])
        if not kept:
            extra["hint"] = f"Nothing from {request.offset} on: there are {len(chosen)} tools."
        return self._text("matches", kept, extra)

    def unknown_server(self, name: str) -> str:
        """Nothing, and which servers there are."""
        shown = shorten(one_line(name), _QUERY)
        near = difflib.get_close_matches(shown, [one_line(key) for key in self.catalog.servers], n=3)
        extra: dict[str, object] = {
            "servers": servers(self.catalog, self.topic_of),
            "unavailable": down(self.unavailable),
            "hint": f"There is no server {shown!r}." + (f" Near names: {', '.join(near)}." if near else ""),
        }
        return self._text("matches", [], extra)

    def _text(self, key: str, lines: list[str], extra: Mapping[str, object]) -> str:
        return "{" + rows(key, lines) + f',"total":{len(self.catalog.tools)}' + tail(extra) + "}"

    def _line(self, tool: Tool, *, lead: bool = False) -> _Line:
        if self.request.detail == "names":
            return _name_only(tool)
        match: dict[str, object] = {
            "name": tool.public_name,
            "signature": signature(tool.input_schema, describe=self.settings.describe_name),
            "description": brief(tool.description or tool.title or ""),
            "server": one_line(tool.server),
        }
        if self.destructive(tool):
            match["risk"] = "destructive"
        if lead or self.request.detail == "full":
            schema = dump(tool.input_schema)
            size = estimate(schema)
            if size <= (_LEAD_TOKENS if lead else _SCHEMA_TOKENS):
                return _Line(f'{dump(match)[:-1]},"inputSchema":{schema}}}', tool.public_name)
            if not lead:
                match["omitted"] = f"inputSchema, {size} tokens: see {self.settings.describe_name}"
        return _Line(dump(match), tool.public_name)

    def _leads(self, hits: Hits) -> bool:
        """Whether the first match stands out enough to carry its schema."""
        if self.request.offset or self.request.detail != "brief" or not hits.matches:
            return False
        if hits.exact == 1 or len(hits.matches) == 1:
            return True
        return not hits.exact and hits.matches[0][1] >= _LEAD * hits.matches[1][1]

    def _notes(self, hits: Hits, shown: list[Tool]) -> dict[str, object]:
        return {
            "unmatched": _words(hits.unmatched),
            # a word that nothing has may be one of a server that is down
            "unavailable": down(self.unavailable, None if hits.unmatched or not shown else [t.server for t in shown]),
        }

    def _miss(self, query: str, hits: Hits) -> dict[str, object]:
        if hits.matches:
            return {"hint": f"Nothing from {self.request.offset} on: {len(hits.matches)} tools match."}
        elsewhere = self.index.search(query, _ELSEWHERE).matches if self.server is not None else ()
        return {
            "elsewhere": [tool.public_name for tool, _ in elsewhere],
            "near": list(near_names(self.catalog, query)),
            "servers": servers(self.catalog, self.topic_of),
            "hint": self._advice(),
        }

    def _advice(self) -> str:
        if not self.catalog.tools:
            return "No tools are known: see which servers are unavailable, and try again later."
        example = next((s.key for s in self.catalog.servers.values() if s.tools), "")
        return (
            "Nothing matched. Ask with verb + product noun, two to four words in the tools' language, one capability "
            "per query; try another noun; or page through a server: "
            f"{self.settings.search_name}({dump({'server': one_line(example)})})."
        )


def brief(text: str) -> str:
    """A description in one line of at most 200 characters, cut after a sentence if that leaves enough."""
    line = _LINK.sub(r"\1", one_line(text[: 20 * _DESCRIPTION]))
    if len(line) <= _DESCRIPTION:
        return line
    ends = [match.end() for match in _SENTENCE_END.finditer(line, 0, _DESCRIPTION + 1)]
    if ends and ends[-1] >= _SHORTEST_CUT:
        return line[: ends[-1]]
    return shorten(line, _DESCRIPTION)


def _name_only(tool: Tool) -> _Line:
    return _Line(dump({"name": tool.public_name}), tool.public_name)


def _words(unmatched: tuple[str, ...]) -> list[str]:
    return [one_line(word)[:64] for word in unmatched[:20]]


def _fitting(lines: list[_Line], room: int) -> tuple[list[str], list[str]]:
    """The lines that fit into an answer, best first, and the names of the others. The first always fits."""
    if sum(line.most_tokens + 1 for line in lines) <= room:
        return [line.text for line in lines], []
    kept: list[str] = []
    for number, line in enumerate(lines):
        room -= line.tokens + 1
        if room < 0 and number:
            return kept, [other.name for other in lines[number : number + 20]]
        kept.append(line.text)
    return kept, []


def _fitting_groups(groups: list[list[_Line]], room: int) -> list[list[str]]:
    """The same over several queries: all first matches, then all second ones, and so on."""
    if sum(line.most_tokens + 1 for lines in groups for line in lines) <= room:
        return [[line.text for line in lines] for lines in groups]
    kept: list[list[str]] = [[] for _ in groups]
    for rank in range(max(map(len, groups), default=0)):
        for number, lines in enumerate(groups):
            if rank < len(lines):
                room -= lines[rank].tokens + 1
                if room < 0:
                    return kept
                kept[number].append(lines[rank].text)
    return kept


def _server_key(catalog: Catalog, name: str) -> str | None:
    """The server that `name` means: its key, in any case and with any separators, if only one fits."""
    if name in catalog.servers:
        return name
    plain = re.sub(r"[\W_]+", "", name).casefold()
    found = [key for key in catalog.servers if re.sub(r"[\W_]+", "", key).casefold() == plain]
    return found[0] if len(found) == 1 else None
