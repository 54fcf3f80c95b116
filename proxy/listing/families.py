"""Names folded into families: `dns_records_*: create delete list` for three names that share the literal part.

A family is a template with one star, so it is lossless for noun-first, verb-first and mixed names and needs no list of
verbs. Only characters decide, never tokens, so the bytes do not depend on a vocabulary. O(names x ~6 templates).
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.listing.names import word_spans

Template = tuple[str, str]
"""What stands before and after the star."""

_MIN_MEMBERS = 3
_HOLE_WORDS = 3
_OVERHEAD = 4
"""Characters that a family costs beside its literal and its words: `*: ` and the line break."""
_FOLD_PCT = 85
"""Folded only where that leaves less than this share of the characters of the plain names."""

GIANT_CHARACTERS = 8_000
"""A folded block above this is split into areas: smaller from here on, and a part of it can be listed."""
_AREA_MAX = 150
_AREA_MIN = 4


@dataclass(frozen=True)
class Family:
    """Names that are `before + word + after` for each of `members`."""

    before: str
    after: str
    members: tuple[str, ...]


def fold(names: Sequence[str]) -> tuple[list[Family], list[str]]:
    """The families of `names`, sorted by their literal, and the names that are in none, sorted."""
    # Most templates fit one name alone. They are counted by their hashes first, which takes a fifth of the memory.
    counts = Counter(hash(template) for name in names for template in _templates(name))
    shared = {name: [t for t in _templates(name) if counts[hash(t)] >= _MIN_MEMBERS] for name in names}
    del counts
    members: dict[Template, set[str]] = {}
    for name, templates in shared.items():
        for template in templates:
            members.setdefault(template, set()).add(name)
    heap = [(-_score(t, len(m)), *t) for t, m in members.items() if len(m) >= _MIN_MEMBERS and _score(t, len(m)) > 0]
    heapq.heapify(heap)
    families: list[Family] = []
    taken: set[str] = set()
    while heap:
        negative, before, after = heapq.heappop(heap)
        template = (before, after)
        group = members[template]
        if len(group) < _MIN_MEMBERS:
            continue
        score = _score(template, len(group))
        if score != -negative:
            if score > 0:
                heapq.heappush(heap, (-score, before, after))
            continue
        families.append(
            Family(before, after, tuple(sorted(name[len(before) : len(name) - len(after)] for name in group)))
        )
        for name in tuple(group):
            taken.add(name)
            for other in shared[name]:
                members[other].discard(name)
    families.sort(key=lambda f: (f.before, f.after))
    return families, sorted(name for name in shared if name not in taken)


def _templates(name: str) -> Iterator[Template]:
    """What stands around the star: that is up to 3 words at the end, else 1 word; never the whole name."""
    spans = word_spans(name)
    last = len(spans) - 1
    if last < 1:
        return
    for first in range(max(1, last + 1 - _HOLE_WORDS), last + 1):
        yield name[: spans[first][0]], name[spans[last][1] :]
    for start, end in spans[:last]:
        yield name[:start], name[end:]


def _score(template: Template, members: int) -> float:
    """Characters saved per member."""
    return ((members - 1) * (len(template[0]) + len(template[1])) - _OVERHEAD) / members


def heading(prefix: str, count: int) -> str:
    """`<prefix>* (<count>):`, to be followed by entries that stand in place of the star."""
    return f"{prefix}* ({count}):"


def plain_block(prefix: str, names: Sequence[str]) -> list[str]:
    """Names on the heading's line."""
    return [" ".join([heading(prefix, len(names)), *sorted(names)])]


def folded_block(prefix: str, names: Sequence[str]) -> list[str]:
    """Heading, a line per family, a line with the names in no family."""
    families, rest = fold(names)
    lines = [heading(prefix, len(names))]
    lines += [f"{f.before}*{f.after}: {' '.join(f.members)}" for f in families]
    if rest:
        lines.append(" ".join(rest))
    return lines


def size(lines: Sequence[str]) -> int:
    """Characters of lines, line breaks included."""
    return sum(len(line) + 1 for line in lines)


def names_block(prefix: str, names: Sequence[str]) -> tuple[list[str], bool]:
    """The lossless block of all `names` under one heading, and whether it is folded."""
    plain, folded = plain_block(prefix, names), folded_block(prefix, names)
    if size(folded) * 100 < size(plain) * _FOLD_PCT:
        return folded, True
    return plain, False


@dataclass(frozen=True)
class Area:
    """A part of a giant server: the names that begin with the same words."""

    prefix: str
    names: tuple[str, ...]


def areas(prefix: str, names: Sequence[str]) -> list[Area]:
    """`names` by their first word, by more words where that leaves more than 150, in the order of the prefixes.

    What begins like fewer than 4 names stays under the next shorter prefix.
    """
    found, rest = _split(prefix, list(names))
    if rest:
        found.append(Area(prefix, tuple(rest)))
    return sorted(found, key=lambda a: a.prefix)


def _split(prefix: str, names: list[str]) -> tuple[list[Area], list[str]]:
    by_word: dict[str, list[str]] = {}
    rest: list[str] = []
    for name in names:
        spans = word_spans(name)
        if len(spans) > 1:
            by_word.setdefault(name[: spans[1][0]], []).append(name)
        else:
            rest.append(name)
    found: list[Area] = []
    for head, members in by_word.items():
        if len(members) < _AREA_MIN:
            rest += members
            continue
        tails = [name[len(head) :] for name in members]
        if len(members) <= _AREA_MAX:
            found.append(Area(prefix + head, tuple(tails)))
            continue
        inner, left = _split(prefix + head, tails)
        found += inner
        if len(left) >= _AREA_MIN:
            found.append(Area(prefix + head, tuple(left)))
        else:
            rest += [head + tail for tail in left]
    return found, rest
