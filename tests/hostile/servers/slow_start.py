"""Upstream that needs argv[1] seconds (default 8) before it answers its first message (npx/uvx cold start).

Seen in: NousResearch/hermes-agent#38448/#41625 (tools snapshotted before discovery ended),
anthropics/claude-code#82900.
Right behaviour: the proxy serves other upstreams meanwhile; when this one arrives its tools become findable and
exactly one tools/list_changed goes to clients (if the listing text changed); a tool_call that names it while it is
starting waits a bounded time or answers "server 'slow' is still starting, retry" rather than "unknown tool".
"""

import sys
import time

from _raw import Server, serve, text, tool

time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 8)
serve(Server([tool("late_tool", "Arrives late.")], lambda n, a, p, peer: text("finally"), name="slow"))
