"""The index: from a catalog to ranked tools."""

import copy
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from proxy.catalog import SEPARATORS, Catalog
from proxy.search.fields import FIELDS, NAME, ToolWords, server_words, tool_words
from proxy.search.postings import Floats, Ints, Postings, bm25f, coverage, length_norm, merge
from proxy.search.semantic import Meaning, mixed
from proxy.search.wording import LONGEST, SHORT_FOR, SHORTEST, slips
from proxy.text import STOP_WORDS, Tokenizer, normal_forms
from proxy.tool import Tool

WEIGHTS = np.array([3.0, 1.5, 1.0, 1.0, 0.4, 0.5, 0.1], dtype=np.float32)
"""Of the `FIELDS`. Doubling or halving any one moves recall@5 by at most half a point."""
SLOPES = np.array([0.4, 0.5, 0.75, 0.75, 0.75, 0.0, 0.0], dtype=np.float32)
"""BM25's b of each field: how far a word in a longer field counts less."""
SURFACE = 0.5
"""Weight of the words as written, beside their normal forms: tells `parameter` from `parameters`."""
COVERAGE = 0.6
"""A tool whose name stands wholly in the query gains this much of its score."""
PART = 0.5
"""Weight of each of the several words that one written word stands for (GitHub: git, hub, github)."""
JOINED = 0.5
"""Weight of `work flow` read as `workflow`, and of an unknown `workflow` read as `work flow`."""
SHORTENED = 0.3
"""Weight of a tool name's word that begins a query's word (repo for repository)."""
LENGTHENED = 0.3
"""Weight of the words that an unknown word begins (kube: kubernetes)."""
MEANT = 0.3
"""Weight of what an abbreviation is short for: tools may use it as it is (a DB instance), and .5 costs the API more."""
LATE = 0.7
LATE_FROM = 8
"""Words of a long query from the ninth on are details: they count less (R@1 +.8/+.3)."""

_QUERY_CHARACTERS = 4_000
_QUERY_WORDS = 64
_NAME_CHARACTERS = 400
_EXTENSIONS = 8
_RESPELLINGS = 8
"""Unknown words of a query that are tried with a slip of spelling: 500 look-ups each."""
_PARTIAL = 3
"""Letters of a word that may be looked for inside other words."""
_WRITTEN = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"[^\s,;\"'`()\[\]{}<>]+")
_IDENTIFIER = re.compile(r"[^\W_][_./:-]+[^\W_]|[a-z][A-Z]")
"""What makes one word of a longer query a name: parts joined by a separator, or camel case."""


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found."""

    matches: tuple[tuple[Tool, float], ...] = ()
    """Best first with their scores; the tools named exactly come first."""
    exact: int = 0
    """How many of `matches` were named exactly."""
    matched: int = 0
    """How many tools have anything in common with the query, whatever the limit."""
    unmatched: tuple[str, ...] = ()
    """Words of the query, as written, that no tool searched here has."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The parts of one tool's score: (sum of `words` + sum of `surface`) x `coverage` + `meaning`."""

    words: Mapping[str, float] = field(default_factory=dict[str, float])
    surface: Mapping[str, float] = field(default_factory=dict[str, float])
    coverage: float = 1.0
    meaning: float = 0.0

    @property
    def score(self) -> float:
        """The score that ranks."""
        return (sum(self.words.values()) + sum(self.surface.values())) * self.coverage + self.meaning


@dataclass(frozen=True, slots=True)
class _Query:
    words: Mapping[str, float]
    """Words as written -> weight."""
    forms: Mapping[str, float]
    """Normal forms, of the words and of what they may stand for -> weight."""
    chunks: tuple[tuple[str, tuple[str, ...]], ...]
    """Each written word with the forms it gave."""


