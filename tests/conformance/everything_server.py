"""The everything-server, as a program.

    python everything_server.py [--port N]

Speaks stdio, or with `--port` Streamable HTTP on 127.0.0.1 at /mcp; its first line of stdout is then `PORT n`
(0 takes any free port). Both protocol eras, on both transports.
"""

import argparse
import socket
import warnings
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from everything import tools
from everything.asking import InputNeeded
from everything.events import Events
from everything.offers import Offers
from everything.replay import Replay
from everything.tools import Run
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

CACHED = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
RETRY = 200
"""Milliseconds after which a client whose stream was closed should come again."""


def everything() -> Server[Any]:
    """The server with all its handlers."""
    events = Events()
    offers = Offers(events)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.listed(events))

    async def call_tool(context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> dict[str, Any]:
        tool = tools.BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        try:
            return {"resultType": "complete", "content": await tool.run(Run(context, params.arguments or {}, events))}
        except InputNeeded as needed:
            return needed.result
        except (KeyError, ValueError) as error:
            return {"resultType": "complete", "content": [{"type": "text", "text": str(error)}], "isError": True}

    async def remember(context: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        if context.method == "notifications/initialized":
            events.met(context)
        return await call_next(context)

    server: Server[Any] = Server(
        "everything",
        version="1.0.0",
        instructions="Everything the conformance suite calls for.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=offers.resources,
        on_list_resource_templates=offers.templates,
        on_read_resource=offers.read,
        on_subscribe_resource=events.subscribe,
        on_unsubscribe_resource=events.unsubscribe,
        on_subscriptions_listen=events.listen,
        on_list_prompts=offers.prompts,
        on_get_prompt=offers.prompt,
        on_completion=offers.complete,
        on_set_logging_level=events.set_level,
        cache_hints={method: CacheHint(ttl_ms=0, scope="private") for method in CACHED},
        get_tool_input_schema=lambda name: tool.schema if (tool := tools.BY_NAME.get(name)) else None,
    )
    server.middleware.append(remember)
    default = server.create_initialization_options
    server.create_initialization_options = lambda options=None, *rest: default(  # HTTP passes none: no listChanged
        options or NotificationOptions(True, True, True), *rest
    )
    return server


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(server: Server[Any], port: int) -> None:
    app = server.streamable_http_app(event_store=Replay(), retry_interval=RETRY)
    listening = socket.create_server(("127.0.0.1", port))
    print(f"PORT {listening.getsockname()[1]}", flush=True)
    # With httptools, which uvicorn takes where it is installed, white space around a header's value stays part of it,
    # and the SDK refuses a padded Mcp-Name; our own daemon strips it.
    config = uvicorn.Config(app, http="h11", log_level="warning", ws="none", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # half of the suite is of what is deprecated by now
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    port = parser.parse_args().port
    if port is None:
        anyio.run(serve_stdio, everything())
    else:
        anyio.run(serve_http, everything(), port)
