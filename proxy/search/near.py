"""Names spelled like one that nothing has, and what to tell the model about it: the same for describe and for calls."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from proxy.catalog import Catalog, NotFound
from proxy.text import one_line, shorten

_CANDIDATES = 40
_NAME_LIMIT = 128
"""Longer than any accepted name."""
_ENOUGH = 0.5
"""Below this ratio a name is no help."""


def near_names(catalog: Catalog, name: str, n: int = 5) -> tuple[str, ...]:
    """Up to `n` public names spelled like `name`, nearest first.

    What `name` ends with goes before all: a host has put its own name for this proxy in front. Of the others, shared
    pairs of letters choose the candidates (linear, 10 ms for 9,000 tools), `difflib` orders only those.
    """
    wanted = _plain(name[:_NAME_LIMIT])
    pairs = {wanted[i : i + 2] for i in range(len(wanted) - 1)}
    if not pairs:
        return ()
    names = [(_plain(t.public_name), _plain(t.name), t) for t in catalog.tools]
    whole = sorted((-len(public), tool.public_name) for public, _, tool in names if wanted.endswith(public))
    # common pairs over the mean size of both: a long name must not win by holding everything
    scored = [
        (sum(pair in public for pair in pairs) / (len(pairs) + min(len(public), len(raw))), number)
        for number, (public, raw, _) in enumerate(names)
    ]
    scored.sort(key=lambda s: (-s[0], s[1]))
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    found: list[tuple[float, str]] = []
    for _, number in scored[:_CANDIDATES]:
        public, raw, tool = names[number]
        best = 0.0
        for spelling in (public, raw):
            matcher.set_seq1(spelling)
            best = max(best, matcher.ratio())
        if best >= _ENOUGH:
            found.append((-best, tool.public_name))
    return tuple(dict.fromkeys(shown for _, shown in (*whole, *sorted(found))))[:n]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "").replace(".", "")


def unknown_name(catalog: Catalog, error: NotFound, search: str | None) -> str:
    """What to tell the model when `catalog.resolve` raised `error`.

    One sentence or two: why, and a next step with names that are accepted as printed. `search` is the name of the
    search tool, None where clients are shown none.
    """
    shown = shorten(one_line(error.name), _NAME_LIMIT)
    candidates = [t.public_name for t in error.candidates]
    if error.incomplete:
        return (
            f"{shown!r} may mean more than one tool, and not every server's tools are known; "
            f"use the full name: {_listed(candidates)}."
        )
    if candidates:
        return f"{shown!r} is the name of {len(candidates)} tools; use the full name of one: {_listed(candidates)}."
    near = near_names(catalog, error.name)
    if near:
        again = f" Or find it with {search}." if search is not None else ""
        return f"There is no tool {shown!r}. Near names: {_listed(near)}.{again}"
    if search is None:
        return f"There is no tool {shown!r}. Use a name from the list of tools."
    return f'There is no tool {shown!r}. Find it with {search}: a verb and a noun, such as "create issue".'


def _listed(names: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
