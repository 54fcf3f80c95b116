"""Kills random upstreams under load, and shows that nothing but the calls in flight on them suffers.

    python scripts/chaos.py [--seconds 180] [--workers 12] [--seed N]

Eight stdio servers and two HTTP servers stand behind one proxy, with one missing and one that hangs. Workers call them
without a pause; every second or so one is ended by SIGKILL (an HTTP one is started again on its port). At the end:

- every call that failed was on a server killed while it was under way, or not up again yet, and says so;
- a ledger that the servers write proves that no call ran twice, and none that was answered did not run;
- memory, descriptors and processes of the last tenth are within 5 % of the first tenth after a warm-up;
- nothing is left after the proxy ends by the end of its input, SIGTERM, SIGINT and SIGKILL.

Exits 1 where any of that does not hold.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "tests" / "hostile" / "servers"
STDIO, HTTP = 8, 2
TOLERANCE = 0.05
WARM_UP = 0.2
"""Share of the run before the first tenth: caches fill, the allocator takes what it needs."""
GONE_WITHIN = 5.0
CLEAR = ("SIGKILL", "cannot reach", "HTTP connection failed", "forgotten our session", "closed")
"""What an error of a killed server must say, one of them."""


def running(pid: int) -> bool:
    """Whether a process runs; zombies do not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def pids(file: Path) -> list[int]:
    """The processes a server has had, oldest first."""
    return [int(line) for line in file.read_text(encoding="utf-8").split()] if file.exists() else []


@dataclass
class Upstream:
    """One server, and when it was down."""

    name: str
    folder: Path
    port: int | None = None
    kills: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When it was killed, and when we had it up again; at once where that is up to the proxy."""
    process: asyncio.subprocess.Process | None = None

    @property
    def pid_file(self) -> Path:
        """Where its processes write who they are."""
        return self.folder / f"{self.name}.pids"

    @property
    def command(self) -> list[str]:
        """How it is started."""
        words = [
            sys.executable,
            str(SERVERS / "ledger.py"),
            str(self.folder / f"{self.name}.ledger"),
            str(self.pid_file),
        ]
        return [*words, f"port={self.port}"] if self.port is not None else words

    @property
    def config(self) -> dict[str, Any]:
        """Its entry in the proxy's config."""
        if self.port is not None:
            return {"url": f"http://127.0.0.1:{self.port}/mcp", "timeout": 20}
        return {"command": self.command[0], "args": self.command[1:], "timeout": 20}

    async def start(self) -> None:
        """Start it, where we do and not the proxy."""
        if self.port is not None:
            self.process = await asyncio.create_subprocess_exec(*self.command, stdout=asyncio.subprocess.PIPE)
            assert self.process.stdout is not None
            await self.process.stdout.readline()

    async def kill(self) -> None:
        """End its newest process, if it has one now."""
        alive = [pid for pid in pids(self.pid_file)[-1:] if running(pid)]
        for pid in alive:
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                await self.process.wait()
                await asyncio.sleep(random.uniform(0, 0.5))
                await self.start()
            self.kills.append((killed, time.monotonic()))


