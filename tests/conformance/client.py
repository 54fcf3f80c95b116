"""A client for the suite's client scenarios: the proxy, with the scenario's server as its only upstream.

    MCP_CONFORMANCE_SCENARIO=tools_call python client.py http://localhost:PORT/mcp

The proxy runs over stdio, as a host would start it, in pass-through but for one scenario, and an SDK client in front of
it does what the scenario wants done; the suite then looks at what the proxy has sent.
"""

import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
SERVER = "suite"


async def accept(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept a form as it stands: each field with its default."""
    schema = getattr(params, "requested_schema", {})
    fields: Mapping[str, Any] = schema.get("properties", {})
    content = {name: field.get("default", True) for name, field in fields.items()}
    return types.ElicitResult(action="accept", content=content)


async def connect(client: Client) -> None:
    await client.list_tools()


async def add(client: Client) -> None:
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def call_all(client: Client) -> None:
    """Call each tool that is listed, with nothing, or with a text for each argument."""
    for tool in (await client.list_tools()).tools:
        await client.call_tool(tool.name, dict.fromkeys(tool.input_schema.get("properties", {}), "text"))


async def call_in_context(client: Client) -> None:
    """Make the calls that the scenario lists."""
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def use_everything(client: Client) -> None:
    """One request of each kind."""
    await call_all(client)
    with suppress(MCPError):
        for resource in (await client.list_resources()).resources:
            await client.read_resource(resource.uri)
    with suppress(MCPError):
        for prompt in (await client.list_prompts()).prompts:
            await client.get_prompt(prompt.name, {a.name: "text" for a in prompt.arguments or []})


async def echo_schema(client: Client) -> None:
    """Give the schema of one tool to the other. The bridge gives it as it came; a list for hosts may be mended."""
    found = await client.call_tool("tool_search", {"limit": 2})
    names = [match["name"] for match in json.loads(text(found))["matches"]]
    described = json.loads(text(await client.call_tool("tool_describe", {"names": names})))["tools"]
    [schema] = [tool["inputSchema"] for tool in described if tool["tool"] == "json_schema_2020_12_tool"]
    [echo] = [tool["name"] for tool in described if tool["tool"] != "json_schema_2020_12_tool"]
    await client.call_tool("tool_call", {"name": echo, "arguments": {"schema": schema}})


def text(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": connect,
    "tools_call": add,
    "elicitation-sep1034-client-defaults": call_all,
    "sse-retry": call_all,
    "request-metadata": connect,
    "sep-2322-client-request-state": call_all,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_in_context,
    "http-invalid-tool-headers": call_all,
    "json-schema-ref-no-deref": connect,
    "json-schema-2020-12-preservation": echo_schema,
}


async def main(url: str) -> None:
    scenario = SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    search = "on" if scenario is echo_schema else "off"
    era = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "upstreams.yaml")
        with open(config, "w", encoding="utf-8") as file:  # noqa: ASYNC230 - nothing else runs yet
            json.dump({"servers": {SERVER: {"url": url}}, "tool_search": {"enabled": search}}, file)
        proxy = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-m", "proxy", "--config", config],
            env={**os.environ, "PYTHONPATH": str(ROOT), "NARROW_WAIST_CACHE": os.path.join(folder, "cache")},
        )
        mode = "auto" if era in MODERN_PROTOCOL_VERSIONS else "legacy"
        with anyio.fail_after(PATIENCE):
            async with Client(proxy, mode=mode, elicitation_callback=accept) as client:
                await scenario(client)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
