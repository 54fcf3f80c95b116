"""The forms of each server as rungs with a price, and the one fixed order in which servers climb them.

Cheapest next block first, stop at the first that does not fit: the listing is a prefix of that order, so a larger
budget never shows less of anybody. Skipping what does not fit, or value per token, would demote servers on a growing
budget (11 and 144 of 205 steps). Steps are taken in classes of 10 % of cost, whole or not at all: in four additions
of a server out of five the others stay as they are (29 % without classes), for 4 % of the budget.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from proxy.listing.texts import Lines, ServerTexts
from proxy.text import units

Count = Callable[[str], int]
"""Tokens of a line."""

_DROP_PCT = 95
"""A rung that costs at least this share of a richer one is not worth having."""
_CLASS = math.log(1.1)
_CLASS_BASE = 6
_SHORT_SUMMARY = 60


@dataclass(frozen=True)
class Rung:
    """One form of one server."""

    form: str
    """bare, summary-<characters of topic>, areas-<number of them>, names, families or full."""
    rank: int
    """0 for bare; larger shows more."""
    tokens: int
    """Of everything this form puts into the listing, line breaks included."""
    characters: int
    """UTF-16 units, counted likewise."""
    summary: str | None = None
    blocks: tuple[Lines, ...] = ()
    early: bool = False
    """Bought before anything longer of any server."""

    @property
    def whole(self) -> bool:
        """Whether the blocks hold every tool."""
        return bool(self.blocks) and not self.form.startswith("areas")


def entry_text(entry: str) -> str:
    """What one more server costs in a line of servers."""
    return f" {entry},"


def rungs_of(texts: ServerTexts, count: Count, *, names: bool) -> list[Rung]:
    """The rungs of a server, poorest and cheapest first; without `names` only bare and summaries."""
    entry = entry_text(texts.entry)
    bare = Rung("bare", 0, count(entry), units(entry))
    rungs: list[Rung] = []
    for width, line in texts.summaries:
        tokens, characters = _cost((line,), count)
        rungs.append(Rung(f"summary-{width}", 0, tokens, characters, summary=line, early=width <= _SHORT_SUMMARY))
    if names and texts.names:
        rungs += _area_rungs(texts, count)
        for form, lines in (("families" if texts.folded else "names", texts.names), ("full", texts.full)):
            tokens, characters = _cost(lines, count)
            rungs.append(Rung(form, 0, tokens + bare.tokens, characters + bare.characters, blocks=(lines,)))
    kept: list[Rung] = []
    for rung in reversed(rungs):
        if not kept or rung.tokens * 100 < kept[-1].tokens * _DROP_PCT:
            kept.append(rung)
    return [bare, *(replace(rung, rank=rank) for rank, rung in enumerate(reversed(kept), 1))]


def _cost(lines: Lines, count: Count) -> tuple[int, int]:
    """Tokens and UTF-16 units of lines, a line break after each."""
    return sum(count(line) + 1 for line in lines), sum(units(line) + 1 for line in lines)


def _area_rungs(texts: ServerTexts, count: Count) -> Iterable[Rung]:
    """The longest summary and ever more areas; all of them is the names rung."""
    if not texts.summaries:
        return
    summary = texts.summaries[-1][1]
    tokens, characters = _cost((summary,), count)
    for number, area in enumerate(texts.areas[:-1], 1):
        more_tokens, more_characters = _cost(area, count)
        tokens, characters = tokens + more_tokens, characters + more_characters
        yield Rung(f"areas-{number}", 0, tokens, characters, summary, texts.areas[:number])


@dataclass(frozen=True)
class Step:
    """One rise of one server by one rung."""

    key: str
    rung: Rung


def step_classes(ladders: Mapping[str, Sequence[Rung]]) -> list[list[Step]]:
    """All rises in the order in which they are bought, in the classes that are bought whole.

    Costs rise along a ladder, so no step comes before its predecessor.
    """
    keyed = [
        ((0 if rung.early else 1, _cost_class(rung.tokens), rung.tokens, key, rung.rank), Step(key, rung))
        for key, rungs in ladders.items()
        for rung in rungs[1:]
    ]
    keyed.sort(key=lambda pair: pair[0])
    return [[step for _, step in group] for _, group in groupby(keyed, key=lambda pair: pair[0][:2])]


def _cost_class(tokens: int) -> int:
    return math.ceil(math.log(max(tokens, 1) / _CLASS_BASE) / _CLASS)
