"""A server without any fault. `echo` returns its `text`; `pid` says which process it is. argv[1]: file for the pid."""

import os
import sys

from _raw import Server, serve, text, tool

if len(sys.argv) > 1:
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(f"pid {os.getpid()}\n")

ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def call(name, args, params, peer):
    return text(str(os.getpid()) if name == "pid" else args["text"])


serve(
    Server([tool("echo", "Gives the text back.", ECHO), tool("pid", "The process id.")], call, name="good"),
    threaded=True,
)
