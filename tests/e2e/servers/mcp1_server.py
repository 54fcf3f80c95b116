"""An upstream of the 1.x SDK over stdio, run in its own environment; what it offers, sdk_server.py offers too.

python mcp1_server.py LEDGER
"""

import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import McpError, types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import AnyUrl

LEDGER = Path(sys.argv[1])
NAMES = ("echo", "count", "wait", "refuse", "ask", "log")
server: Server[Any] = Server("mcp1", version="1")


def note(line: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return [types.Tool(name=name, description=f"Old {name}", inputSchema={"type": "object"}) for name in NAMES]


async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
    name, arguments = request.params.name, request.params.arguments or {}
    context = server.request_context
    token = context.meta.progressToken if context.meta is not None else None

    async def progress(step: int) -> None:
        if token is not None:
            await context.session.send_progress_notification(token, step, 5, f"step {step}", str(context.request_id))

    text = name
    if name == "count":
        for step in range(1, 6):
            await progress(step)
    elif name == "wait":
        try:
            note("waiting")
            await progress(1)
            await anyio.sleep_forever()
        finally:
            note("cancelled")
    elif name == "refuse":
        raise McpError(types.ErrorData(code=-32011, message="the quota is used up", data={"retry": 2**53 + 1}))
    elif name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        answer = await context.session.elicit("What is your name?", schema, context.request_id)
        text = f"{answer.action}: {(answer.content or {}).get('name')}"
    elif name == "log":
        for level in ("info", "error"):
            await context.session.send_log_message(level, {"level": level}, "old", context.request_id)
    content = [types.TextContent(type="text", text=text)]
    return types.ServerResult(types.CallToolResult(content=content, structuredContent=arguments))


server.request_handlers[types.CallToolRequest] = call_tool  # its decorator turns every error into a result


@server.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(uri=AnyUrl("old://note"), name="note")]


@server.list_resource_templates()
async def list_templates() -> list[types.ResourceTemplate]:
    return [types.ResourceTemplate(uriTemplate="old://item/{id}", name="item")]


async def read(request: types.ReadResourceRequest) -> types.ServerResult:
    uri = str(request.params.uri)
    if not uri.startswith(("old://note", "old://item/")):
        raise McpError(types.ErrorData(code=-32002, message="Resource not found", data={"uri": uri}))
    content = types.TextResourceContents(uri=request.params.uri, text=f"content of {uri}")
    return types.ServerResult(types.ReadResourceResult(contents=[content]))


server.request_handlers[types.ReadResourceRequest] = read


@server.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="greet", arguments=[types.PromptArgument(name="who", required=True)])]


@server.get_prompt()
async def get_prompt(_name: str, arguments: dict[str, str] | None) -> types.GetPromptResult:
    text = types.TextContent(type="text", text=f"Greet {(arguments or {}).get('who')}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


@server.completion()
async def complete(_ref: Any, argument: types.CompletionArgument, _context: Any) -> types.Completion:
    return types.Completion(values=[argument.value + "a", argument.value + "b"])


@server.set_logging_level()
async def set_level(_level: types.LoggingLevel) -> None:
    """All are sent: which ones a client wants is the proxy's to know."""


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
