"""All texts of one server, from bare to full. They depend on that server alone, so they are kept by its hash."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.catalog import Server
from proxy.listing.families import GIANT_CHARACTERS, areas, folded_block, heading, names_block, size
from proxy.listing.names import Group, groups, shown
from proxy.listing.topics import topics
from proxy.text import first_sentence, one_line

SENTENCE = 75
"""Characters of a tool's first sentence: 34 % are cut here, 48 % at 60, 25 % at 90, where all cost 5 % more."""

Lines = tuple[str, ...]


@dataclass(frozen=True)
class ServerTexts:
    """What a listing may say about one server. Every line stands whole or not at all."""

    key: str
    """As in the config."""
    name: str
    """The key as it is shown."""
    entry: str
    """`name count`."""
    summaries: tuple[tuple[int, str], ...]
    """(width of the topic, `- name (count): topic`), ever longer."""
    areas: tuple[Lines, ...]
    """Blocks of a giant server, smallest first; empty for others."""
    names: Lines
    """Every name, lossless; empty where no list was ever seen."""
    folded: bool
    full: Lines
    """Every name with its first sentence."""

    def lines(self) -> Iterable[str]:
        """Every line, some more than once."""
        yield from (line for _, line in self.summaries)
        yield from self.names
        yield from self.full


def server_texts(server: Server) -> ServerTexts | None:
    """The texts of `server`; None where nothing of it is behind the bridge.

    A server whose list was never seen is named with `?` for a count, so that a model knows that it exists.
    """
    names = shown(server)
    if not names and (server.known or server.eager):
        return None
    name, count = one_line(server.key), str(len(names)) if server.known else "?"
    found = groups(names)
    texts = topics(server.key, server.topic, found, [s.entry for s in names])
    blocks = _areas(found)
    lines, folded = _names(found) if not blocks else ([line for block in blocks for line in block], True)
    return ServerTexts(
        key=server.key,
        name=name,
        entry=f"{name} {count}",
        summaries=tuple((width, f"- {name} ({count}): {text}") for width, text in texts),
        areas=tuple(sorted(blocks, key=lambda block: (size(block), block))),
        names=tuple(lines),
        folded=folded,
        full=tuple(line for group in found for line in _full(group)),
    )


def _areas(found: Sequence[Group]) -> list[Lines]:
    if sum(size(folded_block(group.prefix, group.entries)) for group in found) <= GIANT_CHARACTERS:
        return []
    parts = [area for group in found for area in areas(group.prefix, group.entries)]
    return [tuple(names_block(area.prefix, area.names)[0]) for area in parts]


def _names(found: Sequence[Group]) -> tuple[list[str], bool]:
    blocks = [names_block(group.prefix, group.entries) for group in found]
    return [line for lines, _ in blocks for line in lines], any(folded for _, folded in blocks)


def _full(group: Group) -> Iterable[str]:
    yield heading(group.prefix, len(group.entries))
    for entry, tool in zip(group.entries, group.tools, strict=True):
        sentence = first_sentence(tool.description, SENTENCE)
        yield f"{entry}: {sentence}" if sentence else entry


class TextCache:
    """Texts of servers by the hash of their content: only a changed server is done again."""

    def __init__(self) -> None:
        self._texts: dict[str, ServerTexts | None] = {}

    def of(self, server: Server) -> ServerTexts | None:
        """The texts of `server`, made if they are not at hand."""
        if not server.hash:
            return server_texts(server)
        texts = self._texts  # `keep` may put another in its place meanwhile
        if server.hash not in texts:
            texts[server.hash] = server_texts(server)
        return texts[server.hash]

    def keep(self, servers: Iterable[Server]) -> None:
        """Forget the texts of all other servers: a list may change for ever, at some 300 bytes a tool."""
        wanted = {server.hash for server in servers}
        self._texts = {digest: texts for digest, texts in list(self._texts.items()) if digest in wanted}
