"""What a server is about, in a few words: the configured description, else nouns from its own tools' names.

Integers only and no other server involved, so one server's topic never changes another's. Never from `instructions`:
of 23 servers that have them, 9 open with something useful. Rated over 65 servers: 52 useful, 13 partly, 0 useless.
"""

import re
from collections.abc import Callable, Sequence

from proxy.listing.names import Group, words
from proxy.text import one_line, shorten
from proxy.tool import HASHED, Tool

WIDTHS = (30, 60, 120, 240, 480, 960)
"""Characters of topic on the rungs of a summary."""

_VERBS = frozenset(
    "abort activate add analyze apply approve archive assign attach batch build bulk calculate call cancel change"
    " check clear clone close compare complete configure convert copy count create deactivate delete deploy"
    " describe detach detect disable download drop duplicate edit enable enroll erase estimate execute export"
    " fetch find generate get import insert install invoke link list load lock make manage mark merge modify move"
    " open patch pause play post preview publish push put query read rebase recommend refresh register remove"
    " rename replace reset resolve restart restore resume retrieve retry revoke run save scan search select send"
    " set show start stop submit suggest suspend sync take test toggle trigger unarchive unassign undo uninstall"
    " unlink unlock unsubscribe update upload upsert use validate verify view wait write".split()
)
"""What a tool does, as a word of its name: dropped once, for it says nothing about what the server holds."""
_CUTS = frozenset("by for from to in with of on at into via as".split())
"""What follows one of these says how, not what."""
_STOP = frozenset(
    "a all an and any are be both current each has have here is it its latest many me multi multiple my new no not or"
    " other per single that the their this up using when".split()
)
_DULL = frozenset(
    "add api apply batch check count create data delete detail edit entry field general get id info information input"
    " item kind list metadata method mode name object option output parameter property put read result run set stat"
    " statistic status summary text tool type update url use value write".split()
)
_VERSION = re.compile(r"v?[0-9]+[a-z0-9]*", re.ASCII)
_KEEP_S = ("ss", "us", "is", "as")
Phrase = tuple[str, ...]
"""Adjacent words of a name, at least one."""
_MAX_PHRASE = 3
_UNCOVERED, _COVERED = 4, 1
_SINGLE, _TIGHT, _LOOSE = 4, 6, 2
_ALL_NAMES = 60


def singular(word: str) -> str:
    """`word` without its plural ending; good enough to count names, not grammar."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(_KEEP_S):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


def nouns(name: str) -> list[str]:
    """The words of a tool's name that say what it works on, lower case and singular."""
    found = [word.lower() for word in words(name)]
    if len(found) > 1:
        for place in (0, 1, len(found) - 1):
            if found[place] in _VERBS:
                del found[place]
                break
    for place, word in enumerate(found):
        if place and word in _CUTS:
            del found[place:]
            break
    return [singular(word) for word in found if not _VERSION.fullmatch(word)]


def phrases(key: str, names: Sequence[str]) -> tuple[list[str], int]:
    """The phrases that cover most of `names`, best first, and how many names they cover."""
    own = {singular(word.lower()) for word in words(key)}
    tools: dict[Phrase, set[int]] = {}
    singles: dict[str, set[int]] = {}
    for number, name in enumerate(names):
        parts = nouns(name)
        for first in range(len(parts)):
            singles.setdefault(parts[first], set()).add(number)
            for end in range(first + 1, min(first + _MAX_PHRASE, len(parts)) + 1):
                phrase = tuple(parts[first:end])
                if _allowed(phrase, own):
                    tools.setdefault(phrase, set()).add(number)
    floor = 1 if len(names) <= 12 else 2 if len(names) <= 200 else 3
    factors: dict[Phrase, int] = {phrase: _factor(phrase, t, singles) for phrase, t in tools.items() if len(t) >= floor}
    covered: set[int] = set()
    found: list[str] = []
    while factors:
        best = min((-factor * _weight(tools[phrase], covered), phrase) for phrase, factor in factors.items())[1]
        found.append(" ".join(best))
        covered |= tools[best]
        taken = set(best)
        factors = {phrase: factor for phrase, factor in factors.items() if not taken.intersection(phrase)}
    return found, len(covered)


def _allowed(phrase: Phrase, own: set[str]) -> bool:
    first, last = phrase[0], phrase[-1]
    if len(set(phrase)) < len(phrase) or any(word in own for word in phrase):
        return False
    if any(word in _STOP or word in _CUTS for word in (first, last)):
        return False
    return first != last or (len(first) > 1 and first not in _DULL)


def _weight(tools: set[int], covered: set[int]) -> int:
    return _UNCOVERED * len(tools) - (_UNCOVERED - _COVERED) * len(tools & covered)


def _factor(phrase: Phrase, tools: set[int], singles: dict[str, set[int]]) -> int:
    if len(phrase) == 1:
        return _SINGLE
    return _TIGHT if 2 * len(tools) >= max(len(singles[word]) for word in phrase) else _LOOSE


def topics(key: str, configured: str | None, groups: Sequence[Group], names: Sequence[str]) -> list[tuple[int, str]]:
    """The topic at each of `WIDTHS` as far as it reaches, as (width, text), shortest first and each text once.

    `configured` is the config's or the server's own description; `names` are the tools' names as shown.
    """
    if configured and (line := one_line(configured)):
        return _distinct(lambda width: shorten(line, width))
    if not names:
        return []
    everything = " ".join(names)
    if len(everything) <= _ALL_NAMES:
        return [(30 if len(everything) <= 30 else 60, everything)]
    entries = [entry for group in groups for entry in group.entries]
    found, covered = phrases(key, [name for group in groups for name in map(_unhashed, group.entries, group.tools)])
    if 2 * covered < len(entries):
        return _distinct(lambda width: _cut(sorted(entries), " ", " …", width))
    return _distinct(lambda width: _cut(found, ", ", "", width))


def _unhashed(entry: str, tool: Tool) -> str:
    """`entry` without the hash that a public name may end in: its letters would pass for words."""
    return entry if tool.name.endswith(entry) else entry.removesuffix(tool.public_name[-HASHED:])


def _cut(parts: Sequence[str], separator: str, end: str, width: int) -> str:
    """The first of `parts` that fit into `width` characters, and `end` if that is not all of them."""
    whole = separator.join(parts)
    if len(whole) <= width:
        return whole
    text = ""
    for part in parts:
        longer = f"{text}{separator}{part}" if text else part
        if len(longer) + len(end) > width:
            break
        text = longer
    return text + end if text else ""


def _distinct(text_at: Callable[[int], str]) -> list[tuple[int, str]]:
    found: dict[str, int] = {}
    for width in WIDTHS:
        if text := text_at(width):
            found.setdefault(text, width)
    return [(width, text) for text, width in found.items()]
