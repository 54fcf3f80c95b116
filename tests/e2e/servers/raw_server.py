"""An upstream without any SDK that does exactly what its folder says; 2024-11-05, stdio.

    python raw_server.py FOLDER [--hang] [--stubborn]

FOLDER/answers/TOOL.json holds the rest of the answer to a call of TOOL, byte for byte: `"result": {...}` or
`"error": {...}`. FOLDER/tools.json replaces the list. FOLDER/ledger gets one line for each message received.
Other tools: `arguments` answers with the line that brought the call, `count` reports progress 1 to 5 (and a field of
its own) before it answers, `wait` never answers, `pid` tells the process, `die` ends it.
--hang never answers anything; --stubborn ignores the end of its input and SIGTERM, and has a child that does too.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BUILT_IN = ("arguments", "count", "wait", "pid", "die")
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"


def write(data: str) -> None:
    sys.stdout.buffer.write(data.encode() + b"\n")
    sys.stdout.buffer.flush()


def answer(ident: object, rest: str) -> None:
    write(f'{{"jsonrpc": "2.0", "id": {json.dumps(ident)}, {" ".join(rest.split(chr(10)))}}}')


def text(value: str) -> str:
    return '"result": ' + json.dumps({"content": [{"type": "text", "text": value}]})


def call(folder: Path, message: dict, line: str) -> None:
    name, ident = message["params"]["name"], message["id"]
    if name == "arguments":
        answer(ident, text(line))
    elif name == "count":
        token = message["params"].get("_meta", {}).get("progressToken")
        for step in range(1, 6) if token is not None else ():
            params = {"progressToken": token, "progress": step, "total": 5, "message": f"step {step}", "x-own": step}
            write(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        answer(ident, text("counted"))
    elif name == "pid":
        answer(ident, text(str(os.getpid())))
    elif name == "die":
        os._exit(3)
    elif name != "wait":
        answer(ident, (folder / "answers" / f"{name}.json").read_text(encoding="utf-8"))


def tools(folder: Path) -> str:
    chosen = folder / "tools.json"
    if chosen.exists():
        return chosen.read_text(encoding="utf-8")
    names = [*BUILT_IN, *(path.stem for path in sorted(folder.glob("answers/*.json")))]
    return json.dumps([{"name": n, "description": f"Test {n}", "inputSchema": {"type": "object"}} for n in names])


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", STUBBORN])
    for raw in sys.stdin.buffer:
        line = raw.decode().strip()
        message = json.loads(line)
        with (folder / "ledger").open("a", encoding="utf-8") as ledger:
            ledger.write(line + "\n")
        if "--hang" in sys.argv or "id" not in message:
            continue
        match message.get("method"):
            case "initialize":
                info = {"name": "raw", "version": "1"}
                result = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
                answer(message["id"], '"result": ' + json.dumps(result))
            case "ping":
                answer(message["id"], '"result": {}')
            case "tools/list":
                answer(message["id"], f'"result": {{"tools": {tools(folder)}}}')
            case "tools/call":
                call(folder, message, line)
            case _:
                answer(message["id"], '"error": {"code": -32601, "message": "Method not found"}')
    if "--stubborn" in sys.argv:
        time.sleep(120)  # bounded, so that a failed test leaves nothing for ever


if __name__ == "__main__":
    main()
