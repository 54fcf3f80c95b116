"""The options of the commands about what is guarded. Imports nothing, because `--help` does."""

import argparse

COMMANDS = {
    "lock": ("proxy.cli.lock", "approve the tools as they are now, or show what has changed since"),
    "audit": (
        "proxy.cli.audit",
        "read the audit: time, caller, server/tool, risk, outcome, duration, length of the result",
    ),
    "token": ("proxy.cli.token", "make, list and revoke the tokens of the daemon's clients"),
    "service": ("proxy.cli.service", "run the daemon from login on (systemd, launchd)"),
    "connect": ("proxy.cli.connect", "be a stdio server that passes everything to the running daemon"),
}
DAEMON = "http://127.0.0.1:8788/mcp"


def add_options(name: str, sub: argparse.ArgumentParser) -> None:
    """Add what the command `name` takes."""
    {"lock": _lock, "audit": _audit, "token": _token, "service": _service, "connect": _connect}[name](sub)


def _lock(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("tool", nargs="*", help="only these, as server or server/tool; default all")
    sub.add_argument("--diff", action="store_true", help="show what is not as approved, and write nothing")
    sub.add_argument("--approve", action="store_true", help="approve what has changed")
    sub.add_argument("--file", metavar="FILE", help="the lock file, where the config names none")


def _audit(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--last", type=int, default=20, metavar="N", help="the last N calls (default 20; 0: all)")
    sub.add_argument("--server", help="only of this server")
    sub.add_argument("--tool", help="only of this tool, by its own name")
    sub.add_argument("--caller", help="only of this token")
    sub.add_argument("--failed", action="store_true", help="only what was refused or failed")
    sub.add_argument("--json", action="store_true", help="print the lines as they are kept")


def _token(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("action", choices=("create", "list", "revoke"), help="create prints the token, this once")
    sub.add_argument("name", nargs="?", help="who it is for; not with list")
    sub.add_argument(
        "--for", dest="opens", action="append", metavar="PROFILE", help="a profile that it opens; repeatable"
    )


def _service(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("action", choices=("install", "uninstall", "print"), help="print shows what install would write")
    sub.add_argument("--address", metavar="HOST:PORT", default="127.0.0.1:8788", help="where the daemon listens")
    sub.add_argument("--kind", choices=("systemd", "launchd"), help="default: this machine's")


def _connect(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("url", nargs="?", default=DAEMON, help=f"the daemon (default {DAEMON})")
    sub.add_argument(
        "--start",
        action="store_true",
        help="start the daemon where none runs; it stays, and how to stop it is said on stderr",
    )
    text = "file with the token to send (default: $NARROW_WAIST_TOKEN, if set)"
    sub.add_argument("--token-file", dest="connect_token", metavar="FILE", help=text)
