"""The command line. `--help` and `--version` import nothing heavy: everything else is imported by its command."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import cast

from proxy import __version__
from proxy.cli import guard_options
from proxy.errors import ConfigError, NarrowWaistError
from proxy.memory import end_at_once

DESCRIPTION = """\
One MCP server in front of all your MCP servers. Without a command it serves over stdio, which is what an MCP client
starts; with --http it is a daemon that all your clients share."""

COMMANDS = {
    "list": ("proxy.cli.tools", "list the servers and their tools"),
    "search": ("proxy.cli.tools", "search the tools, as a model does"),
    "describe": ("proxy.cli.tools", "show one tool with its full schema"),
    "call": ("proxy.cli.tools", "call one tool"),
    "eval": ("proxy.cli.tools", "measure how well the search finds your own tools"),
    "check": ("proxy.cli.check", "connect every server and say what is wrong"),
    "login": ("proxy.cli.login", "log in to a server at an address"),
    "logout": ("proxy.cli.login", "forget the login of a server"),
    "import": ("proxy.cli.importing", "take over the servers that other programs are configured with"),
    "install": ("proxy.cli.installing", "register this proxy in a program"),
    "uninstall": ("proxy.cli.installing", "undo an install"),
    "doctor": ("proxy.cli.doctor", "what each host shows of this proxy, and what to change"),
    "tokens": ("proxy.cli.tokens", "what the tools cost a model: all of them directly, or through the proxy"),
    **guard_options.COMMANDS,
}


_INSTEAD = {
    ("connect", "--token-file"): "; give it after the command",
    ("service", "--http"): "; give it as --address, after the command",
}
"""What to write for an option of serving that stands before a command."""


def parser() -> argparse.ArgumentParser:
    """All options and commands."""
    root = argparse.ArgumentParser("narrow-waist", description=DESCRIPTION, parents=[_common("profile")])
    root.add_argument("--version", action="version", version=f"narrow-waist {__version__}")
    root.add_argument(
        "--http",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="serve Streamable HTTP at /mcp and SSE at /sse (default 127.0.0.1:8788)",
    )
    root.add_argument("--token-file", metavar="FILE", help="file with the bearer token that HTTP clients must send")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (_, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text, parents=[_common("profile_too")])
        if name == "list":
            sub.add_argument("server", nargs="?", help="only this server, with all its tools")
        elif name == "search":
            sub.add_argument("query", nargs="+", help="verb and product noun, a few words")
            sub.add_argument("--limit", type=int, help="how many matches")
            sub.add_argument("--server", help="only this server")
            sub.add_argument("--explain", action="store_true", help="print the parts of each score instead")
        elif name == "eval":
            _eval_options(sub)
        elif name == "describe":
            sub.add_argument("name", nargs="+", help="names as printed by list and search")
        elif name == "call":
            sub.add_argument("name", help="a name as printed by list and search")
            sub.add_argument("arguments", nargs="?", default="{}", help="a JSON object, for instance '{\"limit\": 5}'")
        elif name == "check":
            sub.add_argument("--json", action="store_true", help="print JSON instead of a table")
        elif name in ("login", "logout"):
            _login_options(name, sub)
        elif name in guard_options.COMMANDS:
            guard_options.add_options(name, sub)
        else:
            _host_options(name, sub)
    return root


def _common(profile: str) -> argparse.ArgumentParser:
    """What may stand before a command and after it. Profiles are gathered as `profile` before and as another attribute
    after: argparse would have the later ones replace the earlier, and each of them narrows.
    """
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="upstreams.yaml, or a client's mcpServers JSON")
    common.add_argument("--demo", action="store_true", help="use the built-in demo servers; needs no config")
    common.add_argument(
        "--profile", action="append", metavar="NAME", dest=profile, help="only what this profile leaves; repeatable "
        "(over stdio a convenience: whoever starts the process chooses it)",
    )  # fmt: skip
    common.add_argument("-v", "--verbose", action="store_true", help="log more, to stderr")
    return common


def _eval_options(sub: argparse.ArgumentParser) -> None:
    text = 'JSON lines of {"query": "...", "gold": ["server/tool"]}; else queries are made from the tools themselves'
    sub.add_argument("file", nargs="?", help=text)
    sub.add_argument("--server", help="only the tools of this server are looked for, among all")
    sub.add_argument("--sample", type=int, default=500, help="queries are made for at most so many tools (500)")
    sub.add_argument("--misses", type=int, default=10, help="how many misses are explained (10)")
    sub.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _login_options(name: str, sub: argparse.ArgumentParser) -> None:
    sub.add_argument("server", help="its name in the configuration")
    if name == "login":
        sub.add_argument("--scope", action="append", metavar="NAMES", help="ask for these too; repeatable")
        sub.add_argument("--no-browser", action="store_true", help="only print the address to open")
        sub.add_argument("--wait", type=float, default=300.0, metavar="SECONDS", help="how long you have (300)")


def _host_options(name: str, sub: argparse.ArgumentParser) -> None:
    """The options of the commands about hosts and what they show."""
    hosts = "claude-code, claude-desktop, codex, cursor, gemini, hermes, opencode, vscode, windsurf, zed"
    if name in ("doctor", "tokens"):
        if name == "doctor":
            sub.add_argument("host", nargs="?", help="only this host, in detail; such as claude-code, codex, cursor")
            sub.add_argument("--text", action="store_true", help="print the exact texts, and where the host cuts them")
            sub.add_argument("--name", default="narrow-waist", help="what the host calls this proxy")
        else:
            sub.add_argument("--client", metavar="NAME", help="as this client (clientInfo.name) would see it")
        sub.add_argument("--json", action="store_true", help="print JSON instead of tables")
        return
    if name == "import":
        sub.add_argument("host", nargs="*", help=f"only from these: {hosts}")
        sub.add_argument(
            "--from", dest="from_file", metavar="FILE", help="read this file of the host instead of its own"
        )
    else:
        sub.add_argument("host", help=f"one of {hosts}")
        sub.add_argument(
            "--project", action="store_true", help="the file of the project in this folder, not the user's"
        )
        sub.add_argument("--file", metavar="FILE", help="this file instead of the host's own")
        sub.add_argument("--name", default="narrow-waist", help="what the entry is called")
        if name == "install":
            sub.add_argument(
                "--move", action="store_true", help="move the host's own servers behind the proxy, into upstreams.yaml"
            )
    sub.add_argument("-y", "--yes", action="store_true", help="write without asking")
    sub.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (2: the configuration cannot be used)."""
    end_at_once()
    options = parser().parse_args(argv)
    for name, default in (("config", None), ("demo", False), ("verbose", False)):
        if not hasattr(options, name):
            setattr(options, name, default)
    options.profile = [*getattr(options, "profile", ()), *getattr(options, "profile_too", ())] or None
    module = COMMANDS[options.command][0] if options.command else "proxy.cli.serve"
    if misfit := _misfit(options):
        sys.stderr.write(f"narrow-waist: {misfit}\n")
        return 2
    try:
        code: int = importlib.import_module(module).run(options)
        sys.stdout.flush()
    except BaseException as raised:
        error = _alone(raised)
        if isinstance(error, NarrowWaistError):
            masked = getattr(sys.excepthook, "masked", str)  # logs.Crash, once the secrets are known
            sys.stderr.write(f"narrow-waist: {masked(str(error))}\n")
            return 2 if isinstance(error, ConfigError) else 1
        if isinstance(error, KeyboardInterrupt):
            return 130
        if isinstance(error, BrokenPipeError):  # `narrow-waist list | head`
            # What is still buffered would be written at exit, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        raise
    return code


