"""Upstream that dies (exit code 7) in the middle of every third call, after its side effect, before replying.

argv[1]: path of a ledger file; each executed call appends a line. Seen in: PrefectHQ/fastmcp#499,
modelcontextprotocol/python-sdk#1577, xxynet/KiraAI#195, NousResearch/hermes-agent#84772.
Right behaviour: the third call fails quickly (<1 s) with isError and a text that names the server and says the
process exited (code 7); it is NOT retried on its own (ledger has exactly one line per call: side effects must
not double); the next call reconnects and works; other calls in flight on other upstreams are untouched.
"""

import os
import sys

from _raw import Server, serve, text, tool

LEDGER = sys.argv[1] if len(sys.argv) > 1 else None
n = 0


def call(name, args, params, peer):
    global n
    n += 1
    if LEDGER:
        with open(LEDGER, "a") as f:
            f.write(f"{os.getpid()} {n}\n")
    if n == 3:
        os._exit(7)
    return text(f"call {n} in pid {os.getpid()}")


serve(Server([tool("transfer", "Has a side effect.")], call, name="mortal"))
