"""The listing: as much about a catalog as fits into the descriptions of the three tools.

Pure: (catalog, budget, slots, mode, counts) -> text, byte for byte the same for the same input. All texts of a server
depend on that server alone (`TextCache` keeps them by its hash); only the fill looks at all of them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.catalog import Catalog
from proxy.listing.ladder import Count, Rung, Step, entry_text, rungs_of, step_classes
from proxy.listing.layout import LISTED, RULES, SERVERS, Slots, blocks, head, head_room, lay, named_line, tail
from proxy.listing.texts import ServerTexts, TextCache

__all__ = ["Listing", "TextCache", "lines", "render"]

Mode = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class Listing:
    """What the descriptions say about the catalog."""

    tier: Literal[1, 2]
    """2: no server shows the names of its tools. (0, no bridge at all, is not the listing's business.)"""
    slots: tuple[str, ...]
    """The text of each slot; "" where nothing is left for it."""
    forms: Mapping[str, str]
    """Server key -> how it is shown: bare, summary-60, areas-12, names, families, full; below the floor `named`
    (without a count) or `unnamed` (one of `… and N more servers`)."""
    tokens: int
    """Of all slots together, by the counts that were given; an upper bound."""


def render(
    catalog: Catalog, *, budget: int, slots: Slots, mode: Mode, count: Count, cache: TextCache | None = None
) -> Listing:
    """The listing of `catalog` that fits.

    `budget` is in tokens over all slots; `slots` are the UTF-16 units each of them has for listing text, in the order
    in which the listing continues; `count` gives the tokens of any text of `lines(catalog)`. In mode `off` no server
    gets beyond its summary; the other modes differ only in the budget that the caller computes.
    """
    texts = _texts(catalog, cache)
    ladders = {text.key: rungs_of(text, count, names=mode != "off") for text in texts}
    fill = _Fill(texts, {key: rungs[0] for key, rungs in ladders.items()}, budget, slots, count)
    if not texts or not fill.fits:
        return _below_floor(texts, budget, slots, count)
    classes = step_classes(ladders)
    fill, taken = _climb(fill, classes)
    if len(slots) > 1:
        rules = fill.blocks or _climb(replace(fill, budget=math.inf), classes[taken:])[0].blocks
        fill = _headed(fill, {key: rungs[0] for key, rungs in ladders.items()}, classes[:taken], rules=rules)
    laid = fill.lay() or ()
    return Listing(1 if fill.blocks else 2, laid, {key: rung.form for key, rung in fill.rungs.items()}, fill.tokens)


def lines(catalog: Catalog, cache: TextCache | None = None) -> Iterable[str]:
    """Every text that `render` may want to have counted for this catalog; some more than once."""
    texts = _texts(catalog, cache)
    yield from (RULES, SERVERS, LISTED, tail(len(texts)))
    for text in texts:
        yield entry_text(text.entry)
        yield f" {text.name}"
        yield from text.lines()


def _texts(catalog: Catalog, cache: TextCache | None) -> list[ServerTexts]:
    cache = cache or TextCache()
    found = (cache.of(server) for server in catalog.servers.values())
    return sorted((text for text in found if text is not None), key=lambda text: text.key)


@dataclass(frozen=True)
class _Fill:
    """A choice of one form for every server, and what it costs."""

    texts: Sequence[ServerTexts]
    rungs: Mapping[str, Rung]
    budget: float
    slots: Slots
    count: Count

    def rise(self, rungs: Mapping[str, Rung]) -> "_Fill":
        return _Fill(self.texts, {**self.rungs, **rungs}, self.budget, self.slots, self.count)

    @property
    def blocks(self) -> bool:
        """Whether names of tools are shown, and thus the rules of reading."""
        return any(rung.blocks for rung in self.rungs.values())

    @property
    def tokens(self) -> int:
        """The sum of the parts: never below the count of the text that is put together of them."""
        total = sum(rung.tokens for rung in self.rungs.values()) + self.count(SERVERS) + 1
        if self.blocks:
            total += self.count(RULES) + 1 + self.count(LISTED) + 1
        return total

    @property
    def fits(self) -> bool:
        """Whether neither the tokens nor the characters are too many."""
        if self.tokens > self.budget:
            return False
        limits = [slot for slot in self.slots if slot is not None]
        if len(limits) < len(self.slots):
            return True
        # A rung's characters hold a separator per line that a slot's end saves, and a server's last comma.
        least = sum(rung.characters for rung in self.rungs.values()) - len(limits) - 2
        return least <= sum(limits) and self.lay() is not None

    def lay(self) -> tuple[str, ...] | None:
        """The text of each slot; None where they cannot hold it."""
        return lay([*head(self.texts, self.rungs), *blocks(self.texts, self.rungs)], self.slots)


def _climb(fill: _Fill, classes: Sequence[Sequence[Step]]) -> tuple[_Fill, int]:
    """`fill` after as many of `classes` as fit, in order, and how many those are."""
    for taken, steps in enumerate(classes):
        risen = fill.rise({step.key: step.rung for step in steps})
        if not risen.fits:
            return fill, taken
        fill = risen
    return fill, len(classes)


def _headed(fill: _Fill, bare: Mapping[str, Rung], taken: Sequence[Sequence[Step]], *, rules: bool) -> _Fill:
    """`fill` with topics so short that one slot names every server, where several slots are to be filled.

    A model that sees the first text only, or a host that shows no more, then still knows every server. The topics are
    bought anew in the order of `taken`, until the slots that could hold the servers without any topic are full; what
    is said of tools does not change. A larger budget must not shorten a topic: so the room is measured with the rules
    as soon as any budget would bring them (`rules`), and with each server in its place whatever its form.
    """

    def with_topics(topics: Mapping[str, Rung]) -> _Fill:
        return fill.rise(
            {
                key: replace(rung, summary=topics[key].summary) if rung.blocks else topics[key]
                for key, rung in fill.rungs.items()
                if rung.summary is not None
            }
        )

    def first_place() -> int | None:
        pieces = head_room(fill.texts, bare, rules=rules)
        return next((n for n in range(1, len(fill.slots)) if lay(pieces, fill.slots[:n]) is not None), None)

    place = first_place()
    if place is None and not fill.blocks:
        # Where the rules leave no room for every server nothing is shortened, so that shows more than this.
        rules = False
        place = first_place()

    def fits(candidate: _Fill) -> bool:
        return lay(head_room(fill.texts, candidate.rungs, rules=rules), fill.slots[:place]) is not None

    if place is None or fits(fill):
        return fill
    topics = dict(bare)
    found = with_topics(bare)
    for steps in taken:
        topics |= {s.key: s.rung for s in steps if s.rung.summary is not None and not s.rung.blocks}
        longer = with_topics(topics)
        if not fits(longer):
            break
        found = longer
    return found if found.lay() is not None else fill


def _below_floor(texts: Sequence[ServerTexts], budget: int, slots: Slots, count: Count) -> Listing:
    """Names of servers without their counts, as many as fit; nothing where not even the last line fits."""
    total = len(texts)
    empty = Listing(2, tuple("" for _ in slots), {text.key: "unnamed" for text in texts}, 0)
    if not texts:
        return empty
    costs = [count(f" {text.name}") for text in texts]
    for shown in range(total, -1, -1):
        price = sum(costs[:shown]) + (count(tail(total)) + 1 if shown < total else 0)
        if price > budget:
            continue
        if (laid := lay(named_line([text.name for text in texts[:shown]], total), slots)) is not None:
            forms = {text.key: "named" if n < shown else "unnamed" for n, text in enumerate(texts)}
            return Listing(2, laid, forms, price)
    return empty
