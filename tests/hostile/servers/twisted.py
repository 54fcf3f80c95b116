"""Upstream with one fault at a time (argv[1]); `fine` is always answered well, `hit` meets the fault.

In an answer: wrong_id, float_id, string_id, batch, twice, bom, crlf, junk_before, junk_after, cut_line, nan, deep,
surrogate, drip, huge (30 MB), notifications (10,000 first), progress_flood, asks (requests of its own first),
content_string, content_object (no list around it).
To the connection: half_line_exit, closes_stdout, closes_stdin, hangs, exit0.
At the start: start_exit0, start_exit1, list_dies, list_hangs, list_null, list_missing, list_object, list_repeats,
list_error_once, list_not_found, init_list, init_version, init_error, init_twice, init_bare. argv[2]: a file that
counts the starts.
Right behaviour: at most the affected call fails, with a reason and at once; the next call works; a fault at the start
is told as the reason, and one that passes is recovered.
"""

import json
import os
import sys
import threading
import time

from _raw import NoReply, Peer, RpcError, Server, serve, stdout_writer, text, tool

FAULT = sys.argv[1]
STARTS = sys.argv[2] if len(sys.argv) > 2 else os.devnull
with open(STARTS, "a", encoding="utf-8") as file:
    file.write("start\n")
if FAULT == "start_exit0":
    sys.exit(0)
if FAULT == "start_exit1":
    sys.exit("Error: API_KEY is not set")

peer = Peer(stdout_writer())
current = {}
lists = 0


def hit():
    ok = text("hit ok")
    answer = {"jsonrpc": "2.0", "id": current["id"], "result": ok}
    line = json.dumps(answer).encode()
    if FAULT == "wrong_id":
        peer.send({**answer, "id": 987_654})
    elif FAULT == "float_id":
        peer.send({**answer, "id": float(current["id"])})
    elif FAULT == "string_id":
        peer.send({**answer, "id": str(current["id"])})
    elif FAULT == "batch":
        peer.send([{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}, answer])
    elif FAULT == "twice":
        peer.send(answer)
        peer.send({**answer, "result": text("second answer")})
    elif FAULT == "bom":
        peer.raw(b"\xef\xbb\xbf" + line + b"\n")
    elif FAULT == "crlf":
        peer.raw(b"\r\n" + line + b"\r\n\r\n")
    elif FAULT == "junk_before":
        peer.raw(b"DEBUG sending: " + line + b"\n")
    elif FAULT == "junk_after":
        peer.raw(line + b" <- sent\n")
    elif FAULT == "cut_line":
        peer.raw(line[:-9] + b"\n")
    elif FAULT == "nan":
        peer.raw(line.replace(b'"result": {', b'"result": {"structuredContent": {"n": NaN, "i": -Infinity}, ') + b"\n")
    elif FAULT == "deep":
        peer.raw(line[:-1] + b', "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
    elif FAULT == "surrogate":
        peer.raw(line.replace(b"hit ok", b"hit ok \\ud83d") + b"\n")
    elif FAULT == "drip":
        for at in range(len(line)):
            peer.raw(line[at : at + 1])
        peer.raw(b"\n")
    elif FAULT in ("content_string", "content_object"):
        return {"content": "hit ok" if FAULT == "content_string" else ok["content"][0]}
    elif FAULT == "huge":
        return text("y" * 30_000_000)
    elif FAULT == "notifications":
        for number in range(10_000):
            peer.notify("notifications/message", {"level": "info", "data": f"line {number}"})
        return ok
    elif FAULT == "progress_flood":
        for number in range(10_000):
            peer.notify("notifications/progress", {"progressToken": current["id"], "progress": number})
            peer.notify("notifications/progress", {"progressToken": "nobody", "progress": number})
        return ok
    elif FAULT == "half_line_exit":
        peer.raw(line[:20])
        os._exit(9)
    elif FAULT == "exit0":
        os._exit(0)
    elif FAULT == "closes_stdout":
        os.close(1)
        time.sleep(60)
    elif FAULT == "closes_stdin":
        os.close(0)
        time.sleep(60)
    elif FAULT == "hangs":
        pass
    else:
        return ok
    raise NoReply


def asks():
    """Asks the client for everything a client can be asked; in a thread, as the answers come over our stdin."""
    ident = current["id"]

    def run():
        methods = ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "made/up")
        got = {}
        for method in methods:
            answer = peer.request(method, {})
            got[method] = "result" if "result" in answer else answer.get("error", {}).get("code", "nothing")
        peer.send({"jsonrpc": "2.0", "id": ident, "result": text(json.dumps(got))})

    threading.Thread(target=run, daemon=True).start()
    raise NoReply


def call(name, args, params, p):
    if name == "fine":
        return text("fine ok")
    return asks() if FAULT == "asks" else hit()


def listing(params):
    global lists
    lists += 1
    if FAULT == "list_dies":
        os._exit(4)
    if FAULT == "list_hangs":
        raise NoReply
    if FAULT == "list_error_once" and lists + STARTED == 2:
        raise RpcError(-32603, "warming up")
    if FAULT == "list_not_found":
        raise RpcError(-32601, "Method not found")
    if FAULT == "list_null":
        return {"tools": None}
    if FAULT == "list_object":
        return {"tools": {"fine": tool("fine")}}
    if FAULT == "list_repeats":
        return {"tools": [tool("fine"), tool("hit"), *[tool(f"t{n}") for n in range(50)] * 2, *[{"title": "x"}] * 50]}
    return {} if FAULT == "list_missing" else {"tools": [tool("fine"), tool("hit")]}


class Twisted(Server):
    def initialize(self, params):
        good = super().initialize(params)
        if FAULT == "init_list":
            return [good]
        if FAULT == "init_version":
            return {**good, "protocolVersion": "1999-01-01"}
        if FAULT == "init_error":
            raise RpcError(-32000, "license expired")
        if FAULT == "init_twice":
            peer.send({"jsonrpc": "2.0", "id": current["id"], "result": good})
        return {"protocolVersion": good["protocolVersion"]} if FAULT == "init_bare" else good


def on_line(line):
    message = json.loads(line)
    if "id" in message:
        current["id"] = message["id"]


with open(STARTS, encoding="utf-8") as file:
    STARTED = len(file.readlines())
serve(Twisted(listing, call, name="twisted"), peer=peer, on_line=on_line)
