"""However the proxy ends, it ends soon, and nothing that it started lives on (failure reports T9 and T10)."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from harness import (
    GONE_WITHIN,
    PATIENCE,
    SERVERS,
    Daemon,
    Place,
    Running,
    http_server,
    proxy,
    python_server,
    text_of,
    until,
)
from raw_client import MODERN, RawClient, StdioClient, http, stdio

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
PARENT = "import subprocess, sys; subprocess.run(sys.argv[1:])"


@pytest.fixture
def polite(place: Place) -> Path:
    """One server that ends with its input."""
    folder = place.folder / "servers"
    folder.mkdir()
    return place.config({"good": python_server("raw_server", str(folder / "good"))}, "polite.yaml")


@pytest.fixture
def config(place: Place, polite: Path) -> Path:
    """That, one that ignores the end of its input and SIGTERM (as its child does), and one that never answers."""
    folder = polite.parent / "servers"
    servers = {
        "good": python_server("raw_server", str(folder / "good")),
        "stubborn": python_server("raw_server", str(folder / "stubborn"), "--stubborn"),
        "hangs": python_server("raw_server", str(folder / "hangs"), "--hang"),
    }
    return place.config(servers)


def all_up(client: RawClient) -> None:
    for server in ("good", "stubborn"):
        assert not client.through(f"{server}__pid")["result"].get("isError")


def pid_of(client: RawClient) -> int | None:
    """The process of the good server; None while it is down."""
    result = client.through("good__pid")["result"]
    return None if result.get("isError") else int(text_of(result))


def busy(place: Place, client: StdioClient) -> None:
    """Everything is up and a call is under way."""
    all_up(client)
    client.start("tools/call", {"name": "tool_call", "arguments": {"name": "good__wait"}})
    ledger = place.folder / "servers" / "good" / "ledger"
    until(lambda: '"wait"' in ledger.read_text(encoding="utf-8"), "the call reaches the upstream")


def test_stdio_ends_with_its_input(place: Place, config: Path) -> None:
    with stdio(place, proxy("--config", str(config)), MODERN) as client:
        assert isinstance(client, StdioClient)
        busy(place, client)
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.process.wait(GONE_WITHIN) == 0
        place.wait_empty(1)


@pytest.mark.parametrize("sig", SIGNALS, ids=lambda s: s.name)
def test_stdio_ends_on_a_signal_though_its_input_stays_open(sig: signal.Signals, place: Place, config: Path) -> None:
    with stdio(place, proxy("--config", str(config))) as client:
        assert isinstance(client, StdioClient)
        busy(place, client)
        client.process.send_signal(sig)
        place.wait_empty()
        code = client.process.wait(PATIENCE)
        assert code == (-sig if sig == signal.SIGKILL else 0)
        assert "Traceback" not in client.stderr.text


def test_stdio_ends_with_its_parent_though_somebody_holds_its_input_open(place: Place, config: Path) -> None:
    """Failure report T10: 232 copies of a server whose parents had been killed."""
    words = [sys.executable, "-c", PARENT, *proxy("--config", str(config))]
    with StdioClient(place, words) as client:
        client.handshake()
        busy(place, client)
        client.process.kill()
        place.wait_empty(GONE_WITHIN)


def test_stdio_ends_when_nobody_reads_its_output_any_more(place: Place, polite: Path) -> None:
    process = subprocess.Popen(
        proxy("--config", str(polite)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=place.environ(), cwd=place.folder,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    with process.stdin:
        until(place.upstreams, "a server is started")
        process.stdout.close()
        place.wait_empty()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("sig", SIGNALS, ids=lambda s: s.name)
def test_the_daemon_ends_on_a_signal_with_streams_open_and_calls_under_way(
    sig: signal.Signals, place: Place, config: Path
) -> None:
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as old, http(daemon.url, MODERN) as new:
        all_up(old)
        subscription = {"notifications": {"toolsListChanged": True}}
        call = {"name": "tool_call", "arguments": {"name": "good__wait"}}
        headers = {**old.session, "accept": "text/event-stream"}
        with (
            httpx2.Client(timeout=PATIENCE) as browser,
            browser.stream("GET", f"{daemon.base}/sse") as sse,
            browser.stream("GET", daemon.url, headers=headers) as standing,
            new.stream("subscriptions/listen", subscription, ident=5) as listening,
            old.pending("tools/call", call, ident=6),
        ):
            assert [r.status_code for r in (sse, standing, listening)] == [200] * 3
            daemon.process.send_signal(sig)
            place.wait_empty()
        assert daemon.process.wait(PATIENCE) == (-sig if sig == signal.SIGKILL else 0)
        assert not re.search("Traceback|Exception|Cancel|WARNING|ERROR", daemon.stderr.text)


def test_a_second_signal_does_no_harm(place: Place, polite: Path) -> None:
    with stdio(place, proxy("--config", str(polite))) as client:
        assert isinstance(client, StdioClient)
        client.through("good__pid")
        client.process.send_signal(signal.SIGTERM)
        client.process.send_signal(signal.SIGINT)
        place.wait_empty()


def test_a_signal_while_servers_are_starting_ends_them_too(place: Place, config: Path) -> None:
    with Running(place, proxy("--config", str(config), "--http", "127.0.0.1:0")) as daemon:
        until(place.upstreams, "a server is started")
        daemon.process.send_signal(signal.SIGTERM)
        place.wait_empty()


def test_upstreams_over_http_do_not_hold_the_proxy_up(place: Place) -> None:
    ledger = str(place.folder / "ledger")
    words = (sys.executable, str(SERVERS / "sdk_server.py"), ledger)
    with http_server(place, *words, "http") as one, http_server(place, *words, "sse") as two:
        config = place.config(
            {
                "http": {"url": f"http://127.0.0.1:{one}/mcp"},
                "sse": {"url": f"http://127.0.0.1:{two}/sse", "transport": "sse"},
            }
        )
        with stdio(place, proxy("--config", str(config))) as client:
            assert isinstance(client, StdioClient) and client.process.stdin is not None
            for server in ("http", "sse"):
                assert not client.through(f"{server}__echo")["result"].get("isError")
                client.start("tools/call", {"name": "tool_call", "arguments": {"name": f"{server}__wait"}})
            until(lambda: Path(ledger).exists() and Path(ledger).read_text().count("waiting") == 2, "both calls wait")
            client.process.stdin.close()
            assert client.process.wait(GONE_WITHIN) == 0


def test_a_server_that_dies_again_and_again_leaves_nothing_behind(place: Place, polite: Path) -> None:
    """Failure report T9: never two living generations of one server."""
    with stdio(place, proxy("--config", str(polite))) as client:
        seen: set[int] = set()
        for _ in range(3):
            seen.add(until(lambda: pid_of(client), "it is up"))
            assert client.through("good__die")["result"]["isError"] is True
        seen.add(until(lambda: pid_of(client), "it is up again"))
        assert len(seen) == 4
        assert len(place.upstreams()) == 1
        assert seen > set(place.upstreams())


def test_a_command_that_was_cut_off_leaves_nothing_behind(place: Place, polite: Path) -> None:
    with Running(place, proxy("--config", str(polite), "list")) as listing:
        until(place.upstreams, "a server is started")
        listing.process.send_signal(signal.SIGINT)
        place.wait_empty()
        assert listing.process.wait(PATIENCE) == 130
