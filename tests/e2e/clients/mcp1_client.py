"""A client of the 1.x SDK, run in its own environment: lists, searches, calls, and prints what it saw as JSON.

python mcp1_client.py stdio COMMAND...  |  http URL  |  sse URL       (TOKEN: the bearer token)
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def main() -> None:
    transport, *words = sys.argv[1:]
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            streams = stdio_client(StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ)))
        elif transport == "http":
            streams = streamablehttp_client(words[0], headers=headers)
        else:
            streams = sse_client(words[0], headers=headers)
        read, write, *_ = await stack.enter_async_context(streams)
        session = await stack.enter_async_context(ClientSession(read, write, timedelta(seconds=30)))
        await session.initialize()
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        tools = await session.list_tools()
        search = await session.call_tool("tool_search", {"query": "pid"})
        call = await session.call_tool("tool_call", {"name": "raw__pid", "arguments": {}})
        arguments = {"name": "raw__count", "arguments": {}}
        await session.call_tool("tool_call", arguments, progress_callback=on_progress)
        seen = {
            "tools": [tool.name for tool in tools.tools],
            "search": search.content[0].text,
            "call": call.content[0].text,
            "progress": steps,
        }
        print(json.dumps(seen))


asyncio.run(main())
