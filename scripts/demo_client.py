"""A client of `narrow-waist --demo`: searches, describes and calls through it, and tells what each step costs.

    python scripts/demo_client.py narrow-waist --demo

Costs are o200k tokens of the JSON that would stand in a model's context.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from proxy.demo import demo_settings
from proxy.tokens import child_argv, decode_answer, encode_request

LOG = Path(__file__).parent.parent / ".cache" / "demo.log"
WIDTH = 90
EXCERPT = 5
"""Lines of an answer that are shown."""


@dataclass
class Row:
    """One line of the report, and what it puts into the model's context."""

    label: str
    texts: list[str]
    shown: str = ""


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def definition(tool: Any) -> str:
    """What a host puts into the context for one tool."""
    return dump({"name": tool.name, "description": tool.description, "parameters": tool.input_schema})


async def all_tools(client: Client) -> list[Any]:
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


async def one_by_one(log: Any) -> Row:
    """What a client is sent that registers each of the demo's servers by itself."""
    servers = demo_settings().servers
    texts: list[str] = []
    for server in servers:
        parameters = StdioServerParameters(command=server.command or "", args=list(server.args))
        async with Client(stdio_client(parameters, errlog=log)) as client:
            texts += [definition(tool) for tool in await all_tools(client)]
    return Row(f"Registered one by one: all {len(texts):,} tools of {len(servers)} servers", texts)


async def use(client: Client, tool: str, arguments: dict[str, Any]) -> Row:
    """One call, as a model makes it."""
    result = await client.call_tool(tool, arguments)
    text = "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)
    return Row(f"{tool} {dump(arguments)}", [dump(arguments), text], text)


async def behind_the_proxy(command: list[str], log: Any) -> tuple[list[Row], list[Row]]:
    """The tools a client sees, and the calls of a model that looks for a tool, reads its schema and calls it."""
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(stdio_client(parameters, errlog=log)) as client:
        tools = [Row(f"    {tool.name}", [definition(tool)]) for tool in await all_tools(client)]
        found = await use(client, "tool_search", {"query": "create a dns record", "limit": 3})
        name = json.loads(found.shown)["matches"][0]["name"]
        described = await use(client, "tool_describe", {"name": name})
        record = {"zone_id": "023e105f", "type": "A", "name": "www", "content": "192.0.2.1", "ttl": 300}
        called = await use(client, "tool_call", {"name": name, "arguments": record})
        listed = await use(client, "tool_call", {"name": "notes__list_notes", "arguments": {"tag": "work"}})
    return tools, [found, described, called, listed]


def costs(rows: list[Row]) -> list[int]:
    """Exact tokens of each row. All are counted in one child process, which loads the vocabulary once."""
    texts = [text for row in rows for text in row.texts]
    done = subprocess.run(child_argv(), input=encode_request(texts), capture_output=True, check=True)
    counts = iter(decode_answer(done.stdout, texts))
    return [sum(next(counts) for _ in row.texts) for row in rows]


def clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def show(label: str, cost: int) -> None:
    print(f"{clip(label, WIDTH):<{WIDTH}}{cost:>10,}")


def excerpt(text: str) -> None:
    lines = text.splitlines()
    for line in lines[:EXCERPT] + ["…"] * (len(lines) > EXCERPT):
        print(f"    {clip(line, WIDTH - 4)}")


async def main() -> None:
    command = sys.argv[1:] or ["narrow-waist", "--demo"]
    LOG.parent.mkdir(exist_ok=True)
    print("Starting the demo's servers, once by themselves and once behind the proxy …", flush=True)
    with LOG.open("w", encoding="utf-8") as log:
        eager = await one_by_one(log)
        tools, calls = await behind_the_proxy(command, log)
    eager_cost, *others = costs([eager, *tools, *calls])
    tool_costs, call_costs = others[: len(tools)], others[len(tools) :]

    print(f"\n{'':<{WIDTH}}{'tokens':>10}")
    show(eager.label, eager_cost)
    show(f"Behind {' '.join([Path(command[0]).name, *command[1:]])}: {len(tools)} tools", sum(tool_costs))
    for row, cost in zip(tools, tool_costs, strict=True):
        show(row.label, cost)
    print("\nA model that looks for a tool, reads its schema and calls it:\n")
    for row, cost in zip(calls, call_costs, strict=True):
        show(row.label, cost)
        excerpt(row.shown)
    print()
    show("Tools and calls together", sum(others))
    print(f"That is {100 * sum(others) / eager_cost:.1f} % of what the schemas alone cost. Logs: .cache/{LOG.name}")


if __name__ == "__main__":
    anyio.run(main)
