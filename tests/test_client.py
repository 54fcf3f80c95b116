"""The client of a request: whoever asks it something, it is asked only what it can answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.dispatcher import CallOptions

from proxy.errors import RpcError
from proxy.server import Client, StdioDoor

ELICIT = "elicitation/create"


class Channel:
    """Answers every request with its method."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return {"asked": method}

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        raise NotImplementedError


def client(*declared: str, stateless: bool = False) -> Client:
    can: dict[str, Any] = {name: {} for name in declared}
    return Client(Channel(), None, {}, stateless=stateless, declared=lambda: can, level=lambda: None)


async def test_a_client_is_asked_what_it_has_declared() -> None:
    assert await client("elicitation").ask(ELICIT, {}) == {"asked": ELICIT}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (client(), "does not support elicitation"),
        (client("roots"), "does not support elicitation"),
        (client("elicitation", stateless=True), "stateless protocol, in which it cannot be asked"),
        (client(stateless=True), "stateless protocol, in which it cannot be asked"),
    ],
)
async def test_a_client_that_cannot_answer_is_not_asked(asked: Client, why: str) -> None:
    with pytest.raises(RpcError, match=why):
        await asked.ask(ELICIT, {})


def test_an_id_is_free_again_once_its_call_was_answered_on_the_spot() -> None:
    """What needs not wait is answered where its line was read; its id must not look as if it were in use for ever."""
    sent: list[dict[str, Any]] = []

    class Server:
        async def call(self, params: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
            return {"content": [], "of": params["name"]}

    async def send(frame: dict[str, Any]) -> None:
        sent.append(frame)

    async def main() -> None:
        door = StdioDoor(Server(), send)
        door.open(client(), "x")
        line = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool_search"}}'
        taken: list[bool] = []
        for _ in range(3):
            asyncio.get_running_loop().call_soon(lambda: taken.append(door.take(line)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert taken == [True] * 3
        await door.close()

    asyncio.run(main())
    assert [frame["id"] for frame in sent] == [7, 7, 7]


def test_a_call_with_the_id_of_one_just_cancelled_can_be_cancelled_too() -> None:
    """The end of the first must not take the second's id out of the door's list."""
    ended: list[str] = []
    first_ended = asyncio.Event()

    class Server:
        async def call(self, params: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
            try:
                return await asyncio.Future()
            finally:
                ended.append(params["name"])
                first_ended.set()

    async def send(frame: dict[str, Any]) -> None:
        raise AssertionError("a cancelled call has no answer")

    def call(name: str) -> bytes:
        return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%s"}}' % name.encode()

    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'

    async def main() -> None:
        door = StdioDoor(Server(), send)
        door.open(client(), "x")
        assert door.take(call("first"))
        await asyncio.sleep(0)
        assert door.take(cancel)
        assert door.take(call("second")), "the id is free again"
        await first_ended.wait()
        assert door.take(cancel), "the second is still known"
        await door.close()

    asyncio.run(main())
