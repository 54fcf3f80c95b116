"""An upstream of the 2.x SDK, both eras.

    python sdk_server.py LEDGER [http|sse [PORT]]

Without a transport it speaks stdio; over HTTP its first line of stdout is `PORT n`. Tools: `echo` answers with its
arguments, `count` reports progress 1 to 5, `wait` writes "waiting" and, when it is cancelled, "cancelled" to LEDGER,
`refuse` fails with a JSON-RPC error, `ask` asks for a name, `log` sends two log messages. There are a resource, a
template and a prompt.
"""

import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

LEDGER = Path(sys.argv[1])
DESCRIPTIONS = {
    "echo": "Give the arguments back",
    "count": "Count from one to five, with progress",
    "wait": "Wait until the call is cancelled",
    "refuse": "Refuse with an error",
    "ask": "Ask the person for a name",
    "log": "Send log messages",
}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def note(line: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    schema = {"type": "object"}
    return types.ListToolsResult(
        tools=[types.Tool(name=n, description=d, input_schema=schema) for n, d in DESCRIPTIONS.items()]
    )


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult | dict[str, Any]:
    arguments = params.arguments or {}
    text = params.name
    if params.name == "count":
        for step in range(1, 6):
            await context.session.report_progress(step, 5, f"step {step}")
    elif params.name == "wait":
        try:
            note("waiting")
            await context.session.report_progress(1, 5, "waiting")
            await anyio.sleep_forever()
        finally:
            note("cancelled")
    elif params.name == "refuse":
        raise MCPError(-32011, "the quota is used up", {"retry": 2**53 + 1})
    elif params.name == "ask":
        if (answer := await asked(context)) is None:
            question = {"message": "What is your name?", "requestedSchema": FORM}
            requests = {"name": {"method": "elicitation/create", "params": question}}
            return {"resultType": "input_required", "inputRequests": requests, "requestState": "state é"}
        text = f"{answer['action']}: {answer['content']['name']}"
    elif params.name == "log":
        for level in ("info", "error"):
            await context.session.send_log_message(
                level, {"level": level}, "new", related_request_id=context.request_id
            )
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=arguments)


async def asked(context: Any) -> dict[str, Any] | None:
    """The person's answer; None where the client has to be told to ask (stateless, first round)."""
    if context.protocol_version < "2026":
        result = await context.session.elicit_form("What is your name?", FORM, context.request_id)
        return result.model_dump()
    sent = context.params or {}
    if "inputResponses" not in sent:
        return None
    if sent.get("requestState") != "state é":
        raise MCPError(types.INVALID_PARAMS, "requestState is not what was given")
    return sent["inputResponses"]["name"]


async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="new://note", name="note")])


async def list_templates(_context: Any, _params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="new://item/{id}", name="item")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read(_context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if not uri.startswith(("new://note", "new://item/")):
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=f"content of {uri}")])


async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
    who = types.PromptArgument(name="who", required=True)
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet", arguments=[who])])


async def get_prompt(_context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    text = types.TextContent(type="text", text=f"Greet {(params.arguments or {}).get('who')}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


async def complete(_context: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [params.argument.value + end for end in ("a", "b")]
    return types.CompleteResult(completion=types.Completion(values=values, total=2, has_more=False))


server: Server[Any] = Server(
    "sdk",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
)


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
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # log messages are
    if len(sys.argv) > 2:
        serve_http(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    else:
        anyio.run(serve_stdio)
