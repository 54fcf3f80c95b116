"""Upstream that pollutes stdout: banners before the handshake, log lines between messages.

Seen in: yokingma/time-mcp#10, microsoft/azure-devops-mcp#147, sbroenne/mcp-server-excel#636, many more.
Right behaviour through the proxy: the server still connects and `noisy` still answers "ok 1";
junk lines are skipped (logged once per server at WARNING, with the server's name, the text cut to
about 200 characters, never echoed to the proxy's own stdout); a JSON line that is not JSON-RPC
(`{"level":"info"}`, `42`, `[]`) is junk as well. No other upstream is affected.
"""

from _raw import Peer, Server, serve, stdout_writer, text, tool

JUNK = [
    b"Starting Nasty MCP server...\n",
    b"\n",
    b"\x1b[32minfo\x1b[0m: Microsoft.Hosting.Lifetime[14]\n",
    "✓ ready 🚀\n".encode(),
    b'{"level":"info","msg":"json but not rpc"}\n',
    b"42\n",
    b"[]\n",
    b"null\n",
    b"{broken\n",
]
peer = Peer(stdout_writer())
for j in JUNK:
    peer.raw(j)
n = 0


def call(name, args, params, p):
    global n
    n += 1
    for j in JUNK:
        p.raw(j)
    return text(f"ok {n}")


serve(Server([tool("noisy", "Logs to stdout, then answers.")], call, name="junk"), peer=peer)
