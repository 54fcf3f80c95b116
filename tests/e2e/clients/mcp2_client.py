"""The client of the 2.x SDK; ERA is legacy or modern. See steps.py."""

import os
import sys
import warnings
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPDeprecationWarning, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from steps import ELICITED, LEVEL_META, Json, raw, run

warnings.simplefilter("ignore", MCPDeprecationWarning)


class Mcp2:
    errors = MCPError

    def __init__(self, modern: bool) -> None:
        self.client: Client
        self.modern = modern
        self.logs: list[Json] = []
        self.asked: list[Json] = []

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(raw(params))
        return types.ElicitResult(action="accept", content=dict(ELICITED))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(raw(params))

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, arguments: Json, level: Any = None) -> Json:
        steps: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            steps.append(done)

        self.logs, self.asked = [], []
        meta: Any = {LEVEL_META: level} if level is not None and self.modern else None
        if level is not None and not self.modern:
            await self.client.set_logging_level(level)
        result = await self.client.call_tool(name, arguments, progress_callback=progress, meta=meta)
        await anyio.wait_all_tasks_blocked()  # its callbacks may trail the result
        return {"result": raw(result), "progress": steps, "logs": self.logs, "asked": self.asked}

    async def cancel(self, name: str, arguments: Json) -> bool:
        async with anyio.create_task_group() as tasks:

            async def progress(*_: Any) -> None:
                tasks.cancel_scope.cancel()

            await self.client.call_tool(name, arguments, progress_callback=progress)
            return False
        return True

    async def resources(self) -> list[str]:
        return [str(resource.uri) for resource in (await self.client.list_resources()).resources]

    async def templates(self) -> list[str]:
        return [t.uri_template for t in (await self.client.list_resource_templates()).resource_templates]

    async def read(self, uri: str) -> list[Json]:
        return [raw(content) for content in (await self.client.read_resource(uri)).contents]

    async def prompts(self) -> list[str]:
        return [prompt.name for prompt in (await self.client.list_prompts()).prompts]

    async def prompt(self, name: str, arguments: Json) -> list[Json]:
        return [raw(message) for message in (await self.client.get_prompt(name, arguments)).messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete(ref, {"name": argument, "value": value})).completion.values


async def main() -> None:
    era, transport, *words = sys.argv[1:]
    headers = {"Authorization": f"Bearer {os.environ.get('TOKEN', '')}"}
    async with AsyncExitStack() as stack:
        target: Any
        if transport == "stdio":
            target = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
        elif transport == "http":
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=30))
            target = streamable_http_client(words[0], http_client=http)
        else:
            target = sse_client(words[0], headers=headers)
        actions = Mcp2(era == "modern")
        mode = "auto" if actions.modern else "legacy"
        client = Client(target, mode=mode, elicitation_callback=actions.elicit, logging_callback=actions.log)
        actions.client = await stack.enter_async_context(client)
        assert (client.protocol_version >= "2026") == actions.modern
        await run(actions)


anyio.run(main)
