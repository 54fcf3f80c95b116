"""A server that wants a login, as the tests of logins see it: what it was asked, what is kept, and who gets through."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx2
from harness import PATIENCE, SERVERS, Place, Running, http_server, proxy, text_of, until
from raw_client import StdioClient

NEEDED = "needs a login: narrow-waist login hosted"


class Hosted:
    """A server that wants a login, as it is seen from outside."""

    def __init__(self, place: Place, port: int, kind: str) -> None:
        self.place, self.kind = place, kind
        self.base = f"http://127.0.0.1:{port}"
        self.url = f"{self.base}/{'sse' if kind == 'sse' else 'mcp'}"

    def config(self, **keys: Any) -> str:
        """Write a configuration with this server as `hosted`, and return its path."""
        entry = {"url": self.url, "connect_timeout": 15, **({"transport": "sse"} if self.kind == "sse" else {}), **keys}
        return str(self.place.config({"hosted": entry}))

    def control(self, **rules: Any) -> None:
        assert httpx2.post(f"{self.base}/control", json=rules).is_success

    def seen(self, what: str, **having: Any) -> list[dict[str, Any]]:
        """What was asked of it, of one kind."""
        found = httpx2.get(f"{self.base}/seen").json()
        return [each for each in found if each["what"] == what and having.items() <= each.items()]

    def secrets(self) -> set[str]:
        """All that nobody may read anywhere."""
        found = {token for each in self.seen("made") for token in each["tokens"]}
        for each in self.seen("token"):
            found |= {each[name] for name in ("code", "code_verifier", "refresh_token") if name in each}
        return found

    def leaks(self, shown: str) -> list[str]:
        """What of the secrets is to be read there, be it only how one begins or ends."""
        return [part for secret in self.secrets() for part in (secret[:14], secret[-12:]) if part in shown]

    @property
    def files(self) -> list[Path]:
        return sorted(Path(self.place.mark, ".local", "state", "narrow-waist", "logins").glob("*"))

    def kept(self) -> dict[str, Any]:
        [file] = self.files
        return json.loads(file.read_text(encoding="utf-8"))

    @contextmanager
    def asking(self, config: str, *words: str, **environ: str) -> Iterator[tuple[Running, str]]:
        """`login` on its way, and the address that it has printed."""
        command = proxy("login", "hosted", "--config", config, "--no-browser", *words)
        with Running(self.place, command, stdout=True, **environ) as running:
            assert running.stdout is not None
            yield running, running.stdout.wait(r"^(http://\S+)$")[1]

    def log_in(self, config: str, *words: str, **environ: str) -> str:
        """Log in, the test being the browser; all that was printed."""
        with self.asking(config, *words, **environ) as (running, address):
            httpx2.get(address, follow_redirects=True)
            code = running.process.wait(PATIENCE)
            assert running.stdout is not None
            said = until(lambda: running.stdout.ended and running.stderr.ended, "the end of its output") and (
                f"{running.stdout.text}\n{running.stderr.text}"
            )
            assert code == 0, said
            return said


@contextmanager
def a_server(place: Place, kind: str = "http") -> Iterator[Hosted]:
    words = (sys.executable, str(SERVERS / "oauth_server.py"), str(place.folder / "ledger"), kind)
    with http_server(place, *words) as port:
        yield Hosted(place, port, kind)


@contextmanager
def serving(place: Place, config: str, *words: str, **environ: str) -> Iterator[StdioClient]:
    """A proxy over stdio, and its client."""
    with StdioClient(place, proxy("--config", config, *words), **environ) as client:
        client.handshake()
        yield client


def echoed(client: StdioClient, value: Any = 1) -> bool:
    """Whether a call reaches the server."""
    result = client.through("hosted__echo", {"value": value})["result"]
    return not result.get("isError") and result["structuredContent"] == {"value": value}


def refused(client: StdioClient) -> str:
    result = client.through("hosted__echo", {})["result"]
    assert result["isError"]
    return text_of(result)


def said(done: CompletedProcess[str]) -> str:
    return done.stdout + done.stderr
