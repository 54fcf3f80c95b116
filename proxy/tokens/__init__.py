"""Token counts, offline: a calibrated estimate here, exact o200k counts in a short-lived child process.

The serving process never loads the vocabulary (80 MB, 0.6 s): it starts `child_argv()`, writes `encode_request(lines)`
to its stdin, closes it and hands its stdout to `Counts.add`. One listing uses one kind of count, see `Counts.counter`.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

__all__ = ["Counts", "child_argv", "decode_answer", "encode_request", "estimate"]

MOST_ESTIMATES = 50_000
"""Lines whose estimate is remembered: 9,000 tools have 18,000."""
MARGIN_PCT = 10
"""Added to estimates of a listing: they are up to 15 % below the truth for short lines full of numbers, and 8 % above
it for whole listings (measured over 9,200 tools)."""

_PIECE = re.compile(
    r"(?P<word>[A-Z]+(?![a-z])|[A-Z]?[a-z]+)|(?P<digits> ?[0-9]+)|(?P<newline>\n)|(?P<space> )"
    r"|(?P<short>[!-/:-@\[-`{-~]{1,2}(?![!-/:-@\[-`{-~]))|(?P<other>[^ \nA-Za-z0-9]+)"
)
_LONG_WORD = 9


def estimate(text: str) -> int:
    """About how many o200k tokens `text` has; needs no vocabulary.

    A word (camel parts apart) is 1 and 1 more for every 4 letters beyond 9; digits 1 per 3, and 1 if a space precedes;
    a line break 1; a single space 0; up to 2 punctuation characters 1; anything else its UTF-8 bytes / 2.5. Mean ratio
    to the truth 0.88 (`name count,` lines) to 1.13 (names), where characters / 4 is as low as 0.62.
    """
    total = 0.0
    for match in _PIECE.finditer(text):
        kind, piece = match.lastgroup, match.group()
        if kind == "word":
            total += 1 + max(0, len(piece) - _LONG_WORD) // 4
        elif kind == "digits":
            spaced = piece[0] == " "
            total += -(-(len(piece) - spaced) // 3) + spaced
        elif kind == "other":
            total += len(piece.encode("utf-8", "surrogatepass")) / 2.5
        elif kind != "space":
            total += 1
    return -int(-total // 1)


class Counts:
    """Exact token counts of lines, as far as they are known; grows by `add`, kept between runs by the snapshot."""

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self._known: dict[str, int] = dict(known or {})
        self._estimates: dict[str, int] = {}
        self._older: dict[str, int] = {}
        """Estimates that nobody has asked for since `aged`."""

    @property
    def known(self) -> Mapping[str, int]:
        """Line -> exact o200k tokens."""
        return self._known

    def missing(self, lines: Iterable[str]) -> list[str]:
        """The lines without an exact count, each once, in order."""
        return [line for line in dict.fromkeys(lines) if line not in self._known]

    def add(self, lines: Sequence[str], counts: Sequence[int]) -> None:
        """Take in exact counts, as `decode_answer` gives them for `lines`.

        Raises:
            ValueError: not one count per line.
        """
        self._known.update(zip(lines, counts, strict=True))

    def keep(self, lines: Iterable[str]) -> None:
        """Forget every line that is not among `lines`, so that old catalogs do not pile up."""
        wanted = set(lines)
        self._known = {line: n for line, n in self._known.items() if line in wanted}
        self._estimates = {line: n for line, n in self._estimates.items() if line in wanted}

    def count(self, line: str) -> int:
        """The exact count of `line`. Raises KeyError where it is not known."""
        return self._known[line]

    def estimated(self, line: str) -> int:
        """The estimate of `line` with its margin, remembered."""
        found = self._estimates.get(line)
        if found is None:
            if len(self._estimates) >= MOST_ESTIMATES:
                self._estimates.clear()
            found = self._older.get(line)
            if found is None:
                found = -(-estimate(line) * (100 + MARGIN_PCT) // 100)
            self._estimates[line] = found
        return found

    def aged(self) -> None:
        """The catalog is another one: estimates that nobody asks for until this is said again are forgotten."""
        self._estimates, self._older = {}, self._estimates

    def counter(self, lines: Iterable[str], *, exact: bool = True) -> tuple[Callable[[str], int], bool]:
        """The one kind of count for a listing that may count `lines`, and whether it is the exact one.

        Exact only if `exact` is wanted (`tokenizer: o200k`) and nothing is missing; else estimates for everything.
        """
        if exact and all(line in self._known for line in lines):
            return self.count, True
        return self.estimated, False


def child_argv() -> list[str]:
    """The command of the counting child: one JSON array of strings on stdin, one JSON array of integers on stdout."""
    return [sys.executable, "-m", "proxy.tokens"]


def encode_request(lines: Sequence[str]) -> bytes:
    """What the child reads; it must be followed by the end of the stream."""
    return json.dumps(list(lines)).encode()


def decode_answer(answer: bytes, lines: Sequence[str]) -> list[int]:
    """The child's answer: one count per line, in order.

    Raises:
        ValueError: it is not that (the child died, or its output was cut).
    """
    try:
        counts: object = json.loads(answer)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the token counter answered {answer[:80]!r}") from error
    items = cast(list[object], counts) if isinstance(counts, list) else []
    numbers = [n for n in items if isinstance(n, int)]
    if len(numbers) != len(items) or len(items) != len(lines):
        raise ValueError(f"the token counter gave {len(numbers)} counts for {len(lines)} lines")
    return numbers
