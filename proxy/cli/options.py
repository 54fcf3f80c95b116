"""Everything that may be written on the command line. Imports nothing heavy, because `--help` and `--version` wait."""

import argparse

from proxy import __version__

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
    "lock": ("proxy.cli.lock", "approve the tools as they are now, or show what has changed since"),
    "audit": (
        "proxy.cli.audit",
        "read the audit: time, caller, server/tool, risk, outcome, duration, length of the result",
    ),
    "token": ("proxy.cli.token", "make, list and revoke the tokens of the daemon's clients"),
    "service": ("proxy.cli.service", "run the daemon from login on (systemd, launchd)"),
    "connect": ("proxy.cli.connect", "be a stdio server that passes everything to the running daemon"),
}
"""Command -> the module that has its `run`, and what it is for."""
_DAEMON = "http://127.0.0.1:8788/mcp"
_HOSTS = "claude-code, claude-desktop, codex, cursor, gemini, hermes, opencode, vscode, windsurf, zed"


def parser() -> argparse.ArgumentParser:
    """All options and commands."""
    root = argparse.ArgumentParser("narrow-waist", description=DESCRIPTION, parents=[_common("profile")])
    root.set_defaults(config=None, demo=False, verbose=False, profile=[], profile_too=[])
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
        _add_own(name, sub)
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


def _add_own(command: str, sub: argparse.ArgumentParser) -> None:
    """The options of one command."""
    add = sub.add_argument
    match command:
        case "list":
            add("server", nargs="?", help="only this server, with all its tools")
        case "search":
            add("query", nargs="+", help="verb and product noun, a few words")
            add("--limit", type=int, help="how many matches")
            add("--server", help="only this server")
            add("--explain", action="store_true", help="print the parts of each score instead")
        case "describe":
            add("name", nargs="+", help="names as printed by list and search")
        case "call":
            add("name", help="a name as printed by list and search")
            add("arguments", nargs="?", default="{}", help="a JSON object, for instance '{\"limit\": 5}'")
        case "eval":
            text = 'JSON lines of {"query": "...", "gold": ["server/tool"]}; else queries are made from the tools'
            add("file", nargs="?", help=f"{text} themselves")
            add("--server", help="only the tools of this server are looked for, among all")
            add("--sample", type=int, default=500, help="queries are made for at most so many tools (500)")
            add("--misses", type=int, default=10, help="how many misses are explained (10)")
            add("--json", action="store_true", help="print JSON instead of a table")
        case "check":
            add("--json", action="store_true", help="print JSON instead of a table")
        case "login":
            add("server", help="its name in the configuration")
            add("--scope", action="append", metavar="NAMES", help="ask for these too; repeatable")
            add("--no-browser", action="store_true", help="only print the address to open")
            add("--wait", type=float, default=300.0, metavar="SECONDS", help="how long you have (300)")
        case "logout":
            add("server", help="its name in the configuration")
        case "import":
            add("host", nargs="*", help=f"only from these: {_HOSTS}")
            add("--from", dest="from_file", metavar="FILE", help="read this file of the host instead of its own")
            _add_writing(sub)
        case "install" | "uninstall":
            add("host", help=f"one of {_HOSTS}")
            add("--project", action="store_true", help="the file of the project in this folder, not the user's")
            add("--file", metavar="FILE", help="this file instead of the host's own")
            add("--name", default="narrow-waist", help="what the entry is called")
            if command == "install":
                text = "move the host's own servers behind the proxy, into upstreams.yaml"
                add("--move", action="store_true", help=text)
            _add_writing(sub)
        case "doctor":
            add("host", nargs="?", help="only this host, in detail; such as claude-code, codex, cursor")
            add("--text", action="store_true", help="print the exact texts, and where the host cuts them")
            add("--name", default="narrow-waist", help="what the host calls this proxy")
            add("--json", action="store_true", help="print JSON instead of tables")
        case "tokens":
            add("--client", metavar="NAME", help="as this client (clientInfo.name) would see it")
            add("--json", action="store_true", help="print JSON instead of tables")
        case "lock":
            add("tool", nargs="*", help="only these, as server or server/tool; default all")
            add("--diff", action="store_true", help="show what is not as approved, and write nothing")
            add("--approve", action="store_true", help="approve what has changed")
            add("--file", metavar="FILE", help="the lock file, where the config names none")
        case "audit":
            add("--last", type=int, default=20, metavar="N", help="the last N calls (default 20; 0: all)")
            add("--server", help="only of this server")
            add("--tool", help="only of this tool, by its own name")
            add("--caller", help="only of this token")
            add("--failed", action="store_true", help="only what was refused or failed")
            add("--json", action="store_true", help="print the lines as they are kept")
        case "token":
            add("action", choices=("create", "list", "revoke"), help="create prints the token, this once")
            add("name", nargs="?", help="who it is for; not with list")
            text = "a profile that it opens; repeatable"
            add("--for", dest="opens", action="append", metavar="PROFILE", help=text)
        case "service":
            add("action", choices=("install", "uninstall", "print"), help="print shows what install would write")
            add("--address", metavar="HOST:PORT", default="127.0.0.1:8788", help="where the daemon listens")
            add("--kind", choices=("systemd", "launchd"), help="default: this machine's")
        case "connect":
            add("url", nargs="?", default=_DAEMON, help=f"the daemon (default {_DAEMON})")
            text = "start the daemon where none runs; it stays, and how to stop it is said on stderr"
            add("--start", action="store_true", help=text)
            text = "file with the token to send (default: $NARROW_WAIST_TOKEN, if set)"
            add("--token-file", dest="connect_token", metavar="FILE", help=text)
        case _:
            raise AssertionError(f"{command} has no options here")


def _add_writing(sub: argparse.ArgumentParser) -> None:
    """The options of what writes to a person's files."""
    sub.add_argument("-y", "--yes", action="store_true", help="write without asking")
    sub.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")
