"""Counter: exact token counts from a short-lived child, so that this process never loads the vocabulary.

The child needs half a second to load it. Where it is known that there will be something to count, it is started while
the servers are still connected: the first `tools/list` waits for the counts.
"""

import contextlib
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import Process

from proxy.tokens import child_argv, decode_answer, encode_request


class Counter:
    """Starts the children; an async context manager that leaves none behind."""

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        """`argv`: the command of the child, where it is not ours."""
        self._argv = list(argv) if argv is not None else child_argv()
        self._early: Process | None = None

    async def start(self) -> None:
        """Start a child now for a count to come; one that cannot be started is told of then."""
        try:
            self._early = await self._child()
        except OSError:
            self._early = None

    async def count(self, lines: Sequence[str]) -> list[int]:
        """The o200k tokens of each line.

        Raises:
            OSError, ValueError: it could not be started, or has not answered.
        """
        child, self._early = self._early, None
        async with child or await self._child() as process:
            assert process.stdin is not None and process.stdout is not None
            answer = b""
            try:
                await process.stdin.send(encode_request(lines))
                await process.stdin.aclose()
                answer = b"".join([part async for part in process.stdout])
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # it has died; what it said, if anything, is no answer
            return decode_answer(answer, lines)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.dismiss()

    async def dismiss(self) -> None:
        """There is nothing to count: the child that was started early holds 95 MB for nothing."""
        child, self._early = self._early, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have died of itself
                child.kill()
            with anyio.CancelScope(shield=True):
                await child.aclose()

    async def _child(self) -> Process:
        child: Process | None = None
        with anyio.CancelScope(shield=True):  # a start that is cancelled half-way would leave the child behind
            child = await anyio.open_process(self._argv, stderr=subprocess.DEVNULL)
        assert child is not None
        return child
