"""How long a client waits for `initialize` and `tools/list` when four of twenty servers are bad, at the second start.

    python scripts/bench_start.py [--rounds 9]

One server is missing, one hangs in `initialize`, one crashes every second, one floods stderr. In turn with each start,
`import mcp` alone is measured, which no proxy on the SDK can avoid. Exits 1 when the median of the starts is more than
0.5 s above that, or when a good server cannot be called meanwhile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "tests" / "hostile" / "servers"
ALLOWED = 0.5
GOOD = 16


def server(script: str, *args: str) -> dict[str, Any]:
    """The config of one server."""
    return {"command": sys.executable, "args": [str(SERVERS / f"{script}.py"), *args]}


def config(folder: Path) -> Path:
    """Twenty servers, four of them bad."""
    servers = {f"good{number:02d}": server("good") for number in range(GOOD)}
    servers |= {
        "missing": {"command": "no-such-command-anywhere"},
        "hanging": server("hang_initialize"),
        "crashing": server("crashes_each_second"),
        "flooding": server("floods_for_ever"),
    }
    path = folder / "upstreams.yaml"
    path.write_text(json.dumps({"servers": servers}), encoding="utf-8")
    return path


class Client:
    """A client over stdio, as small as can be: it adds nothing to what is measured."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_STDERR") else subprocess.DEVNULL,
            env=environ,
            cwd=ROOT,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in: IO[bytes] = self.process.stdin
        self._out: IO[bytes] = self.process.stdout
        self._ident = 0

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._in.flush()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Write a request and wait for its answer."""
        self._ident += 1
        self.send({"id": self._ident, "method": method, "params": params})
        while True:
            message = json.loads(self._out.readline())
            if message.get("id") == self._ident:
                return message

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool through the bridge."""
        given = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}}
        return self.request("tools/call", given)["result"]

    def close(self) -> None:
        """Leave, and wait until the proxy has left too."""
        self._in.close()
        self.process.wait(15)


def start(command: list[str], environ: dict[str, str]) -> tuple[float, Client]:
    """Seconds from nothing to the answer of the first `tools/list`."""
    began = time.perf_counter()
    client = Client(command, environ)
    info = {"name": "bench", "version": "0"}
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    client.request("initialize", version)
    client.send({"method": "notifications/initialized"})
    tools = client.request("tools/list", {})["result"]["tools"]
    took = time.perf_counter() - began
    assert len(tools) == 3, tools
    return took, client


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = {**os.environ, "NARROW_WAIST_CACHE": str(folder / "cache")}
        command = [sys.executable, "-m", "proxy", "--config", str(config(folder))]
        first, client = start(command, environ)
        called = [client.call(f"good{n:02d}__echo", {"text": "hi"})["content"][0]["text"] for n in range(GOOD)]
        time.sleep(3)  # the crashing one has been seen, and the texts are counted
        client.close()
        imports: list[float] = []
        starts: list[float] = []
        calls: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import mcp"], check=True)
            imports.append(time.perf_counter() - began)
            took, client = start(command, environ)
            starts.append(took)
            began = time.perf_counter()
            called.append(client.call("good03__echo", {"text": "hi"})["content"][0]["text"])
            calls.append(time.perf_counter() - began)
            client.close()
    plain, ours = statistics.median(imports), statistics.median(starts)
    fair = ours <= plain + ALLOWED and called == ["hi"] * len(called)
    print(f"first start                  {first:6.2f} s")
    print(
        f"import mcp alone             {plain:6.2f} s   ({min(imports):.2f} .. {max(imports):.2f}, median of {rounds})"
    )
    print(f"initialize + tools/list      {ours:6.2f} s   ({min(starts):.2f} .. {max(starts):.2f})")
    print(f"difference                   {ours - plain:6.2f} s   (allowed {ALLOWED:.2f})")
    print(f"first call of a good server  {statistics.median(calls):6.2f} s   after that ({max(calls):.2f} at most)")
    print("good" if fair else "TOO SLOW" if called == ["hi"] * len(called) else f"WRONG ANSWERS {called}")
    return 0 if fair else 1


if __name__ == "__main__":
    sys.exit(main())