class Index:
    """The search index of one catalog or view.

    `words` are those of an earlier index: tools found there (by identity) are not counted again.
    """

    def __init__(self, catalog: Catalog, words: Mapping[Tool, ToolWords] | None = None) -> None:
        known = words or {}
        tokenizer = Tokenizer()
        self._meaning: Meaning | None = None
        self.tools = catalog.tools
        self.words: Mapping[Tool, ToolWords] = {
            tool: found if (found := known.get(tool)) is not None else tool_words(tool, tokenizer)
            for tool in self.tools
        }
        self._spans = _spans(catalog)
        self._names: dict[str, tuple[int, ...]] = {}
        for number, tool in enumerate(self.tools):
            for name in dict.fromkeys((tool.name, tool.public_name)):
                folded = name.casefold()
                key = name if folded == name else folded  # the string that is there already takes no memory
                if number not in (numbers := self._names.get(key, ())):
                    self._names[key] = (*numbers, number)

        size = len(self.tools)
        ids: dict[str, int] = {}
        terms, documents, counts = self._occurrences(catalog, ids, tokenizer)
        written = merge(terms, documents, counts, size)
        norm = length_norm(written, size, WEIGHTS, SLOPES)
        self._surface = bm25f(ids, written, norm)
        form_ids: dict[str, int] = {}
        form_of = np.array([form_ids.setdefault(f, len(form_ids)) for f in normal_forms(list(ids))], dtype=np.int64)
        folded = merge(form_of[written.terms], written.documents, written.counts, size)
        self._forms = bm25f(form_ids, folded, norm)
        self._cover = coverage(form_ids, folded, NAME, size)

    def _occurrences(
        self, catalog: Catalog, ids: dict[str, int], tokenizer: Tokenizer
    ) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
        """Every tool's words and its server's, numbered in `ids`: term, document and a row of counts each."""
        terms: list[int] = []
        for tool in self.tools:
            terms += [ids.setdefault(word, len(ids)) for word in self.words[tool].words]
        sizes = [len(self.words[tool].words) for tool in self.tools]
        documents = [np.repeat(np.arange(len(self.tools)), sizes)]
        table = [np.frombuffer(b"".join(self.words[t].counts for t in self.tools), np.uint8).reshape(-1, len(FIELDS))]
        columns = [np.array(terms, dtype=np.int64)]
        for server in catalog.servers.values():
            span = self._spans[server.key]
            found = server_words(server, tokenizer)
            own = [ids.setdefault(word, len(ids)) for word in found.words]
            columns.append(np.tile(np.array(own, dtype=np.int64), len(span)))
            documents.append(np.repeat(np.array(span, dtype=np.int64), len(own)))
            rows = np.frombuffer(found.counts, np.uint8).reshape(-1, len(FIELDS))
            table.append(np.tile(rows, (len(span), 1)))
        return np.concatenate(columns), np.concatenate(documents), np.concatenate(table)

    def with_meaning(self, meaning: Meaning | None) -> "Index":
        """The same index, which also ranks by meaning; `meaning` is of the same tools in the same order."""
        other = copy.copy(self)
        other._meaning = meaning
        return other

    def search(self, query: str, limit: int, server: str | None = None) -> Hits:
        """The best `limit` tools for `query`, of all servers or one.

        Tools named exactly (raw, public or qualified name, any case) come first and all survive the limit.
        Ties are in catalog order. An unknown `server` has no tools.
        """
        span = range(len(self.tools)) if server is None else self._spans.get(server, range(0))
        if not span:
            return Hits()
        read = self._read(query)
        scores = self._lexical(read)[span.start : span.stop]
        exact = [n - span.start for n in self._exact(query) if n in span]
        literal: list[int] = []
        if not exact and not scores.any():
            literal = [n - span.start for n in self._literal(query) if n in span]
        if self._meaning is not None and not literal:
            scores = mixed(scores, self._meaning.cosines(query)[span.start : span.stop])
        matched = len(literal) or int(np.count_nonzero(scores))
        best = literal or _best(scores, limit)
        named = set(exact)
        order = [*exact, *(n for n in best if n not in named)][: max(limit, len(exact))]
        unmatched = tuple(
            dict.fromkeys(c for c, forms in read.chunks if not any(self._forms.occurs(f, span) for f in forms))
        )
        matches = tuple((self.tools[span.start + n], float(scores[n])) for n in order)
        return Hits(matches, len(exact), max(matched, len(order)), unmatched)

    def explain(self, query: str, tool: Tool) -> Explanation:
        """The parts of the score of `tool`, for the one who asks why."""
        read = self._read(query)
        number = self.tools.index(tool)
        words = {f: w * self._forms.share(f, number) for f, w in read.forms.items()}
        surface = {x: SURFACE * w * self._surface.share(x, number) for x, w in read.words.items()}
        cover = sum(w * self._cover.share(f, number) for f, w in read.forms.items())
        words, surface = ({k: v for k, v in part.items() if v} for part in (words, surface))
        meaning = 0.0
        if self._meaning is not None and len(lexical := self._lexical(read)):
            meaning = float(mixed(lexical, self._meaning.cosines(query))[number] - lexical[number])
        return Explanation(words, surface, 1 + COVERAGE * cover, meaning)

    def _lexical(self, read: _Query) -> Floats:
        """The score of each tool by the words that it shares with the query."""
        scores, cover = np.zeros(len(self.tools), np.float32), np.zeros(len(self.tools), np.float32)
        _add(scores, self._surface, read.words, SURFACE)
        _add(scores, self._forms, read.forms)
        _add(cover, self._cover, read.forms)
        scores *= 1 + COVERAGE * cover
        return scores

    def _read(self, query: str) -> _Query:
        chunks = [(c, _telling(parts)) for c, parts in Tokenizer().chunks(query[:_QUERY_CHARACTERS])[:_QUERY_WORDS]]
        words: dict[str, float] = {}
        for number, (_, parts) in enumerate(chunks):
            weight = (PART if len(parts) > 1 else 1.0) * (LATE if number >= LATE_FROM else 1.0)
            for part in parts:
                words.setdefault(part, weight)
        form_of = dict(zip(words, normal_forms(list(words)), strict=True))
        forms: dict[str, float] = {}
        for word, form in form_of.items():
            forms.setdefault(form, words[word])
        stands_for = {word: (form, *self._instead(word, form)) for word, form in form_of.items()}
        for word, others in stands_for.items():
            for other in others[1:]:
                shorter = SHORTENED if form_of[word].startswith(other) else LENGTHENED
                forms.setdefault(other, words[word] * shorter)
        for word in filter(SHORT_FOR.__contains__, words):
            meant = [form for form in normal_forms(SHORT_FOR[word]) if form in self._forms]
            stands_for[word] = (*stands_for[word], *meant)
            for other in meant:
                forms[other] = max(forms.get(other, 0.0), words[word] * MEANT)
        apart = self._split(words)
        for word, other in self._respelled({w: f for w, f in form_of.items() if w not in apart}).items():
            # not told as known: whoever asks should see that the word was read as another
            forms[other] = max(forms.get(other, 0.0), words[word])
        for word, (first, second) in apart.items():
            split = normal_forms([first, second])
            stands_for[word] = (*stands_for[word], *split)
            for other in split:
                forms.setdefault(other, words[word] * JOINED)
        for pair, other in self._join(query).items():
            forms.setdefault(other, JOINED)
            stands_for |= {word: (*stands_for[word], other) for word in pair if word in stands_for}
        told = tuple((c, tuple(f for part in parts for f in stands_for[part])) for c, parts in chunks)
        return _Query(words, forms, told)

    def _instead(self, word: str, form: str) -> list[str]:
        """Other forms for one word: names' words that it begins with, and if it is unknown those that begin with it."""
        shorter = [form[:n] for n in range(3, len(form)) if form[:n] in self._cover]
        if form in self._forms or len(form) < 3:
            return shorter
        return shorter + self._extensions(form)

    def _extensions(self, form: str) -> list[str]:
        """Known forms that begin with `form`."""
        start = bisect_left(self._sorted_forms, form)
        return [f for f in self._sorted_forms[start : start + _EXTENSIONS] if f.startswith(form)]

    def _respelled(self, form_of: Mapping[str, str]) -> dict[str, str]:
        """Unknown words with one slip of spelling -> the form of the word that was meant, that of the most tools.

        The first letter is nearly always right (aloud is not cloud). Not a word that begins a known one (kube), nor
        one that may as well be a stop word (thier: their, tier).
        """
        unknown = [w for w, f in form_of.items() if f not in self._forms and w.isascii() and w.isalpha()]
        found: dict[str, str] = {}
        for word in [w for w in unknown if SHORTEST <= len(w) <= LONGEST][:_RESPELLINGS]:
            near = slips(word)
            known = [other for other in near if other in self._surface and other[0] == word[0]]
            if not known or near & STOP_WORDS or self._extensions(word):
                continue
            found[word] = min(known, key=lambda other: (-self._surface.documents(other), other))
        return dict(zip(found, normal_forms(list(found.values())), strict=True))

    def _split(self, words: Mapping[str, float]) -> dict[str, tuple[str, str]]:
        """Unknown words that are two known ones written together."""
        found: dict[str, tuple[str, str]] = {}
        for word in words:
            if len(word) < 6 or word in self._surface:
                continue
            for n in range(3, len(word) - 2):
                if word[:n] in self._surface and word[n:] in self._surface:
                    found[word] = word[:n], word[n:]
                    break
        return found

    def _join(self, query: str) -> dict[tuple[str, str], str]:
        """Neighbours that are one known word written apart; stop words count here (on call, log in, to do)."""
        written = _WRITTEN.findall(query[:_QUERY_CHARACTERS].casefold())[: 2 * _QUERY_WORDS]
        pairs = list(dict.fromkeys(pairwise(written)))
        found = zip(pairs, normal_forms([first + second for first, second in pairs]), strict=True)
        return {pair: form for pair, form in found if form in self._forms}

    @cached_property
    def _sorted_forms(self) -> list[str]:
        return sorted(self._forms)

    def _exact(self, query: str) -> list[int]:
        """The tools whose names stand in the query, in its order.

        A plain word of a longer query ("search issues") is no name, unless every word is one.
        """
        pieces = _PIECE.findall(query[:_QUERY_CHARACTERS])
        found = {piece: self._named(piece) for piece in dict.fromkeys(pieces)}
        every = all(found.values())
        numbers = list(dict.fromkeys((*self._named(query), *self._named(query.strip()))))  # names of white space exist
        for piece, tools in found.items():
            if every or _IDENTIFIER.search(piece):
                numbers += tools
        return list(dict.fromkeys(numbers))

    def _named(self, name: str) -> list[int]:
        """The tools that `name` names, in any case: raw, public or qualified."""
        folded = name.casefold()
        found = list(self._names.get(folded) or self._names.get(folded.rstrip(".:!?"), ()))
        if found or len(folded) > _NAME_CHARACTERS:
            return found
        for prefix in ("mcp__", "mcp_", ""):
            if not folded.startswith(prefix):
                continue
            rest = folded[len(prefix) :]
            for separator in (*SEPARATORS, "_") if prefix else SEPARATORS:
                at = rest.find(separator)
                while at > 0 and not found:
                    numbers = self._names.get(rest[at + len(separator) :], ())
                    found += [n for n in numbers if self.tools[n].server.casefold() == rest[:at]]
                    at = rest.find(separator, at + 1)
            found = found or list(self._names.get(rest, ()))
        return found

    def _literal(self, query: str) -> list[int]:
        """Tools whose name, title or description holds the query as it is written, else one of its words so.

        A stop word or one or two letters stand somewhere in nearly every text: they would answer with anything.
        """
        text, ends = self._texts
        folded = query[:_QUERY_CHARACTERS].casefold().strip()
        for needle in (folded, *(word for word in folded.split()[:_QUERY_WORDS] if _WRITTEN.search(word))):
            found: list[int] = []
            at = text.find(needle) if _tells(needle) else -1
            while at >= 0:
                number = bisect_right(ends, at)
                found.append(number)
                at = text.find(needle, ends[number])
            if found:
                return found
        return []

    @cached_property
    def _texts(self) -> tuple[str, list[int]]:
        """One line per tool, and where each line ends. Only queries without a known word need it."""
        lines = [
            " ".join(f"{t.name} {t.public_name} {t.title or ''} {t.description[:300]}".casefold().split()) + "\n"
            for t in self.tools
        ]
        return "".join(lines), list(accumulate(map(len, lines)))


