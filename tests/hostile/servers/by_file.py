"""Upstream that is as a file (argv[1]) says when it starts: `hang`, or its tools' names. argv[2]: a file of pids."""

import os
import sys

from _raw import Server, serve, text, tool

with open(sys.argv[1], encoding="utf-8") as file:
    WORDS = file.read().split()
if len(sys.argv) > 2:
    with open(sys.argv[2], "a", encoding="utf-8") as file:
        file.write(f"pid {os.getpid()}\n")
if WORDS == ["hang"]:
    for _ in iter(sys.stdin.buffer.readline, b""):
        pass
    sys.exit()
serve(Server([tool(word, f"The {word} tool.") for word in WORDS], lambda n, a, p, peer: text(f"{n} ok"), name="file"))
