"""An upstream of the 2.x SDK, both eras.

    python sdk_server.py LEDGER [http|sse [PORT]]

Without a transport it speaks stdio; over HTTP its first line of stdout is `PORT n`. Tools: `echo` answers with its
arguments, `count` reports progress 1 to 5, `wait` writes "waiting" and, when it is cancelled, "cancelled" to LEDGER.
"""

import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

LEDGER = Path(sys.argv[1])
DESCRIPTIONS = {
    "echo": "Give the arguments back",
    "count": "Count from one to five, with progress",
    "wait": "Wait until the call is cancelled",
}


def note(line: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    schema = {"type": "object"}
    return types.ListToolsResult(
        tools=[types.Tool(name=n, description=d, input_schema=schema) for n, d in DESCRIPTIONS.items()]
    )


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    if params.name == "count":
        for step in range(1, 6):
            await context.session.report_progress(step, 5, f"step {step}")
    elif params.name == "wait":
        try:
            note("waiting")
            await anyio.sleep_forever()
        finally:
            note("cancelled")
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=params.name)], structured_content=arguments
    )


server: Server[Any] = Server("sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def sse_app() -> Starlette:
    transport = SseServerTransport("/messages/")

    async def stream(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    routes = [Route("/sse", stream), Mount("/messages/", transport.handle_post_message)]
    return Starlette(routes=routes)


def serve_http(kind: str, port: int) -> None:
    sock = socket.create_server(("127.0.0.1", port))
    print(f"PORT {sock.getsockname()[1]}", flush=True)
    app = sse_app() if kind == "sse" else server.streamable_http_app()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve_http(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    else:
        anyio.run(serve_stdio)
