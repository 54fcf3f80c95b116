"""What a server asks for in the middle of a call: to the one client whose call it is, or declined at once."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from proxy.config import ServerConfig
from proxy.errors import RpcError
from proxy.upstream import questions as module
from proxy.upstream.questions import Clients, Questions

ELICIT = "elicitation/create"


class Someone:
    """A client that answers every question with its name."""

    def __init__(self, name: str, *, stateless: bool = False, level: str | None = None, keyless: bool = False) -> None:
        self.name, self.stateless, self.log_level = name, stateless or keyless, level
        self.key: object = None if keyless else object()
        self.capabilities: Mapping[str, Any] = {"elicitation": {}, "roots": {}}
        self.heard: list[Any] = []

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"by": self.name, "asked": method, **params}

    async def say(self, method: str, params: Mapping[str, Any]) -> None:
        self.heard.append(params["data"])


def questions(clients: Clients | None = None, **config: Any) -> Questions:
    return Questions(ServerConfig("s", "stdio", **config), clients or Clients(None), lambda text: text)


async def test_a_question_reaches_the_client_whose_call_is_in_flight() -> None:
    asked, ada = questions(), Someone("ada")
    async with asked.call_of(ada), asked.call_of(ada):
        assert await asked.answer(ELICIT, {"message": "?"}) == {"by": "ada", "asked": ELICIT, "message": "?"}


@pytest.mark.parametrize(
    "origins",
    [
        [],
        [Someone("ada"), Someone("bob")],
        [None],
        [Someone("ada", keyless=True), Someone("bob", keyless=True)],
    ],
)
async def test_a_question_is_declined_at_once_where_nobody_or_not_one_can_answer(
    origins: list[Someone | None],
) -> None:
    asked = questions()
    async with AsyncExitStack() as calls:
        for origin in origins:
            await calls.enter_async_context(asked.call_of(origin))
        with pytest.raises(RpcError, match="not exactly one client"):
            await asked.answer(ELICIT, {})


async def test_what_is_not_a_question_for_clients_or_not_allowed_is_no_method() -> None:
    asked, ada = questions(), Someone("ada")
    async with asked.call_of(ada):
        for method in ("roots/list", "made/up"):  # roots only where `client_requests` names them
            with pytest.raises(RpcError, match="Method not found"):
                await asked.answer(method, {})
    allowed = questions(client_requests=("roots",))
    async with allowed.call_of(ada):
        assert (await allowed.answer("roots/list", {}))["by"] == "ada"


async def test_without_a_call_the_only_stdio_client_is_asked() -> None:
    clients, ada = Clients(1), Someone("ada")
    asked = questions(clients)
    clients.is_there(ada)
    assert (await asked.answer(ELICIT, {}))["by"] == "ada"
    assert await asked.declared() == {"elicitation": {}}


async def test_what_is_declared_follows_from_who_may_call() -> None:
    assert await questions(Clients(0)).declared() == {}
    assert set(await questions(Clients(None)).declared()) == {"elicitation", "sampling"}
    assert set(await questions(Clients(None), client_requests=()).declared()) == set()


async def test_a_log_message_goes_to_the_client_of_the_call_and_to_nobody_else() -> None:
    asked, ada, bob = questions(), Someone("ada", level="warning"), Someone("bob")
    async with asked.call_of(ada):
        asked.log_message({"level": "info", "data": "little"})
        asked.log_message({"level": "error", "data": "much"})
        async with asked.call_of(bob):
            asked.log_message({"level": "error", "data": "whose?"})
    assert ada.heard == ["much"] and bob.heard == []


async def test_a_stateless_client_gets_log_messages_only_where_it_asked_for_them() -> None:
    asked, silent, keen = questions(), Someone("a", stateless=True), Someone("b", stateless=True, level="debug")
    for client in (silent, keen):
        async with asked.call_of(client):
            asked.log_message({"level": "info", "data": "x"})
    assert silent.heard == [] and keen.heard == ["x"]


async def test_a_log_message_of_one_of_two_stateless_requests_reaches_neither_client() -> None:
    """Over HTTP nothing tells that two stateless requests are of one client."""
    asked = questions()
    ada, bob = (Someone(name, keyless=True, level="debug") for name in ("ada", "bob"))
    async with asked.call_of(ada), asked.call_of(bob):
        asked.log_message({"level": "error", "data": "whose?"})
    assert ada.heard == bob.heard == []


async def test_what_a_server_says_before_its_answer_is_said_before_the_call_ends() -> None:
    asked, ada = questions(), Someone("ada")
    async with asked.call_of(ada):
        for number in range(3):
            asked.log_message({"level": "info", "data": number})
        assert ada.heard == []
    assert ada.heard == [0, 1, 2]


async def test_one_question_too_many_is_declined_at_once_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is kept until its answer: a server that asks for ever, and a client that never answers, fill the memory."""
    monkeypatch.setattr(module, "MOST_ASKED", 2)
    asked, ada, go = questions(), Someone("ada"), anyio.Event()

    async def slow(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        await go.wait()
        return {"by": "ada"}

    monkeypatch.setattr(ada, "ask", slow)
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await asked.answer(ELICIT, {}))

    async with asked.call_of(ada):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(RpcError, match="2 requests of this server wait"):
                await asked.answer(ELICIT, {})
            go.set()
        assert await asked.answer(ELICIT, {}) == {"by": "ada"} and len(answers) == 2
