"""The client of fastmcp; see steps.py."""

import os
import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from mcp import MCPDeprecationWarning, MCPError
from steps import ELICITED, LEVEL_META, Json, raw, run

warnings.simplefilter("ignore", MCPDeprecationWarning)


class Fastmcp:
    errors = MCPError

    def __init__(self) -> None:
        self.client: Client[Any]
        self.logs: list[Json] = []
        self.asked: list[Json] = []

    async def elicit(self, _message: str, _type: Any, params: Any, _context: Any) -> ElicitResult[Any]:
        self.asked.append(raw(params))
        return ElicitResult(action="accept", content=dict(ELICITED))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(raw(params))

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools_mcp()).tools]

    async def call(self, name: str, arguments: Json, level: Any = None) -> Json:
        steps: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            steps.append(done)

        self.logs, self.asked = [], []
        modern = str(self.client.protocol_version) >= "2026"
        if level is not None and not modern:
            await self.client.set_logging_level(level)
        meta = {LEVEL_META: level} if level is not None and modern else None
        result = await self.client.call_tool_mcp(name, arguments, progress_handler=progress, meta=meta)
        await anyio.wait_all_tasks_blocked()  # its callbacks may trail the result
        return {"result": raw(result), "progress": steps, "logs": self.logs, "asked": self.asked}

    async def cancel(self, name: str, arguments: Json) -> bool:
        async with anyio.create_task_group() as tasks:

            async def progress(*_: Any) -> None:
                tasks.cancel_scope.cancel()

            await self.client.call_tool_mcp(name, arguments, progress_handler=progress)
            return False
        return True

    async def resources(self) -> list[str]:
        return [str(resource.uri) for resource in (await self.client.list_resources_mcp()).resources]

    async def templates(self) -> list[str]:
        return [t.uri_template for t in (await self.client.list_resource_templates_mcp()).resource_templates]

    async def read(self, uri: str) -> list[Json]:
        return [raw(content) for content in (await self.client.read_resource_mcp(uri)).contents]

    async def prompts(self) -> list[str]:
        return [prompt.name for prompt in (await self.client.list_prompts_mcp()).prompts]

    async def prompt(self, name: str, arguments: Json) -> list[Json]:
        return [raw(message) for message in (await self.client.get_prompt_mcp(name, arguments)).messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete_mcp(ref, {"name": argument, "value": value})).completion.values


async def main() -> None:
    transport, *words = sys.argv[1:]
    headers = {"Authorization": f"Bearer {os.environ.get('TOKEN', '')}"}
    target: Any
    if transport == "stdio":
        target = StdioTransport(words[0], words[1:], env=dict(os.environ), keep_alive=False)
    else:
        target = (StreamableHttpTransport if transport == "http" else SSETransport)(words[0], headers=headers)
    actions = Fastmcp()
    client = Client(target, elicitation_handler=actions.elicit, log_handler=actions.log)
    async with client as actions.client:
        await run(actions)


anyio.run(main)
