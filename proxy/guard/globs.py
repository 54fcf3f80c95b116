"""Globs `server/tool` over server keys and raw names."""

from collections.abc import Iterable
from fnmatch import fnmatchcase


def any_tool(globs: Iterable[str], server: str, tool: str) -> bool:
    """Whether one of `globs` means that tool."""
    sides = (each for glob in globs for each in splits(glob))
    return any(fnmatchcase(server, left) and fnmatchcase(tool, right) for left, right in sides)


def any_of_server(globs: Iterable[str], server: str) -> bool:
    """Whether one of `globs` can mean a tool of that server."""
    return any(fnmatchcase(server, part) for glob in globs for part, _ in splits(glob))


def any_name(globs: Iterable[str], name: str) -> bool:
    """Whether one of `globs`, over plain names, means `name`."""
    return any(glob == "*" or fnmatchcase(name, glob) for glob in globs)


def splits(glob: str) -> Iterable[tuple[str, str]]:
    """Both sides of every slash, because a server key and a raw name may hold one too.

    `*` never reaches over the slash between the two: `a/*` does not mean the tools of a server `a/b`.
    """
    place = glob.find("/")
    while place >= 0:
        yield glob[:place], glob[place + 1 :]
        place = glob.find("/", place + 1)
