"""Reads the text of a signature back and makes arguments from it, as a model would that sees nothing else."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FORMATS: dict[str, Any] = {
    "str": "text",
    "int": 1,
    "num": 1.5,
    "bool": True,
    "any": "text",
    "obj": {},
    "null": None,
    "datetime": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "email": "a@example.com",
    "url": "https://example.com/a",
    "uuid": "12345678-1234-4234-8234-123456789abc",
}


@dataclass
class Parameter:
    """One parameter as read: a value that fits its type, and whether the type says all that is needed."""

    name: str
    required: bool
    value: Any
    cut: bool = False


@dataclass
class Read:
    """A signature as read."""

    parameters: list[Parameter] = field(default_factory=list)
    alternatives: list[list[str]] = field(default_factory=list)
    marked: bool = False

    def arguments(self) -> dict[str, Any]:
        """Arguments with everything required and the first alternative."""
        wanted = {p.name for p in self.parameters if p.required} | set(
            self.alternatives[0] if self.alternatives else ()
        )
        return {p.name: p.value for p in self.parameters if p.name in wanted}


class Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.cut = False

    def take(self, token: str) -> bool:
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def need(self, token: str) -> None:
        assert self.take(token), f"expected {token!r} at {self.at} of {self.text!r}"

    def while_(self, keep: Callable[[str], bool]) -> str:
        start = self.at
        while self.at < len(self.text) and keep(self.text[self.at]):
            self.at += 1
        return self.text[start : self.at]

    def read(self) -> Read:
        result = Read()
        while self.at < len(self.text) and not self.text.startswith(" (", self.at):
            if self.take("…"):
                self.while_(lambda ch: ch not in ", " or False)
                self.take(" required")
            else:
                result.parameters.append(self.parameter())
            if not self.take(", "):
                break
        if self.take(" (one of: "):
            while True:
                if self.take("…+"):
                    self.while_(str.isdigit)
                else:
                    names = [self.name()]
                    while self.take("+"):
                        names.append(self.name())
                    result.alternatives.append(names)
                if not self.take(" | "):
                    break
            self.need(")")
        if self.take(" (see "):
            self.while_(lambda ch: ch != ")")
            self.need(")")
            result.marked = True
        assert self.at == len(self.text), f"left over at {self.at}: {self.text!r}"
        return result

    def quoted(self) -> str:
        self.need("'")
        start = self.at
        while self.text[self.at] != "'":
            self.at += 2 if self.text[self.at] == "\\" else 1
        inner = self.text[start : self.at]
        self.at += 1
        out = ""
        position = 0
        while position < len(inner):
            if inner[position] == "\\":
                pair = inner[position : position + 2]
                out += "'" if pair == "\\'" else pair
                position += 2
            else:
                out += '\\"' if inner[position] == '"' else inner[position]
                position += 1
        return json.loads(f'"{out}"')

    def name(self) -> str:
        if self.text.startswith("'", self.at):
            return self.quoted()
        return self.while_(lambda ch: ch not in " ,:?|='\"(){}[]…*+")

    def parameter(self) -> Parameter:
        name = self.name()
        required = not self.take("?")
        self.cut = False
        value: Any = "text"
        if self.take(": "):
            value = self.type()
            if self.take("="):
                self.literal()
        return Parameter(name, required, value, self.cut)

    def type(self) -> Any:
        values = [self.single()]
        while self.take("|"):
            if self.take("…+"):
                self.while_(str.isdigit)
                self.cut = True
            else:
                values.append(self.single())
        return values[0]

    def literal(self) -> Any:
        if self.text.startswith("'", self.at):
            return self.quoted()
        return json.loads(self.while_(lambda ch: ch.isalnum() or ch in "+-."))

    def single(self) -> Any:
        if self.text.startswith("'", self.at):
            return self.quoted()
        if self.take("["):
            inner = self.type()
            self.need("]")
            low, _ = self.bounds()
            return [inner] * max(1, int(low or 1))
        if self.take("{"):
            return self.object()
        start = self.at
        word = self.while_(lambda ch: ch.isalnum() or ch in "+-.")
        if word in FORMATS:
            low, high = self.bounds()
            value = FORMATS[word]
            if word in ("int", "num"):
                value = float(low) if low else min(value, float(high)) if high else value
                value = int(value) if word == "int" else value
            return value
        self.at = start
        return self.literal()

    def bounds(self) -> tuple[str, str]:
        if not self.text.startswith("(", self.at) or self.text.startswith("(/", self.at):
            if self.take("(/"):
                self.at = self.text.index("/)", self.at) + 2
            return "", ""
        inner = self.text[self.at + 1 : self.text.index(")", self.at)]
        self.at += len(inner) + 2
        low, dots, high = inner.partition("..")
        return (low, high) if dots else ("", "")

    def object(self) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while not self.take("}"):
            if self.take("…"):
                self.while_(lambda ch: ch == "+" or ch.isdigit())
            elif self.take("*: "):
                value["key"] = self.type()
            else:
                name = self.name()
                optional = self.take("?")
                self.need(": ")
                inner = self.type()
                if not optional:
                    value[name] = inner
            self.take(", ")
        return value


def read(signature: str) -> Read:
    """The signature `signature` read back."""
    return Reader(signature).read()
