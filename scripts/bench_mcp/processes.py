"""What the processes of a target use: found by parent, measured by the system's own clocks (Linux)."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UPSTREAM = str(Path(__file__).resolve().parent / "upstream.py")


@dataclass(frozen=True)
class Process:
    """One line of the process table."""

    parent: int
    command: str


@dataclass(frozen=True)
class Memory:
    """MB of all processes of a target together."""

    rss: float
    pss: float
    processes: int


def table() -> dict[int, Process]:
    """Every process that can be read: pid -> parent and command line."""
    found: dict[int, Process] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                stat = Path(entry.path, "stat").read_text()
                command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found[int(entry.name)] = Process(int(stat.rsplit(")", 1)[1].split()[1]), command)
    return found


def is_upstream(command: str, mark: str = "") -> bool:
    """Whether a command line is one of the bench's own servers, of the run with that mark."""
    return f"--mark {mark}" in command and UPSTREAM in command


def tree(root: int, mark: str) -> Iterator[int]:
    """`root` and its descendants, without the bench's own servers and what they started."""
    processes = table()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    left = [root]
    while left:
        pid = left.pop()
        if pid in processes and (pid == root or not is_upstream(processes[pid].command, mark)):
            yield pid
            left += children.get(pid, [])


def cpu(root: int, mark: str) -> float:
    """CPU seconds that the living processes of a target have used, to the nanosecond."""
    total = 0.0
    for pid in tree(root, mark):
        try:
            total += time.clock_gettime((~pid << 3) | 2)  # the CPU clock of another process (man 3 clock_getcpuclockid)
        except OSError:
            continue
    return total


def memory(root: int, mark: str) -> Memory:
    """What the processes of a target hold now."""
    rss = pss = 0
    pids = list(tree(root, mark))
    for pid in pids:
        try:
            rss += _kilobytes(pid, "status", "VmRSS:")
            pss += _kilobytes(pid, "smaps_rollup", "Pss:")
        except OSError:
            continue
    return Memory(round(rss / 1024, 1), round(pss / 1024, 1), len(pids))


def _kilobytes(pid: int, file: str, key: str) -> int:
    for line in Path("/proc", str(pid), file).read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    return 0


def descriptors(root: int, mark: str) -> int:
    """Open descriptors of a target's processes."""
    total = 0
    for pid in tree(root, mark):
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total


def upstreams(mark: str = "") -> list[int]:
    """The living servers of the bench."""
    return [pid for pid, process in table().items() if is_upstream(process.command, mark)]
