"""Upstream that can run calls in parallel: `sleep(ms)` and `peak` (most calls ever in flight at once).

argv[1] = "serial" makes it handle one call at a time (a browser- or device-bound server).
Seen in: jaseci-labs/jac#5723 (lock serialised 5 calls: 2.5 s, not 0.5 s), bigduu/Bamboo-agent#56,
voicetreelab/lazy-mcp#8,
lynnswap/XcodeMCPKit#201, GEMISIS/leviath#689, bethington/ghidra-mcp#91.
Right behaviour: five sleep(500) through the proxy take <1.2 s and peak is 5; a slow call never delays a call to
another upstream or a tool_search; with per-server `max_concurrency: 1` they run in order and none is lost. Replies
that come out of order reach the right caller.
"""

import sys
import threading
import time

from _raw import Server, serve, text, tool

lock, st = threading.Lock(), {"now": 0, "peak": 0}


def call(name, args, params, peer):
    if name == "peak":
        return text(str(st["peak"]))
    with lock:
        st["now"] += 1
        st["peak"] = max(st["peak"], st["now"])
    ms = int((args or {}).get("ms", 500))
    time.sleep(ms / 1000)
    with lock:
        st["now"] -= 1
    return text(f"slept {ms}")


serve(
    Server(
        [
            tool("sleep", "Sleeps.", {"type": "object", "properties": {"ms": {"type": "integer"}}}),
            tool("peak", "Peak concurrency."),
        ],
        call,
        name="parallel",
    ),
    threaded=(sys.argv[1:] != ["serial"]),
)
