"""Upstream that notes each of its processes in a ledger (argv[1]) and leaves a grandchild behind when it dies.

`die` ends the process with code 3; `others_alive` lists the earlier processes that still run. Seen in:
ProxymanApp/Proxyman#2727, ihor-sokoliuk/mcp-searxng#60 (1,073 orphans). Right behaviour: when a generation starts,
nothing of an earlier one runs.
"""

import json
import os
import subprocess
import sys

from _raw import Server, serve, text, tool

LEDGER = sys.argv[1]


def running(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return "\nState:\tZ" not in file.read()
    except OSError:
        return False


def others_alive():
    try:
        with open(LEDGER, encoding="utf-8") as file:
            return [pid for line in file for pid in json.loads(line)["pids"] if running(pid) and pid not in OURS]
    except FileNotFoundError:
        return []


OURS = []
before = others_alive()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], stdin=subprocess.DEVNULL)
OURS = [os.getpid(), child.pid]
with open(LEDGER, "a", encoding="utf-8") as file:
    file.write(json.dumps({"pids": OURS, "alive_before": before}) + "\n")


def call(name, args, params, peer):
    if name == "die":
        os._exit(3)
    return text(json.dumps(others_alive()))


serve(Server([tool("die", "Dies."), tool("others_alive", "Earlier processes.")], call, name="generations"))