def _telling(parts: Sequence[str]) -> Sequence[str]:
    """The parts of one written word that can tell tools apart: the s of k8s stands in every "user's"."""
    return [part for part in parts if len(part) > 1 or not part.isascii()] or parts


def _spans(catalog: Catalog) -> dict[str, range]:
    """Where each server's tools stand in `catalog.tools`."""
    spans: dict[str, range] = {}
    start = 0
    for server in catalog.servers.values():
        spans[server.key] = range(start, start + len(server.tools))
        start += len(server.tools)
    return spans


def _tells(needle: str) -> bool:
    """Whether a text that holds `needle` may be what was meant: not for stop words, nor for one or two ASCII letters.

    Signs (`%`, `->`), and one character of Chinese, which is a word, are rare enough to tell.
    """
    words = _WRITTEN.findall(needle)
    if not needle or "\n" in needle or (words and all(word in STOP_WORDS for word in words)):
        return False
    return len(needle) >= _PARTIAL or not (words and needle.isascii())


def _add(scores: Floats, postings: Postings, terms: Mapping[str, float], factor: float = 1.0) -> None:
    for term, weight in terms.items():
        if (found := postings.of(term)) is not None:
            scores[found[0]] += (factor * weight) * found[1]


def _best(scores: Floats, limit: int) -> list[int]:
    """The numbers of the `limit` highest positive scores, best first, ties by number."""
    candidates = np.flatnonzero(scores)
    if limit <= 0 or not len(candidates):
        return []
    found = scores[candidates]
    if limit < len(found):
        lowest = np.partition(found, len(found) - limit)[len(found) - limit]
        candidates = candidates[found >= lowest]
    order = np.argsort(-scores[candidates], kind="stable")[:limit]
    return [int(n) for n in candidates[order]]
