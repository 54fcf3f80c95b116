"""Steps that are taken at once: the same tasks, the same outcomes, only sooner."""

import asyncio
from collections.abc import Callable

import pytest

from proxy.step import settle, start


def outside(work: Callable[[], None]) -> None:
    """Run `work` as the event loop runs what a pipe brings: in no task. Raises what it raises."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    async def turns() -> None:
        asyncio.get_running_loop().call_soon(run)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(turns())
    if failed:
        raise failed[0]


def test_a_task_goes_as_far_as_it_can_before_start_returns() -> None:
    seen: list[str] = []

    async def work(wait: "asyncio.Future[str]") -> str:
        assert asyncio.current_task() is not None
        seen.append("began")
        seen.append(await wait)
        return "done"

    def run() -> None:
        wait: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = start(work(wait))
        assert seen == ["began"] and not task.done()
        settle(wait, "answered")
        assert seen == ["began", "answered"] and task.result() == "done"

    outside(run)


def test_what_needs_not_wait_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    async def failing() -> None:
        raise ValueError("no")

    def run() -> None:
        assert start(work()).result() == 7
        with pytest.raises(ValueError, match="no"):
            start(failing()).result()

    outside(run)


def test_no_task_is_interrupted_by_another() -> None:
    """Within a task the step follows in the next turn, as with `create_task`: asyncio runs no task inside another."""
    seen: list[str] = []

    async def work(wait: "asyncio.Future[str]") -> None:
        seen.append("began")
        seen.append(await wait)

    async def main() -> None:
        wait: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = start(work(wait))
        assert not seen
        await asyncio.sleep(0)
        settle(wait, "answered")
        assert seen == ["began"]
        await task
        assert seen == ["began", "answered"]

    asyncio.run(main())


def test_a_future_for_which_nobody_or_many_wait_disturbs_nothing() -> None:
    seen: list[object] = []

    async def work(wait: "asyncio.Future[int]") -> None:
        seen.append(await wait)

    def run() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(seen.append, "other")
        alone: asyncio.Future[int] = loop.create_future()
        settle(alone, 1)
        assert not seen, "what waits for its turn is not run instead"
        shared: asyncio.Future[int] = loop.create_future()
        start(work(shared))
        start(work(shared))
        settle(shared, 2)
        assert not seen

    outside(run)
    assert seen == ["other", 2, 2]


def test_a_cancelled_task_ends_in_its_own_turn() -> None:
    seen: list[str] = []

    async def work(wait: "asyncio.Future[None]") -> None:
        try:
            await wait
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    def run() -> None:
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = start(work(wait))
        task.cancel()
        assert wait.cancelled() and not seen

    outside(run)
    assert seen == ["cancelled"]
