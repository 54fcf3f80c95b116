"""Upstream that starts, reads everything and never answers anything.

Seen in: metatool-ai/metamcp#140, T4cceptor/centian#41, BerriAI/litellm#38791, open-webui/mcpo#68.
Right behaviour: the proxy answers its own initialize and tools/list within about 1 s no matter what; other
upstreams are usable at once; this one is shown as "connecting" then "failed: no answer to initialize in N s"
(per-server start time-out, default 30 s); on proxy exit the child is gone. mcp 2.3.0 has NO default read
time-out: `Client(...)`/`session.initialize()` waits for ever unless wrapped.
"""

import sys

for _ in iter(sys.stdin.buffer.readline, b""):
    pass
