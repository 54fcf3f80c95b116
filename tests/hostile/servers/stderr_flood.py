"""Upstream that writes 1 MiB to stderr at start and on every call (with and without newlines).

Seen in: mark3labs/mcp-go#956, TBXark/mcp-proxy#80, librefang/librefang#3805: an undrained 64 KiB stderr
pipe blocks the child in write(2); from outside it is an unexplained time-out.
Right behaviour: start-up and `chatty` finish in well under 2 s; the proxy drains or drops stderr without
unbounded memory, tags kept lines with the server's name, never copies secrets of one server into another's
log, and never writes upstream stderr to its own stdout.
"""

import sys

from _raw import Server, serve, text, tool


def flood():
    sys.stderr.buffer.write(
        b"E" * 262_144 + b"\n" + (b"warning: deprecated thing, token=sk-FAKE-SECRET-123\n" * 15_000)
    )
    sys.stderr.buffer.flush()


flood()


def call(name, args, params, peer):
    flood()
    return text("done")


serve(Server([tool("chatty", "Floods stderr, then answers.")], call, name="stderrflood"))
