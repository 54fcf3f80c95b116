"""Typed look-ups in one block of the file. What is wrong is told to one place, which decides how bad that is."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from proxy.config.document import Node, present
from proxy.config.environment import Expansion, expand
from proxy.errors import ConfigError
from proxy.hosts.launches import MEANINGLESS

_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})

OTHER_CLIENTS = {
    "type": "transport", "httpUrl": "url", "serverUrl": "url", "endpoint": "url", "disabled": "enabled",
    "environment": "env", "cmd": "command", "arguments": "args", "workingDirectory": "cwd", "http_headers": "headers",
    "requestInit": "headers", "includeTools": "tools", "excludeTools": "tools", "alwaysLoad": "pinned",
}  # fmt: skip
"""What other clients call our keys, for the hint in an error."""


_SLIP = 0.75
"""Likeness from which on a foreign key is a slip of ours: `deney` and `dney` are, `installed` (`disabled`) is not."""


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The sentence about a key that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = [OTHER_CLIENTS[key]] if OTHER_CLIENTS.get(key) in names else difflib.get_close_matches(key, names, 1, 0.6)
    if not near:
        near = [name for name in names if _plain(name) == _plain(key)]
    hint = f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(names)}"
    return f"unknown key {key!r}; {hint}"


def slip_of(key: str, known: Iterable[str], protecting: Collection[str]) -> str | None:
    """The key that protects something and was meant by `key`; None where it is merely another client's own.

    For files that were written for another client, in which most keys that we do not know mean nothing here.
    """
    plain = {_plain(name): name for name in known}
    if key in MEANINGLESS:
        return None
    near = difflib.get_close_matches(_plain(key), plain, 1, _SLIP)
    return plain[near[0]] if near and plain[near[0]] in protecting else None


def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


class Slips:
    """What is wrong in a file, gathered so that a person can mend it all at once."""

    _SHOWN = 10

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], str] = {}

    def __call__(self, message: str) -> None:
        """Take down a whole sentence: `file:line: key.path: what was expected`."""
        # Of one value only the first is told: what follows is mostly a consequence.
        self._found.setdefault(tuple(message.split(": ", 2)[:2]), message)

    def raise_any(self) -> None:
        """Raises ConfigError, a line for each slip, if there were any."""
        if lines := list(self._found.values()):
            more = len(lines) - self._SHOWN
            raise ConfigError("\n".join([*lines[: self._SHOWN], *([f"and {more} more"] if more > 0 else [])]))


class Reader:
    """Reads the values of one block.

    `wrong` is called with a whole sentence (file, line, key, what was expected) for a value that cannot be used; it
    may raise. `unset` is called the same way for a `${VAR}` that has no value. Where they return, the default is used.
    """

    def __init__(
        self, file: Path, environ: Mapping[str, str], wrong: Callable[[str], None], unset: Callable[[str], None]
    ) -> None:
        self.file = file
        self.environ = environ
        self.wrong = wrong
        self.unset = unset
        self.secrets: set[str] = set()
        """Values that references had."""
        self._incomplete: list[Node] = []

    def where(self, node: Node) -> str:
        """`file:line: key.path` of a node; without a line for JSON."""
        place = f"{self.file}:{node.line}" if node.line else str(self.file)
        return f"{place}: {node.path}" if node.path else place

    def complain(self, node: Node, expected: str) -> None:
        """Tells that a value is not what was expected; the value itself is not shown, it may be a secret.

        Nothing more is told about a value with an unset `${VAR}`: that was told already, and is the only thing wrong.
        """
        if not any(n is node or n in node.elements for n in self._incomplete):
            self.wrong(f"{self.where(node)}: {expected}")

    def scalar(self, node: Node) -> str:
        """The text of a scalar, expanded."""
        outcome = Expansion()
        text = expand(node.text, self.environ, outcome)
        self.secrets |= outcome.values
        if outcome.missing:
            self._incomplete.append(node)
        for reason in outcome.missing:
            self.unset(f"{self.where(node)}: {reason}")
        return text

    def block(self, node: Node, known: Collection[str]) -> dict[str, Node]:
        """What stands in a block that must be a mapping and may have only the keys `known`."""
        if not node.is_map:
            self.complain(node, f"expected a mapping with some of {', '.join(known)}")
        for key, child in node.items.items():
            if key not in known:
                self.complain(child, unknown_key(key, known))
        if node.twice:
            self.complain(node, f"the key {node.twice[0]!r} is given twice")
        return node.items

    def text(self, node: Node | None) -> str | None:
        """A string; numbers and booleans count as the text they were written as."""
        if not present(node):
            return None
        if node.is_map or node.is_list:
            self.complain(node, "expected a string")
            return None
        return self.scalar(node)

    def texts(self, node: Node | None) -> tuple[str, ...] | None:
        """A list of strings; one string alone is a list of one."""
        if not present(node):
            return None
        if node.is_map:
            self.complain(node, "expected a list of strings")
            return None
        found = (self.text(n) for n in (node.elements if node.is_list else [node]))
        return tuple(t for t in found if t is not None)

    def mapping(self, node: Node | None) -> dict[str, str]:
        """A mapping of strings; a key without a value has the empty string."""
        if not present(node):
            return {}
        if not node.is_map:
            self.complain(node, "expected a mapping, one `NAME: value` per line")
            return {}
        return {key: (self.text(child) or "") for key, child in node.items.items()}

    def boolean(self, node: Node | None, default: bool, expected: str = "expected true or false") -> bool:
        """A truth value, in any of YAML's spellings."""
        if not present(node):
            return default
        if isinstance(node.value, bool):
            return node.value
        word = "" if node.is_map or node.is_list else self.scalar(node).strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        self.complain(node, expected)
        return default

    def number(
        self, node: Node | None, default: float, low: float, high: float | None = None, *, above: bool = False
    ) -> float:
        """A finite number of at least `low` (more than `low` with `above`) and at most `high`."""
        if not present(node):
            return default
        found = self.any_number(node)
        fits = found is not None and (found > low if above else found >= low) and (high is None or found <= high)
        if found is None or not fits:
            bounds = f"more than {low:g}" if above else f"of at least {low:g}"
            self.complain(node, f"expected a number {bounds}" + (f" and at most {high:g}" if high is not None else ""))
            return default
        return found

    def any_number(self, node: Node) -> float | None:
        """A finite number, also where it is written as text; None where it is none."""
        if node.is_map or node.is_list or isinstance(node.value, bool):
            return None
        try:
            number = float(self.scalar(node)) if isinstance(node.value, str) else float(node.value or 0)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None

    def choice(self, node: Node | None, options: Mapping[str, str], default: str | None) -> str | None:
        """One of the words in `options`, which maps what may be written to what it means.

        YAML's booleans look up the words `true` and `false`, whichever way they are spelled.
        """
        if not present(node):
            return default
        word = "" if node.is_map or node.is_list else self.scalar(node).strip().lower()
        if isinstance(node.value, bool) and word not in options:
            word = "true" if node.value else "false"
        if word in options:
            return options[word]
        shown = [o for o in options if o not in ("true", "false")]
        self.complain(node, f"expected one of {', '.join(shown)}")
        return default
