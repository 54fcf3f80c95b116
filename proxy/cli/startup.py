"""How long a host waits for us: a real start over stdio, with `initialize` and `tools/list` timed."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

_GIVE_UP = 60.0
_GRACE = 5.0


@dataclass(frozen=True)
class Startup:
    """Seconds from the start of the process."""

    initialized: float | None
    listed: float | None
    """None: never within a minute."""


def measure(arguments: Sequence[str], client: str, environ: Mapping[str, str] | None = None) -> Startup:
    """Start `narrow-waist` with `arguments` as the client `client` would, and stop it again; `environ`: not ours."""
    start = time.monotonic()
    command = [sys.executable, "-P", "-m", "proxy", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ
    )
    timer = threading.Timer(_GIVE_UP, process.kill)
    timer.start()
    try:
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": client, "version": "0"},
        }
        _send(process, {"id": 1, "method": "initialize", "params": hello})
        initialized = time.monotonic() - start if _answered(process, 1) else None
        _send(process, {"method": "notifications/initialized"})
        _send(process, {"id": 2, "method": "tools/list"})
        listed = time.monotonic() - start if _answered(process, 2) else None
    except BrokenPipeError:
        return Startup(None, None)
    finally:
        timer.cancel()
        try:
            process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    return Startup(initialized, listed)


def _send(process: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def _answered(process: "subprocess.Popen[bytes]", request: int) -> bool:
    assert process.stdout is not None
    for line in process.stdout:
        message: object = json.loads(line)
        if isinstance(message, dict) and cast(dict[str, Any], message).get("id") == request:
            return "result" in message
    return False