class Client:
    """A client over stdio with many calls in flight."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, config: Path, folder: Path) -> "Client":
        """Start the proxy and shake hands."""
        environ = {**os.environ, "NARROW_WAIST_CACHE": str(folder / "cache")}
        with (folder / "proxy.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "proxy", "--config", str(config),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=environ, cwd=ROOT, limit=2**26,
            )  # fmt: skip
        client = cls(process)
        info = {"name": "chaos", "version": "0"}
        version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        await client.request("initialize", version)
        client.send({"method": "notifications/initialized"})
        return client

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Write a request and wait for its answer."""
        self._next += 1
        ident = self._next
        self._waiting[ident] = asyncio.get_running_loop().create_future()
        self.send({"id": ident, "method": method, "params": params})
        return await asyncio.wait_for(self._waiting[ident], 60)

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[bool, str]:
        """Call through the bridge: (failed, text)."""
        given = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}}
        answer = await self.request("tools/call", given)
        if "result" not in answer:
            return True, f"PROTOCOL ERROR {answer}"
        return answer["result"].get("isError", False), answer["result"]["content"][0]["text"]

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            if "method" not in message and (waiting := self._waiting.pop(message["id"], None)) is not None:
                waiting.set_result(message)
        for waiting in self._waiting.values():
            waiting.cancel("the proxy has ended")

    async def leave(self) -> None:
        """End by the end of the input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), 15)
        self._reader.cancel()


@dataclass(frozen=True)
class Call:
    """One call and how it ended."""

    ident: str
    server: str
    began: float
    ended: float
    failed: bool
    text: str


@dataclass(frozen=True)
class Sample:
    """What the proxy uses at one moment."""

    rss: int
    descriptors: int
    processes: int


def sample(pid: int) -> Sample:
    """Look at the proxy and its children."""
    rss = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    children = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        children += int(fields[1]) == pid and fields[0] != "Z"
    return Sample(rss, len(list(Path(f"/proc/{pid}/fd").iterdir())), children)


class Chaos:
    """One run."""

    def __init__(self, folder: Path, seconds: float, workers: int) -> None:
        self.folder, self.seconds, self.workers = folder, seconds, workers
        self.upstreams = [Upstream(f"stdio{n}", folder) for n in range(STDIO)]
        self.upstreams += [Upstream(f"http{n}", folder, _free_port()) for n in range(HTTP)]
        self.calls: list[Call] = []
        self.samples: list[Sample] = []
        self.problems: list[str] = []
        self._over = False

    def config(self) -> Path:
        """The proxy's config, with a missing and a hanging server too."""
        servers = {u.name: u.config for u in self.upstreams}
        servers["missing"] = {"command": "no-such-command-anywhere"}
        servers["hanging"] = {"command": sys.executable, "args": [str(SERVERS / "hang_initialize.py")]}
        path = self.folder / "upstreams.yaml"
        path.write_text(json.dumps({"servers": servers}), encoding="utf-8")
        return path

    async def run(self) -> None:
        """Load, kill, look, judge."""
        for upstream in self.upstreams:
            await upstream.start()
        client = await Client.open(self.config(), self.folder)
        for upstream in self.upstreams:
            await client.call(f"{upstream.name}__work", {"id": f"first-{upstream.name}"})
        killer = asyncio.create_task(self._kill())
        workers = [asyncio.create_task(self._work(client, number)) for number in range(self.workers)]
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            await asyncio.sleep(0.5)
            self.samples.append(sample(client.process.pid))
        self._over = True
        await asyncio.gather(killer, *workers)
        await client.leave()
        await self._nothing_left("the end of its input")
        self._judge_calls()
        self._judge_ledger()
        self._judge_growth()
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            client = await Client.open(self.config(), self.folder)
            for upstream in self.upstreams:
                await client.call(f"{upstream.name}__work", {"id": f"{sig.name}-{upstream.name}"})
            client.process.send_signal(sig)
            await asyncio.wait_for(client.process.wait(), 15)
            await self._nothing_left(sig.name)
        for upstream in self.upstreams:
            if upstream.process is not None:
                upstream.process.kill()
                await upstream.process.wait()

    async def _kill(self) -> None:
        while not self._over:
            await asyncio.sleep(random.uniform(0.3, 1.5))
            await random.choice(self.upstreams).kill()

    async def _work(self, client: Client, worker: int) -> None:
        number = 0
        while not self._over:
            upstream, number = random.choice(self.upstreams), number + 1
            ident, began = f"{worker}-{number}", time.monotonic()
            arguments = {"id": ident, "ms": random.choice((0, 5, 20, 100))}
            failed, text = await client.call(f"{upstream.name}__work", arguments)
            self.calls.append(Call(ident, upstream.name, began, time.monotonic(), failed, text))
            if not failed and text != ident:
                self.problems.append(f"call {ident} got the answer {text!r}")

    def _judge_calls(self) -> None:
        kills = {u.name: u.kills for u in self.upstreams}
        for call in (c for c in self.calls if c.failed):
            # Half a second more: a process dies at the kill, but its pipes are seen to close a little later.
            if not any(call.began - 0.5 <= up and at <= call.ended for at, up in kills[call.server]):
                self.problems.append(f"call {call.ident} to {call.server}, which was not killed: {call.text}")
            if repr(call.server) not in call.text or not any(words in call.text for words in CLEAR):
                self.problems.append(f"unclear: {call.text}")

    def _judge_ledger(self) -> None:
        ran: Counter[str] = Counter()
        for upstream in self.upstreams:
            ledger = self.folder / f"{upstream.name}.ledger"
            ran.update(line.split()[1] for line in ledger.read_text(encoding="utf-8").splitlines())
        self.problems += [f"call {ident} ran {times} times" for ident, times in ran.items() if times > 1]
        self.problems += [
            f"call {c.ident} did not run and has an answer" for c in self.calls if not c.failed and not ran[c.ident]
        ]
        self.problems += [
            f"call {c.ident} ran, and its error says that it did not"
            for c in self.calls
            if c.failed and "did not run" in c.text and ran[c.ident]
        ]

    def _judge_growth(self) -> None:
        settled = self.samples[int(len(self.samples) * WARM_UP) :]
        tenth = max(1, len(settled) // 10)
        for name in ("rss", "descriptors", "processes"):
            first, last = (
                statistics.median(getattr(s, name) for s in part) for part in (settled[:tenth], settled[-tenth:])
            )
            growth = last / first - 1
            print(f"{name:12} first tenth {first:13,.0f}   last tenth {last:13,.0f}   {growth:+.1%}")
            # A server may be just starting, and HTTP keeps an idle connection for each of the calls at the busiest.
            slack = {"rss": 0, "descriptors": self.workers, "processes": 2}[name]
            if growth > TOLERANCE and last - first > slack:
                self.problems.append(f"{name} grew by {growth:.1%}")

    async def _nothing_left(self, how: str) -> None:
        until = time.monotonic() + GONE_WITHIN
        ours = [pid for u in self.upstreams if u.port is None for pid in pids(u.pid_file)]
        while (left := [p for p in ours if running(p)]) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        print(f"left after {how}: {len(left)} of {len(ours)} processes")
        if left:
            self.problems.append(f"{len(left)} processes live on after {how}")

    def report(self) -> int:
        """Print the figures; 1 where something does not hold."""
        kills = sum(len(u.kills) for u in self.upstreams)
        failed = [c for c in self.calls if c.failed]
        slowest = max((c.ended - c.began for c in self.calls), default=0)
        print(f"{len(self.calls):,} calls in {self.seconds:g} s, {kills} kills, {len(failed)} calls failed, none twice")
        print(f"slowest call {slowest:.2f} s")
        for text, times in Counter(c.text.partition(": ")[2][:70] for c in failed).most_common(6):
            print(f"{times:6} x {text}")
        for problem in self.problems[:20]:
            print(f"WRONG: {problem}")
        print("good" if not self.problems else f"{len(self.problems)} things are wrong")
        return 1 if self.problems else 0


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def main() -> int:
    """Run once, in a folder of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as name:
        chaos = Chaos(Path(name), options.seconds, options.workers)
        asyncio.run(chaos.run())
        return chaos.report()


if __name__ == "__main__":
    sys.exit(main())
