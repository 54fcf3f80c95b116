"""The client of the 1.x SDK; see steps.py."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl
from steps import ELICITED, Json, raw, run


class Mcp1:
    errors = McpError

    def __init__(self) -> None:
        self.session: ClientSession
        self.logs: list[Json] = []
        self.asked: list[Json] = []

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(raw(params))
        return types.ElicitResult(action="accept", content=dict(ELICITED))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(raw(params))

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name: str, arguments: Json, level: Any = None) -> Json:
        steps: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            steps.append(done)

        self.logs, self.asked = [], []
        if level is not None:
            await self.session.set_logging_level(level)
        result = await self.session.call_tool(name, arguments, progress_callback=progress)
        return {"result": raw(result), "progress": steps, "logs": self.logs, "asked": self.asked}

    async def cancel(self, name: str, arguments: Json) -> bool:
        begun = asyncio.Event()

        async def progress(*_: Any) -> None:
            begun.set()

        ident = self.session._request_id  # this SDK has no cancel of its own: its user sends the notification
        task = asyncio.create_task(self.session.call_tool(name, arguments, progress_callback=progress))
        await begun.wait()
        params = types.CancelledNotificationParams(requestId=ident, reason="changed my mind")
        await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        task.cancel()
        return True

    async def resources(self) -> list[str]:
        return [str(resource.uri) for resource in (await self.session.list_resources()).resources]

    async def templates(self) -> list[str]:
        return [t.uriTemplate for t in (await self.session.list_resource_templates()).resourceTemplates]

    async def read(self, uri: str) -> list[Json]:
        return [raw(content) for content in (await self.session.read_resource(AnyUrl(uri))).contents]

    async def prompts(self) -> list[str]:
        return [prompt.name for prompt in (await self.session.list_prompts()).prompts]

    async def prompt(self, name: str, arguments: Json) -> list[Json]:
        return [raw(message) for message in (await self.session.get_prompt(name, arguments)).messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.session.complete(ref, {"name": argument, "value": value})).completion.values


async def main() -> None:
    transport, *words = sys.argv[1:]
    headers = {"Authorization": f"Bearer {os.environ.get('TOKEN', '')}"}
    client = Mcp1()
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            streams = stdio_client(StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ)))
        elif transport == "http":
            streams = streamablehttp_client(words[0], headers=headers)
        else:
            streams = sse_client(words[0], headers=headers)
        read, write, *_ = await stack.enter_async_context(streams)
        session = ClientSession(read, write, elicitation_callback=client.elicit, logging_callback=client.log)
        client.session = await stack.enter_async_context(session)
        await client.session.initialize()
        await run(client)


asyncio.run(main())
