"""JSON-RPC frames as bytes: lines of any length without quadratic copies, and JSON read leniently. Pure.

pydantic-core's JSON (mcp brings it) takes a third of the time of the standard library's; what it refuses, and the
standard library can do, still travels.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import from_json, to_json

READ_SIZE = 64 * 1024
INTERNAL_ERROR = -32603


class Lines:
    """Chunks in, whole lines out. A line longer than `limit` comes out cut and marked."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """The lines that end in `chunk`, without their line break; True for one that is too long."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if self._size:
                line, size = b"".join([*self._parts, chunk[start:end]]), self._size + end - start
                self._parts, self._size = [], 0
                yield line, size > self._limit
            else:
                yield chunk[start:end], end - start > self._limit
            start = end + 1
        if start < len(chunk):
            if self._size <= self._limit:
                self._parts.append(chunk[start:])
            self._size += len(chunk) - start


def read_modestly(transport: object) -> None:
    """Have an asyncio transport read 64 KiB at a time, which is what a pipe holds, instead of 256 KiB.

    For each read asyncio asks for a buffer of that size, and one above 128 KiB is mapped and unmapped by malloc: 14 us
    a read instead of 1 us, a tenth of the whole cost of a call. Where there is no such attribute nothing is lost.
    """
    if hasattr(transport, "max_size"):
        setattr(transport, "max_size", READ_SIZE)  # noqa: B010


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as compact JSON; lone surrogates (which UTF-8 cannot hold) become escapes.

    What JSON has no numbers for (1e400, and the NaN that Python servers write) becomes null, as the SDK writes it:
    JavaScript reads no line with `Infinity` in it, and waits for ever.

    Raises:
        RecursionError: it is nested too deep.
    """
    try:
        return to_json(message, inf_nan_mode="null")
    except ValueError:  # also where it is nested deeper than pydantic-core allows
        text = json.dumps(message, separators=(",", ":"))
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=_nothing), separators=(",", ":"))
    return text.encode()


def encode_answer(message: Mapping[str, Any]) -> bytes:
    """The same for an answer; one that cannot be written becomes an error, so that nobody waits for it for ever."""
    try:
        return encode(message)
    except RecursionError:  # there is less room here than where it was read
        error = {"code": INTERNAL_ERROR, "message": "the answer is nested too deeply"}
        return encode({"jsonrpc": "2.0", "id": message.get("id"), "error": error})


def encode_request(message: Mapping[str, Any]) -> bytes:
    """The same for what a server is sent; raises OSError where it cannot be, as for a connection that is gone."""
    try:
        return encode(message)
    except RecursionError:
        raise OSError("it is nested too deeply") from None


def lasting(value: object) -> bool:
    """Whether `decode` gives back what `encode` writes: not where there are numbers that JSON does not know."""
    try:
        return to_json(value) == to_json(value, inf_nan_mode="null")
    except ValueError:
        return False


def writable(value: object, room: int = 0) -> bool:
    """Whether the SDK can write it, with `room` levels around it: it ends at 255, where `encode` goes on."""
    for _ in range(room):
        value = [value]
    try:
        to_json(value)
    except ValueError as error:
        return "depth exceeded" not in str(error)
    return True


def _nothing(_constant: str) -> None:
    return None


def decode(line: bytes) -> Any:
    """One line's JSON value, leniently: invalid UTF-8 and lone surrogates become U+FFFD, a byte order mark goes.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deep.
    """
    try:
        return from_json(line)
    except ValueError:
        text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    value = json.loads(text)
    if "\\ud" in text or "\\uD" in text:
        # JavaScript cuts strings in half; a lone half cannot be encoded again on the way out.
        again = json.dumps(value, ensure_ascii=False)
        if any("\ud800" <= ch <= "\udfff" for ch in again):
            value = json.loads(again.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return value
