"""Upstream whose replies are very long single lines.

`big(bytes=200000, chunk_delay=0)` returns that much text in one line; the tool list itself carries a
150 KB description. Seen in: UKGovernmentBEIS/inspect_ai#4280 (64 KiB readline limit poisons the session),
Consiliency/pmcp#82 (10 MiB limit tore down the server), TokenRhythm/opensquilla#953, QwenLM/qwen-code#9298.
Right behaviour: 200 KB and 5 MB results arrive whole and unchanged (same sha256); the list line of >64 KiB
does not break start-up; the long description is cut in search results and listings. If a size cap exists
(say 32 MiB), the one call fails with a clear tool error naming the cap and the NEXT call still works.
"""

import hashlib
import time

from _raw import Server, serve, text, tool


def call(name, args, params, peer):
    a = args or {}
    n = int(a.get("bytes", 200_000))
    body = ("0123456789abcdef" * (n // 16 + 1))[:n]
    if a.get("delay_ms"):
        time.sleep(a["delay_ms"] / 1000)
    if name == "sha":
        return text(hashlib.sha256(body.encode()).hexdigest())
    return text(body)


S = {"type": "object", "properties": {"bytes": {"type": "integer"}, "delay_ms": {"type": "integer"}}}
serve(
    Server(
        [tool("big", "Returns N bytes of text. " + "padding " * 19_000, S), tool("sha", "sha256 of big's text", S)],
        call,
        name="longline",
    )
)
