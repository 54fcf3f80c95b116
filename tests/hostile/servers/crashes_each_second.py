"""Upstream that works and ends with code 5 after a second, again and again."""

import os
import threading

from _raw import Server, serve, text, tool

threading.Timer(1.0, os._exit, (5,)).start()
serve(Server([tool("brief", "Works for a second.")], lambda n, a, p, peer: text("brief ok"), name="brief"))
