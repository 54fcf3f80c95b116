"""Legacy upstream that EXITS when the first message is not `initialize` (older rmcp servers).

Seen in: modelcontextprotocol/go-sdk#1177, 0xMassi/webclaw#107. A 2026-07-28 client that probes with
`server/discover` (mcp 2.3.0 Client(mode="auto"), the default) kills it, so the fallback has no process left.
Right behaviour: on a connection lost during the probe, respawn and connect with the plain initialize handshake
(mode="legacy"), and remember that for this server; `legacy_tool` then answers. One extra process at most.
"""

import json
import sys

from _raw import Server, serve, text, tool

first = sys.stdin.buffer.readline()
if json.loads(first or b"{}").get("method") != "initialize":
    sys.stderr.write("Error: ExpectedInitializeRequest\n")
    sys.exit(1)
from _raw import Peer, stdout_writer  # noqa: E402

srv, peer = (
    Server([tool("legacy_tool", "Old server.")], lambda n, a, p, q: text("legacy ok"), name="rmcp-old"),
    Peer(stdout_writer()),
)
srv.answer(json.loads(first), peer)
serve(srv, peer=peer)
