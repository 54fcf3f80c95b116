"""Recall: a long list that comes byte for byte as it came at the last start is not parsed again.

Its values are there already, from the snapshot. Parsed beside them, a list of 3,300 tools costs 50 ms of start, and
3 MB that stay: what is freed again lies between what is kept.
"""

import hashlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from proxy.wire import decode, encode, lasting

LONG = 256 * 1024
"""Bytes of an answer from which on it is worth it."""


@dataclass(frozen=True)
class Answer:
    """An answer to `tools/list` that held all tools of a server."""

    digest: str
    """SHA-256 of its bytes, with the id that it had: those of a start are mostly the same each time."""
    frame: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The message, but for the tools."""


class Recall:
    """The long answers of a server while its lists are read."""

    def __init__(self, answer: Answer | None = None, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """`answer` of the last start, and the `tools` that were in it."""
        self._kept, self._tools = answer, tools
        self._seen: list[tuple[str, Mapping[str, Any]]] = []

    def decode(self, data: bytes) -> Any:
        """What `wire.decode` makes of the bytes, and raises."""
        if len(data) < LONG:
            return decode(data)
        digest, kept = hashlib.sha256(data).hexdigest(), self._kept
        if kept is not None and digest == kept.digest:
            message: Any = {**kept.frame, "result": {**kept.frame["result"], "tools": self._tools}}
        else:
            message = decode(data)
        if isinstance(message, dict):
            self._seen.append((digest, cast(dict[str, Any], message)))
        return cast(object, message)

    def answer(self, tools: Sequence[Mapping[str, Any]]) -> Answer | None:
        """The answer that held just these tools, in this order; None where they came in several, or some were odd."""
        for digest, message in self._seen:
            result: Any = message.get("result")
            fields = cast(dict[str, Any], result) if isinstance(result, dict) else {}
            if _same(fields.get("tools"), tools):
                return Answer(digest, {**message, "result": {**fields, "tools": []}})
        return None


def sealed(answer: Answer, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What is written of an answer beside its tools; None where they would be read as something else."""
    if not lasting([answer.frame, tools]):
        return None
    return {"digest": answer.digest, "frame": answer.frame, "seal": _seal(answer.frame, tools)}


def unsealed(written: object, tools: Sequence[Mapping[str, Any]]) -> Answer | None:
    """The answer, where it and the tools beside it are as they were written.

    What was cut or altered in the file is read from the server again.
    """
    fields = cast(dict[str, Any], written) if isinstance(written, dict) else {}
    digest, frame = fields.get("digest"), fields.get("frame")
    if not isinstance(digest, str) or not isinstance(frame, dict):
        return None
    message = cast(dict[str, Any], frame)
    return Answer(digest, message) if fields.get("seal") == _seal(message, tools) else None


def _seal(frame: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(encode({"frame": frame, "tools": tools})).hexdigest()


def _same(sent: object, tools: Sequence[Mapping[str, Any]]) -> bool:
    entries = cast(list[object], sent) if isinstance(sent, list) else []
    return len(entries) == len(tools) > 0 and all(map(operator.is_, entries, tools))
