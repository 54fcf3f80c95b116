"""Backlog: what a server has said and its client has not read yet, at most so much of it."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from proxy.wire import encode

ROOM = 4 * 1024 * 1024
"""Bytes of JSON that wait, whatever their number."""


class Backlog:
    """The params of notifications, oldest first; where there are too many, the oldest give way."""

    def __init__(self, most: int) -> None:
        """`most` is their number."""
        self._most = most
        self._waiting: deque[tuple[int, Mapping[str, Any]]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, params: Mapping[str, Any]) -> bool:
        """Add the newest; False where older ones had to go for it."""
        size = _size(params)
        complete = True
        while self._waiting and (len(self._waiting) >= self._most or self._size + size > ROOM):
            self.take()
            complete = False
        self._waiting.append((size, params))  # alone it is passed on, whatever its size
        self._size += size
        return complete

    def take(self) -> Mapping[str, Any]:
        """The oldest; raises IndexError where none waits."""
        size, params = self._waiting.popleft()
        self._size -= size
        return params


def _size(params: Mapping[str, Any]) -> int:
    try:
        return len(encode(params))
    except RecursionError:
        return ROOM
