"""`list`, `search`, `describe`, `call`: what a model sees and does, on the same paths; and `eval`."""

import argparse
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from proxy.app import App
from proxy.caller import Caller
from proxy.catalog import Server
from proxy.cli.common import settings
from proxy.cli.evaluate import evaluate, explained
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_known, calling, looking, named_known, withheld_note
from proxy.cli.risks import risk_line, risk_mark
from proxy.cli.wording import in_words
from proxy.text import first_sentence

CLIENT = "narrow-waist-cli"
SENTENCE = 100

Action = Callable[[App, argparse.Namespace], Awaitable[int]]


def run(options: argparse.Namespace) -> int:
    """Run `options.command`; 1 where the tool, or every server that was asked for, failed or is not there."""
    config = settings(options)
    set_up_logging(logging.ERROR, config, verbose=options.verbose)
    actions: dict[str, Action] = {
        "list": _list, "search": _search, "describe": _describe, "call": _call, "eval": evaluate,
    }  # fmt: skip
    action = actions[options.command]
    profiles = options.profile or ()
    app = calling(config, profiles) if action is _call else looking(config, profiles)
    app.fleet.clients.once = True
    return anyio.run(_with_app, app, action, options)


async def _with_app(app: App, action: Action, options: argparse.Namespace) -> int:
    async with app.running():
        if action is _call or action is _describe:
            await named_known(app, [options.name] if action is _call else options.name)
        else:
            await all_known(app)
        # Who asks for a profile is told what it leaves, and of nothing else.
        if not options.profile and (note := withheld_note(app)):
            sys.stderr.write(f"narrow-waist: {note}\n")
        return await action(app, options)
    raise AssertionError("unreachable")


async def _list(app: App, options: argparse.Namespace) -> int:
    servers = app.catalog.servers
    unavailable = app.fleet.unavailable()
    if options.server is not None and options.server not in servers:
        sys.stderr.write(f"narrow-waist: no server {options.server!r}; there are: {', '.join(servers) or 'none'}\n")
        return 1
    asked = [server for key, server in servers.items() if options.server in (None, key)]
    if not asked:
        sys.stderr.write("narrow-waist: there is no server; narrow-waist check says what to do\n")
        return 1
    if not any(server.known for server in asked):
        for server in asked:
            sys.stderr.write(f"narrow-waist: {server.key}: {unavailable.get(server.key, 'its tools are not known')}\n")
        return 1
    for server in asked:
        _print_server(app, server, unavailable.get(server.key), whole=options.server is not None)
    return 0


def _print_server(app: App, server: Server, problem: str | None, *, whole: bool) -> None:
    state = f"  unavailable: {problem}" if problem else ""
    print(f"{server.key} ({len(server.tools)} tools){state}")
    for tool in server.tools if whole else ():
        eager = " [eager]" if tool.eager else ""
        print(f"  {tool.public_name}{eager}{risk_mark(app, tool)}  {first_sentence(tool.description, SENTENCE)}")


async def _search(app: App, options: argparse.Namespace) -> int:
    if options.explain:
        return await _explain(app, options)
    query: dict[str, Any] = {"query": " ".join(options.query), "limit": options.limit, "server": options.server}
    name = app.settings.tool_search.search_name
    return _print_result(await app.call(name, query, {}, Caller(client=CLIENT)))


async def _explain(app: App, options: argparse.Namespace) -> int:
    """The parts of each match's score, as the ranking saw them."""
    if app.semantics is not None:
        await app.semantics.learned()
    query, index = " ".join(options.query), await app.index()
    limit = options.limit or app.settings.tool_search.search_default_limit
    hits = index.search(query, limit, options.server)
    for number, (tool, _) in enumerate(hits.matches):
        exact = "named exactly; " if number < hits.exact else ""
        print(f"{tool.public_name}: {exact}{explained(index.explain(query, tool))}")
    if hits.unmatched:
        print(f"no tool has: {', '.join(hits.unmatched)}")
    print(f"{hits.matched} of {len(index.tools)} tools match")
    return 0


async def _describe(app: App, options: argparse.Namespace) -> int:
    name = app.settings.tool_search.describe_name
    result = await app.call(name, {"names": options.name}, {}, Caller(client=CLIENT))
    if code := _print_result(result):
        return code
    answer = json.loads(result["content"][0]["text"])
    for found in answer["tools"]:
        tool = app.catalog.public(found["name"])
        # Beside the answer, which is JSON and what a model reads.
        if tool is not None and (line := risk_line(app, tool, narrowed=bool(options.profile))):
            sys.stderr.write(f"narrow-waist: {line}\n")
    # For a model a name that is not there is no error, it is told near ones; a script looks at the exit code.
    return 1 if answer.get("not_found") else 0


async def _call(app: App, options: argparse.Namespace) -> int:
    call = {"name": options.name, "arguments": options.arguments}
    name = app.settings.tool_search.call_name
    result = await app.call(name, call, {}, Caller(client=CLIENT))
    blocks: list[Any] = result.get("content") or []
    said = [{**b, "text": in_words(b["text"])} if b.get("type") == "text" and "text" in b else b for b in blocks]
    return _print_result({**result, "content": said} if result.get("isError") else result)


def _print_result(result: dict[str, Any]) -> int:
    """Text blocks as they are, everything else as JSON."""
    for block in result.get("content") or ():
        if isinstance(block, dict) and block.get("type") == "text":  # pyright: ignore[reportUnknownMemberType]
            print(block.get("text", ""))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        else:
            print(json.dumps(block, ensure_ascii=False))
    if not result.get("content") and "structuredContent" in result:
        print(json.dumps(result["structuredContent"], ensure_ascii=False))
    return 1 if result.get("isError") else 0