def _misfit(options: argparse.Namespace) -> str:
    """Why the options cannot be meant together; "" where they can. Nothing that was said is passed over in silence."""
    if options.command and (options.http is not None or options.token_file is not None):
        given = "--http" if options.http is not None else "--token-file"
        instead = _INSTEAD.get((options.command, given), "")
        return f"{given} before a command means nothing: it is for serving, not for {options.command}{instead}"
    if options.token_file is not None and options.http is None:
        return "--token-file means nothing without --http: over stdio there is nobody who could send a token"
    if options.http in COMMANDS:
        return f"--http {options.http}: expected an address; the command is: narrow-waist {options.http}"
    writing = f"{options.command} uninstall" if getattr(options, "action", "") == "uninstall" else options.command
    whole = writing in ("import", "uninstall", "service uninstall", "login", "logout")
    if (whole and options.demo) or (options.profile and (whole or writing in ("lock", "audit"))):
        given = "--profile" if options.profile else "--demo"
        return f"{given} means nothing for {writing}: it is for what serves, and for install, which writes it down"
    if options.demo and getattr(options, "move", False):
        return "--demo and --move: choose one; the demo has servers of its own, and none could move behind it"
    if options.demo and options.config:
        return "--demo and --config: choose one; the demo has servers of its own"
    return ""


def _alone(error: BaseException) -> BaseException:
    """The one error inside the groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        inner = list(cast(BaseExceptionGroup[BaseException], error).exceptions)
        if len(inner) > 1:
            break
        error = inner[0]
    return cast(BaseException, error)
