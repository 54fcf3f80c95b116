"""The text of a listing from the forms of its servers, laid into the slots that a host shows.

Cut anywhere, it has named every server first: rules, summaries, the bare line, `Listed below`, then the blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.listing.ladder import Rung
from proxy.listing.texts import ServerTexts
from proxy.text import units

RULES = (
    "Names below are exact. A heading `server__*` and an entry give the name: put the entry in place of `*`. In an "
    "entry `*_issue: create get`, each word after the colon stands in place of its `*`. A tool named below needs no "
    "search."
)
SERVERS = "Servers (tools):"
LISTED = "Listed below:"

Slots = Sequence[int | None]
"""UTF-16 units that listing text may take in each slot; None for any number."""


@dataclass(frozen=True)
class Piece:
    """Text that stands in one slot as a whole; in the same slot, `before` parts it from what precedes it."""

    text: str
    before: Literal["\n", " "] = "\n"


def head(texts: Sequence[ServerTexts], rungs: Mapping[str, Rung]) -> list[Piece]:
    """What names every server. `texts` are sorted by key; `rungs` has the form of each key."""
    chosen = [(text, rungs[text.key]) for text in texts]
    found: list[Piece] = []
    if any(rung.blocks for _, rung in chosen):
        found.append(Piece(RULES))
    found += [Piece(rung.summary) for _, rung in chosen if rung.summary is not None]
    plain = [(text.entry, rung) for text, rung in chosen if rung.summary is None]
    found += server_line(SERVERS, [entry for entry, rung in plain if not rung.whole])
    found += server_line(LISTED, [entry for entry, rung in plain if rung.whole])
    return found


def head_room(texts: Sequence[ServerTexts], rungs: Mapping[str, Rung], *, rules: bool) -> list[Piece]:
    """The most that `head` takes, `rules` or not, with each server where its key stands: as a measure only.

    A server that rises from its summary to its blocks makes this shorter and moves nobody, unlike the text itself.
    """
    found = [Piece(RULES), Piece(LISTED)] if rules else []
    found.append(Piece(SERVERS))
    for text in texts:
        summary = rungs[text.key].summary
        found.append(Piece(f"{text.entry},", " ") if summary is None else Piece(summary))
    return found


def blocks(texts: Sequence[ServerTexts], rungs: Mapping[str, Rung]) -> list[Piece]:
    """What is said of the servers' tools."""
    return [Piece(line) for text in texts for block in sorted(rungs[text.key].blocks) for line in block]


def server_line(label: str, entries: Sequence[str]) -> list[Piece]:
    """`label a 3, b 14`; may continue in the next slot after any entry."""
    if not entries:
        return []
    texts = [f"{entry}," for entry in entries[:-1]] + [entries[-1]]
    return [Piece(f"{label} {texts[0]}"), *(Piece(text, " ") for text in texts[1:])]


def tail(servers: int) -> str:
    """The last line where not even all names of servers fit."""
    return f"… and {servers} more servers"


def named_line(names: Sequence[str], total: int) -> list[Piece]:
    """The first names of `total` servers, without counts, and how many more there are."""
    found = [Piece(name, " ") for name in names]
    if len(names) < total:
        found.append(Piece(tail(total - len(names)), " "))
    return found


def lay(parts: Iterable[Piece], slots: Slots) -> tuple[str, ...] | None:
    """The text of each slot, filled in order; None where the slots cannot hold it all.

    A piece goes into the first slot, from the current one on, that has room for it. Larger slots never hold less.
    """
    texts: list[list[str]] = [[] for _ in slots]
    left = list(slots)
    place = 0
    for part in parts:
        while True:
            if place == len(slots):
                return None
            separator = part.before if texts[place] else ""
            room, need = left[place], units(part.text) + len(separator)
            if room is None or need <= room:
                break
            place += 1
        texts[place].append(separator + part.text)
        left[place] = None if room is None else room - need
    return tuple("".join(text) for text in texts)
