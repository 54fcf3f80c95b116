"""The command line: reads what was written, and runs the command, which imports all it needs."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import cast

from proxy.cli.options import COMMANDS, parser
from proxy.errors import ConfigError, NarrowWaistError
from proxy.memory import end_at_once

__all__ = ["main", "parser"]

_INSTEAD = {
    ("connect", "--token-file"): "; give it after the command",
    ("service", "--http"): "; give it as --address, after the command",
}
"""What to write for an option of serving that stands before a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (2: the configuration cannot be used)."""
    end_at_once()
    options = parser().parse_args(argv)
    options.profile = [*options.profile, *options.profile_too] or None
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
