"""`service`: the daemon as a service of the user, from login on. Its unit holds no secret: clients' tokens are hashes
in a file of their own, and upstreams' secrets come from where the configuration says.

A service has none of what a shell sets. So the unit has the PATH of whoever installs it, where npx and uvx are found,
and the variables of the configuration are read from a file that only the user fills.
"""

import argparse
import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy.cli.common import serving_words
from proxy.config import find, user_file
from proxy.errors import ConfigError

LABEL = "narrow-waist"
_PLAIN = re.compile(r"[\w./:=@,+-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NO_PROGRAM = re.compile(r"[\"\\]")
"""What systemd refuses in the path of a program, however it is written."""
_WITH_VARIABLES = """\
if [ -r "$1" ]; then
  _nw_cr=$(printf '\\r')
  while IFS= read -r _nw_line || [ -n "$_nw_line" ]; do
    _nw_line=${_nw_line%"$_nw_cr"}
    _nw_name=${_nw_line%%=*} _nw_value=${_nw_line#*=}
    case $_nw_line in *=*) ;; *) continue ;; esac
    case $_nw_name in "" | [0-9]* | *[!A-Za-z0-9_]*) continue ;; esac
    case $_nw_value in \\"*\\" | \\'*\\') _nw_value=${_nw_value#?} _nw_value=${_nw_value%?} ;; esac
    export "$_nw_name=$_nw_value"
  done < "$1"
fi
shift
exec "$@"
"""
"""Stands for systemd's EnvironmentFile, which launchd lacks: lines NAME=VALUE, a value as it stands or in quotes.

(A shell that took the file for a script would run what values hold.) The file is the first word, the command the rest.
"""


def run(options: argparse.Namespace) -> int:
    """Write, print or remove the unit; raises ConfigError."""
    kind = options.kind or ("launchd" if sys.platform == "darwin" else "systemd")
    path = unit_path(kind, Path.home())
    if options.action == "uninstall":
        if not path.exists():
            raise ConfigError(f"{path}: there is no such unit")
        _tell(kind, path, on=False)
        path.unlink()
        print(f"removed {path}")
        return 0
    usual = user_file(os.environ, Path.home())
    config = usual if options.demo else find(options.config, os.environ, Path.cwd()).absolute()
    words = [*_program(), "--http", options.address, *serving_words(options, config)]
    variables = usual.with_name("environment")
    text = unit(kind, words, Path.home(), search=os.environ.get("PATH", ""), variables=variables)
    if options.action == "print":
        print(text, end="")
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")
    print(f"variables that the configuration names, if any, the daemon gets by: lines NAME=VALUE in {variables}")
    _tell(kind, path, on=True)
    return 0


def unit_path(kind: str, home: Path) -> Path:
    """Where the user's units are."""
    if kind == "launchd":
        return home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else home / ".config") / "systemd" / "user" / f"{LABEL}.service"


def unit(kind: str, command: Sequence[str], home: Path, *, search: str, variables: Path) -> str:
    """The text of the unit that runs `command` with the PATH `search`.

    `variables` is a file that need not be there, of lines NAME=VALUE.

    Raises:
        ConfigError: there is something that no such unit can have.
    """
    for word in (*command, search, str(variables), str(home)):
        if _CONTROL.search(word) or (kind == "systemd" and word == command[0] and _NO_PROGRAM.search(word)):
            raise ConfigError(f"{word!r} cannot stand in a {kind} unit; move it to a path of ordinary characters")
    if kind == "launchd":
        reading = ["/bin/sh", "-c", _WITH_VARIABLES, LABEL, str(variables), *command]
        plist: dict[str, Any] = {
            "Label": LABEL,
            "ProgramArguments": reading,
            "EnvironmentVariables": {"PATH": search},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardErrorPath": str(home / "Library" / "Logs" / f"{LABEL}.log"),
            "Umask": 0o077,
        }
        return plistlib.dumps(plist, sort_keys=False).decode()
    words = " ".join([_quoted(command[0]), *(_quoted(word.replace("$", "$$")) for word in command[1:])])
    return f"""[Unit]
Description=Narrow Waist: one MCP server in front of all others
After=network.target

[Service]
ExecStart={words}
Environment="PATH={_escaped(search)}"
EnvironmentFile=-{str(variables).replace("%", "%%")}
Restart=on-failure
RestartSec=5
# 2 is a configuration that cannot be used: starting again would not help.
RestartPreventExitStatus=2
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    """A word for ExecStart, where systemd expands % (and $, but for the program's), and splits at spaces."""
    return word if _PLAIN.fullmatch(word) else f'"{_escaped(word)}"'


def _escaped(text: str) -> str:
    """Text inside systemd's double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _program() -> list[str]:
    """How this very program is started, wherever it is installed."""
    found = shutil.which(sys.argv[0]) if Path(sys.argv[0]).name.startswith("narrow-waist") else None
    return [str(Path(found).absolute())] if found else [sys.executable, "-P", "-m", "proxy"]


def _tell(kind: str, path: Path, *, on: bool) -> None:
    """Have the system take the unit up, or let it go; where that fails the person is told how."""
    if kind == "launchd":
        words = ["launchctl", "load" if on else "unload", "-w", str(path)]
    else:
        words = ["systemctl", "--user", "enable" if on else "disable", "--now", path.name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        failed = done.stderr.strip() or done.stdout.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failed = str(error)
    state = "running" if on else "stopped"
    print(f"it is {state}" if not failed else f"not {state} ({failed.splitlines()[0]}); run: {' '.join(words)}")
