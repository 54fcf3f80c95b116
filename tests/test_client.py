"""The client of a request: whoever asks it something, it is asked only what it can answer."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.dispatcher import CallOptions

from proxy.errors import RpcError
from proxy.server import Client

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
