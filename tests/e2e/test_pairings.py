"""All four pairings of protocol eras: what a server offers beside tools, and what it asks for during a call."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import anyio
import mcp_types as types
import pytest
from harness import PATIENCE, ROOT, Daemon, Place
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from raw_client import MODERN, OLD, http

EVERYTHING = ROOT / "tests" / "conformance" / "everything_server.py"
PAIRS = list(product(("legacy", "auto"), ("legacy", "modern")))


@asynccontextmanager
async def connected(place: Place, client: str, upstream: str, **extra: Any) -> AsyncGenerator[Client]:
    server = {"command": sys.executable, "args": [str(EVERYTHING)], "mode": upstream, **extra}
    config = place.config({"all": server}, first_list_wait=PATIENCE)
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "proxy", "--config", str(config)], env=place.environ(), cwd=str(ROOT)
    )

    async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"response": "tea", "name": "Ada"})

    with anyio.fail_after(3 * PATIENCE):
        async with Client(stdio_client(parameters), mode=client, elicitation_callback=answer) as connected:
            yield connected


def words(result: types.CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
async def test_resources_prompts_and_completions_travel_through(place: Place, client: str, upstream: str) -> None:
    async with connected(place, client, upstream) as proxy:
        resources = {str(r.uri) for r in (await proxy.list_resources()).resources}
        assert "test://static-text" in resources, "a URI stays as it is"
        read = await proxy.read_resource("test://static-text")
        assert isinstance(read.contents[0], types.TextResourceContents) and read.contents[0].text
        templates = (await proxy.list_resource_templates()).resource_templates
        assert any(t.uri_template == "test://template/{id}/data" for t in templates)
        unlisted = await proxy.read_resource("test://template/7/data")
        assert isinstance(unlisted.contents[0], types.TextResourceContents) and "7" in unlisted.contents[0].text
        with pytest.raises(Exception, match=r"(?i)not found"):
            await proxy.read_resource("test://nobody-has-this")
        prompts = {p.name for p in (await proxy.list_prompts()).prompts}
        assert "all__test_prompt_with_arguments" in prompts
        got = await proxy.get_prompt("all__test_prompt_with_arguments", {"arg1": "x1", "arg2": "x2"})
        assert "x1" in str(got.messages) and "x2" in str(got.messages)
        reference = types.PromptReference(type="ref/prompt", name="all__test_prompt_with_arguments")
        completed = await proxy.complete(reference, {"name": "arg1", "value": "a"})
        assert isinstance(completed.completion.values, list)


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
async def test_a_question_in_the_middle_of_a_call_reaches_the_client(place: Place, client: str, upstream: str) -> None:
    async with connected(place, client, upstream) as proxy:
        call = {"name": "all__test_elicitation", "arguments": {"message": "What to drink?"}}
        if (client, upstream) == ("auto", "legacy"):
            # A server that waits for its answer cannot be told to ask again later: it learns at once that nobody can.
            with pytest.raises(MCPError, match="not declared: elicitation"):
                await proxy.call_tool("tool_call", call)
            return
        result = await proxy.call_tool("tool_call", call)
        assert not result.is_error and "accept" in words(result) and "tea" in words(result)


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
async def test_errors_and_results_are_the_same_in_every_pairing(place: Place, client: str, upstream: str) -> None:
    async with connected(place, client, upstream) as proxy:
        mixed = await proxy.call_tool("tool_call", {"name": "all__test_multiple_content_types", "arguments": {}})
        assert [block.type for block in mixed.content] == ["text", "image", "resource"]
        failed = await proxy.call_tool("tool_call", {"name": "all__test_error_handling", "arguments": {}})
        assert failed.is_error
        seen: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            seen.append(done)

        call = {"name": "all__test_tool_with_progress", "arguments": {}}
        await proxy.call_tool("tool_call", call, progress_callback=progress)
        assert seen == [0, 50, 100]


async def test_clients_of_a_server_with_private_sessions_get_a_process_each(place: Place) -> None:
    """`session: per_client`: what one client's session holds, another's does not see."""
    server = {"command": sys.executable, "args": [str(ROOT / "tests/hostile/servers/good.py")], "session": "per_client"}
    config = place.config({"shell": server}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon:
        with http(daemon.url, OLD) as one, http(daemon.url, OLD) as two, http(daemon.url, MODERN) as stateless:
            pids = [c.through("shell__pid")["result"]["content"][0]["text"] for c in (one, two, one)]
            assert pids[0] == pids[2] != pids[1]
            refused = stateless.through("shell__pid")["result"]
            assert refused["isError"] and "per_client" in refused["content"][0]["text"]
