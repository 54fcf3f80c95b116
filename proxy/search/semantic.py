"""Meaning beside words: vectors of tools, kept by what they were made from, mixed into the lexical score.

Off by default (`tool_search.semantic: on`, extra `narrow-waist[semantic]`). A tool without a vector yet is ranked by
its words alone, so search works from the first moment and while a catalog is being embedded in the background.

Measured on `scripts/retrieval` (R@1/R@5/R@10, `eval_search.py --semantic`):

    words                                .779/.925/.940 (mcp)  .822/.952/.975 (api)  .548/.638/.678 (heldout)
    words + meaning                      .808/.928/.946        .832/.964/.979        .554/.684/.734
    meaning alone                        .685/.854/.879        .662/.909/.948

The mix is score + best lexical score x share, share = (cosine - .3) / .7 where positive. Of about 20 gentle mixes tried
on the first two files nearly all were within half a point of R@5, so the gain is partly selected there; that on the
third is not.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from proxy.search.encoder import DIMENSION, MODEL, Floats
from proxy.text import one_line
from proxy.tool import Tool

log = logging.getLogger(__name__)

WEIGHT = 1.0
"""What the meaning can add, as a share of the best lexical score."""
FLOOR = 0.3
"""Cosine of texts that have nothing to do with each other; below it nothing is added."""
ALONE = 0.35
"""Cosine from which a tool without a word of the query is a match at all."""

_TEXT = 600
"""Characters of a tool's text; the model reads 64 tokens of it."""
_QUERY = 400
_DIGEST = 16
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
"""Between the words of a name."""

Embed = Callable[[Sequence[str]], Floats]
Key = bytes


def text_of(tool: Tool) -> str:
    """What of a tool is embedded: server, the words of its name, the beginning of its description."""
    name = _JOINT.sub(" ", tool.name).strip()
    text = f"{one_line(tool.server)} {name}. {one_line((tool.description or tool.title or '')[: 2 * _TEXT])}"
    return text[:_TEXT].encode("utf-8", "replace").decode()


def key_of(text: str) -> Key:
    """Under what the vector of a text is kept: a hash of the text and of the model."""
    return hashlib.sha256(f"{MODEL}\0{text}".encode()).digest()[:_DIGEST]


class Vectors:
    """Vectors by the hash of their texts; immutable."""

    def __init__(self, rows: Mapping[Key, npt.NDArray[np.float16]] | None = None) -> None:
        self._rows = dict(rows or {})

    def __len__(self) -> int:
        return len(self._rows)

    def missing(self, tools: Iterable[Tool]) -> list[str]:
        """The texts of the tools that have no vector, each once."""
        return [text for text in dict.fromkeys(map(text_of, tools)) if key_of(text) not in self._rows]

    def plus(self, texts: Sequence[str], rows: npt.NDArray[np.float16]) -> "Vectors":
        """These and the new ones."""
        return Vectors({**self._rows, **dict(zip(map(key_of, texts), rows, strict=True))})

    def only(self, tools: Iterable[Tool]) -> "Vectors":
        """Those of `tools`, so that old catalogs do not pile up."""
        wanted = {key_of(text_of(tool)) for tool in tools}
        return Vectors({key: row for key, row in self._rows.items() if key in wanted})

    def pack(self) -> bytes:
        """One line that says what this is, then the keys, then the rows."""
        head = json.dumps({"model": MODEL, "dimension": DIMENSION, "count": len(self._rows)}).encode() + b"\n"
        rows = np.stack(list(self._rows.values())) if self._rows else np.zeros((0, DIMENSION), np.float16)
        return head + b"".join(self._rows) + rows.astype(np.float16).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> "Vectors":
        """What `pack` packed; empty where it is damaged or of another model."""
        head, _, body = packed.partition(b"\n")
        try:
            found: object = json.loads(head)
        except ValueError:
            return cls()
        count = len(body) // (_DIGEST + 2 * DIMENSION)
        whole = len(body) == count * (_DIGEST + 2 * DIMENSION)
        if not whole or found != {"model": MODEL, "dimension": DIMENSION, "count": count}:
            return cls()
        keys = [body[n * _DIGEST : (n + 1) * _DIGEST] for n in range(count)]
        rows = np.frombuffer(body, np.float16, offset=count * _DIGEST).reshape(count, DIMENSION)
        if not np.isfinite(rows).all():
            return cls()
        return cls(dict(zip(keys, rows, strict=True)))

    def matrix(self, tools: Sequence[Tool]) -> Floats:
        """One row per tool; zeros where there is no vector."""
        found = np.zeros((len(tools), DIMENSION), np.float32)
        for number, tool in enumerate(tools):
            if (row := self._rows.get(key_of(text_of(tool)))) is not None:
                found[number] = row
        return found


class Meaning:
    """How near each of some tools is to a query."""

    def __init__(self, vectors: Vectors, tools: Sequence[Tool], embed: Embed) -> None:
        """`embed` may raise anything: it costs a line in the log, and nothing is near."""
        self._matrix = vectors.matrix(tools)

        @lru_cache(maxsize=64)
        def of_query(query: str) -> Floats:
            return embed([query])[0]

        self._embed = of_query
        self._broken = False

    def cosines(self, query: str) -> Floats:
        """The cosine of each tool with `query`; 0 without a vector. 4 ms, so not for an event loop."""
        text = one_line(query[:_QUERY]).encode("utf-8", "replace").decode()
        if text and not self._broken:
            try:
                return self._matrix @ self._embed(text)
            except Exception as error:
                self._broken = True
                log.warning("search goes by words alone: the embedding model failed (%r)", error)
        return np.zeros(len(self._matrix), np.float32)


def mixed(lexical: Floats, cosines: Floats) -> Floats:
    """The scores that rank, of at least one tool: lexical score + best lexical score x share.

    A tool that shares a word with the query keeps at least its lexical score; one that shares none needs `ALONE`.
    """
    share = np.maximum(cosines - FLOOR, 0) / (1 - FLOOR)
    near = (lexical > 0) | (cosines >= ALONE)
    return np.where(near, lexical + WEIGHT * (float(lexical.max()) or 1.0) * share, 0).astype(np.float32)
