"""Upstream that reports its environment: `env`, `cwd`, `argv`, `tty` as JSON text.

Seen in: langchain-mcp-adapters#438, nicobailon/pi-mcp-adapter#333, crush#2693, boozedog/pi-codemode#74,
openai/codex#10206,
CherryHQ/cherry-studio#18648 (env values logged in clear), jerichosequitin/metabase-mcp#33, github/gh-aw#50772.
Right behaviour: ${VAR}, ${VAR:-default} and ${env:VAR} are expanded in command, args, env, cwd, url and headers; a
missing variable without default disables this server only and the error names the field (not the value); ~ expands in
command and cwd; relative cwd is relative to the config file. Only a short allow-list is inherited (mcp 2.3.0: HOME,
LOGNAME, PATH, SHELL, TERM, USER) unless `inherit_env`/named variables ask for more; one server's secrets never
reach another's environment, the proxy's logs, status output, error texts or tool results.
"""

import json
import os
import sys

from _raw import Server, serve, text, tool


def call(name, args, params, peer):
    return text(
        json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[1:], "tty": sys.stdin.isatty()}[name])
    )


serve(Server([tool(n, f"Shows {n}") for n in ("env", "cwd", "argv", "tty")], call, name="env"))
