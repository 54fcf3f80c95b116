"""A client of `narrow-waist --demo`: searches, describes and calls through it, and tells what each step costs.

    python scripts/demo_client.py narrow-waist --demo

Costs are o200k tokens of the JSON that would stand in a model's context.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from proxy.demo import demo_settings
from proxy.tokens import child_argv, decode_answer, encode_request

LOG = Path(__file__).parent.parent / ".cache" / "demo.log"
WIDTH = 96


def tokens(*texts: str) -> list[int]:
    """Exact o200k tokens of each text."""
    done = subprocess.run(child_argv(), input=encode_request(texts), capture_output=True, check=True)
    return decode_answer(done.stdout, texts)


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shown_to_the_model(tool: Any) -> str:
    """What a host puts into the context for one tool."""
    return dump({"name": tool.name, "description": tool.description, "parameters": tool.input_schema})


def show(text: str, cost: int, indent: str = "") -> None:
    print(f"{indent}{text:<{WIDTH - len(indent)}}{cost:>10,}")


def excerpt(text: str, lines: int = 6) -> None:
    shown = text.splitlines()[:lines]
    for line in shown:
        print(f"    {line[: WIDTH - 8]}{' …' if len(line) > WIDTH - 8 else ''}")
    if len(text.splitlines()) > lines:
        print("    …")


async def all_tools(client: Client) -> list[Any]:
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


async def eagerly(log: Any) -> list[str]:
    """What a client is sent that registers each of the demo's servers by itself."""
    texts: list[str] = []
    for server in demo_settings().servers:
        parameters = StdioServerParameters(command=server.command or "", args=list(server.args))
        async with Client(stdio_client(parameters, errlog=log)) as client:
            texts += [shown_to_the_model(tool) for tool in await all_tools(client)]
    return texts


async def step(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[str, int]:
    """One call as a model makes it; prints and answers (its text, its cost both ways)."""
    result = await client.call_tool(tool, arguments)
    text = "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)
    cost = sum(tokens(dump(arguments), text))
    show(f"{tool} {dump(arguments)}", cost)
    excerpt(text)
    return text, cost


async def main() -> None:
    command = sys.argv[1:] or ["narrow-waist", "--demo"]
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        every = await eagerly(log)
        eager = sum(tokens(*every))
        print(f"{'':<{WIDTH}}{'tokens':>10}")
        show(f"Registered one by one: all {len(every):,} tools of {len(demo_settings().servers)} servers", eager)
        parameters = StdioServerParameters(command=command[0], args=command[1:])
        async with Client(stdio_client(parameters, errlog=log)) as client:
            tools = await all_tools(client)
            costs = tokens(*map(shown_to_the_model, tools))
            show(f"Behind {' '.join(command)}: {len(tools)} tools", sum(costs))
            for tool, cost in zip(tools, costs, strict=True):
                show(tool.name, cost, "    ")
            print("\nA model that looks for a tool, reads its schema and calls it:\n")
            found, search_cost = await step(client, "tool_search", {"query": "create a dns record", "limit": 3})
            name = json.loads(found)["matches"][0]["name"]
            _, describe_cost = await step(client, "tool_describe", {"name": name})
            record = {"zone_id": "023e105f", "type": "A", "name": "www.example.com", "content": "192.0.2.1", "ttl": 300}
            _, call_cost = await step(client, "tool_call", {"name": name, "arguments": record})
            _, notes_cost = await step(client, "tool_call", {"name": "notes__list_notes", "arguments": {"tag": "work"}})
        total = sum(costs) + search_cost + describe_cost + call_cost + notes_cost
        print()
        show("Everything above, once", total)
        print(
            f"That is {100 * total / eager:.1f} % of the schemas alone, sent once. Logs: {LOG.relative_to(Path.cwd())}"
        )


if __name__ == "__main__":
    anyio.run(main)
