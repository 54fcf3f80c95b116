"""Upstream that works, and writes to stderr as fast as it is read, for ever."""

import sys
import threading

from _raw import Server, serve, text, tool


def flood():
    while True:
        sys.stderr.write("warning: something is deprecated\n" * 1000)


threading.Thread(target=flood, daemon=True).start()
serve(Server([tool("loud", "Works, loudly.")], lambda n, a, p, peer: text("loud ok"), name="loud"))
