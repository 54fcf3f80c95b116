"""Tool: one upstream tool as data. The upstream's raw dict is the truth; nothing re-models it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

NAME_LIMIT = 64
"""OpenAI, Bedrock and older Claude clients refuse longer tool names."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_SUFFIX = 8
"""Hex digits of the hash suffix: 32 bits keep 10,000 names apart with a chance of 1 in 80 of any clash at all;
`catalog.py` looks names up in a table and would drop the second with a warning."""

HASHED = _SUFFIX + 1
"""Characters by which such a name is longer, its underscore with them."""


def public_stem(server: str) -> str:
    """What the public names of all tools of `server` begin with, unless it is so long that they are cut before."""
    return f"{_UNSAFE.sub('_', server)}__"


def public_name(server: str, name: str) -> str:
    """The name a client may use for the tool `name` of `server`: `<server>__<tool>`, `[A-Za-z0-9_-]{1,64}`.

    A function of its two arguments alone, so that no other server can ever rename a tool. Whenever the plain
    form is not exact and unambiguous, it ends in a short stable hash of both arguments.
    """
    plain = f"{server}__{name}"
    safe = _UNSAFE.sub("_", plain)
    ambiguous = "__" in server or server.endswith("_") or name.startswith("_") or not name
    if safe == plain and len(plain) <= NAME_LIMIT and not ambiguous:
        return plain
    digest = hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:_SUFFIX]
    return f"{safe[: NAME_LIMIT - HASHED]}_{digest}"


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One tool of one upstream."""

    server: str
    """Key of the upstream in the config."""
    name: str
    """Raw name: what the upstream calls it, byte for byte."""
    raw: Mapping[str, Any]
    """The dict the upstream sent, untouched."""
    public_name: str
    eager: bool = False
    """Shown to the client directly instead of behind the bridge."""
    unshowable: str = ""
    """Why a tool that the configuration makes eager stays behind the bridge; "" for all others."""
    locked: bool = False
    """A person has approved exactly this definition (`upstreams.lock`)."""

    @property
    def description(self) -> str:
        """The upstream's description, untouched; "" where it sent none or not a string."""
        value = self.raw.get("description")
        return value if isinstance(value, str) else ""

    @property
    def title(self) -> str | None:
        """The display title: `title`, else `annotations.title`."""
        value = self.raw.get("title") or self.annotations.get("title")
        return value if isinstance(value, str) else None

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The input schema as sent; `{"type": "object"}` where it is missing or not an object at all."""
        value = self.raw.get("inputSchema")
        return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {"type": "object"}

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The tool's annotations; empty where there are none."""
        value = self.raw.get("annotations")
        return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}
