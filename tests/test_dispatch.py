"""The path of a call: what is denied, how an upstream's errors come out, and that nothing is sent where we refuse."""

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.arguments import direct, unwrap
from proxy.caller import Caller
from proxy.catalog import Catalog, make_server
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.dispatch import Dispatcher
from proxy.errors import Refused, RpcError, UpstreamFailure
from proxy.tool import Tool

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Upstream:
    """Takes calls down, and does with them what the test says."""

    def __init__(self, outcome: dict[str, Any] | Exception) -> None:
        self.outcome, self.calls = outcome, list[tuple[str, Any]]()

    async def call_tool(
        self, tool: Tool, arguments: Mapping[str, Any] | None, meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        self.calls.append((tool.name, arguments))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def house(outcome: dict[str, Any] | Exception, **config: Any) -> tuple[Dispatcher, Catalog, Upstream]:
    server, upstream = ServerConfig("s", "stdio", **config), Upstream(outcome)
    catalog = Catalog([make_server(ServerConfig("s", "stdio"), [{"name": "add", "inputSchema": SCHEMA}])])
    return Dispatcher(upstream, {"s": server}, ToolSearchConfig()), catalog, upstream


async def call(
    dispatcher: Dispatcher, catalog: Catalog, name: str = "s__add", *, bridge: bool = True
) -> dict[str, Any]:
    return await dispatcher.call(catalog, direct(name, {"n": 1}), {}, Caller(bridge=bridge))


def text(result: dict[str, Any]) -> str:
    assert result["isError"] is True
    return result["content"][0]["text"]


async def test_a_denied_tool_is_refused_even_in_a_view_that_shows_it() -> None:
    """The view leaves denied tools out; whatever makes a view in future, dispatch does not let them through."""
    dispatcher, catalog, upstream = house({"content": []}, deny=("add",))
    refused = text(await call(dispatcher, catalog))
    assert upstream.calls == []
    assert refused.replace("s__add", "X") == text(await call(dispatcher, Catalog(), "s__gone")).replace("s__gone", "X")


async def test_an_upstreams_error_stays_one_for_a_direct_call_and_is_a_result_through_the_bridge() -> None:
    dispatcher, catalog, _ = house(RpcError(-32602, "no such path", {"field": "path"}))
    with pytest.raises(RpcError) as raised:
        await call(dispatcher, catalog, bridge=False)
    assert (raised.value.code, raised.value.message, raised.value.data) == (-32602, "no such path", {"field": "path"})
    said = text(await call(dispatcher, catalog))
    assert all(part in said for part in ("'s'", "'add'", "no such path", "-32602", '{"field": "path"}'))


@pytest.mark.parametrize("bridge", [True, False])
async def test_an_error_that_asks_something_of_the_client_passes_unchanged(bridge: bool) -> None:
    dispatcher, catalog, _ = house(RpcError(-32042, "sign in", {"elicitations": []}))
    with pytest.raises(RpcError, match="sign in"):
        await call(dispatcher, catalog, bridge=bridge)


@pytest.mark.parametrize(("ran", "advice"), [(True, "may have run"), (False, "did not run")])
async def test_a_failure_says_whether_the_call_may_have_run(ran: bool, advice: str) -> None:
    dispatcher, catalog, _ = house(UpstreamFailure("s", "it crashed.", may_have_run=ran))
    for bridge in (True, False):
        said = text(await call(dispatcher, catalog, bridge=bridge))
        assert "it crashed. The call " in said and advice in said


async def test_what_its_host_has_is_told_to_a_model_that_calls_it_through_the_bridge_and_to_nobody_else() -> None:
    dispatcher, catalog, _ = house({})
    host: Any = object()
    for name in ("terminal", "s__ad"):
        said = text(await dispatcher.call(catalog, direct(name, {}), {}, Caller(bridge=True, origin=host)))
        assert said.endswith("A tool that your host gives you itself is called directly, not through tool_call.")
    for caller in (Caller(bridge=True), Caller(origin=host)):
        assert "your host" not in text(await dispatcher.call(catalog, direct("terminal", {}), {}, caller))


@pytest.mark.parametrize("name", ["s__sub", "zzzz"])
async def test_where_clients_are_shown_no_search_tool_nobody_is_sent_to_it(name: str) -> None:
    dispatcher, catalog, _ = house({})
    refused = text(await dispatcher.call(catalog, direct(name, {}), {}, Caller(), bridged=False))
    assert refused.startswith(f"There is no tool {name!r}.") and "tool_search" not in refused


async def test_arguments_that_do_not_fit_are_never_sent() -> None:
    dispatcher, catalog, upstream = house({"content": []})
    assert "n" in text(await dispatcher.call(catalog, direct("s__add", {"n": "x"}), {}, Caller(bridge=True)))
    assert upstream.calls == []


async def test_what_every_client_is_shown_directly_is_validated_by_nobody_unless_that_is_asked_for() -> None:
    odd = direct("s__add", {"n": "x"})
    dispatcher, catalog, upstream = house({"content": []})
    assert await dispatcher.call(catalog, odd, {}, Caller(), bridged=False) == {"content": []}
    assert upstream.calls == [("add", {"n": "x"})]
    dispatcher, catalog, upstream = house({"content": []}, validate="strict")
    said = text(await dispatcher.call(catalog, odd, {}, Caller(), bridged=False))
    assert upstream.calls == [] and "tool_call" not in said and "tool_describe" not in said


NONSENSE = {"name": "s__add", "arguments": "nonsense"}


def refusal(dispatcher: Dispatcher, view: Catalog) -> str:
    with pytest.raises(Refused) as caught:
        unwrap(NONSENSE, ToolSearchConfig())
    return dispatcher.refusal(view, caught.value, Caller(bridge=True))


def test_nonsense_for_arguments_is_answered_with_a_call_that_fits_the_tool() -> None:
    dispatcher, catalog, _ = house({})
    assert refusal(dispatcher, catalog) == (
        "s__add was not called: arguments is not valid JSON (expecting value at position 1). "
        'Call it again like tool_call({"name": "s__add", "arguments": {"n": 1}}).\n'
        'tool_describe({"name": "s__add"}) shows all its parameters.'
    )


def test_nonsense_for_a_tool_that_the_caller_does_not_have_is_answered_as_for_none() -> None:
    unknown = refusal(house({})[0], Catalog())
    assert 'Send tool_call({"name": "s__add", "arguments": {"parameter": "value"}}).' in unknown
    dispatcher, catalog, _ = house({}, deny=("add",))
    assert refusal(dispatcher, catalog) == unknown


def test_nonsense_for_a_tool_without_an_example_keeps_the_general_form() -> None:
    dispatcher, _, _ = house({})
    schema = {**SCHEMA, "properties": {"n": {"type": "string", "pattern": "^[a-f]{7}$"}}}
    view = Catalog([make_server(ServerConfig("s", "stdio"), [{"name": "add", "inputSchema": schema}])])
    said = refusal(dispatcher, view)
    assert '"arguments": {"parameter": "value"}}).\ntool_describe({"name": "s__add"}) shows' in said
