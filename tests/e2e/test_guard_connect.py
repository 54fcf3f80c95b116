"""`narrow-waist connect`: hosts that speak only stdio share the daemon's servers."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest
from harness import PATIENCE, Daemon, Place, Running, proxy, python_server, text_of
from raw_client import ERAS, StdioClient, stdio


def write(place: Place) -> Path:
    servers = {"raw": python_server("raw_server", str(place.folder / "raw"))}
    return place.config(servers, first_list_wait=PATIENCE)


@pytest.mark.parametrize("era", ERAS)
def test_stdio_clients_share_the_daemons_processes(era: str, place: Place) -> None:
    with Daemon(place, "--config", str(write(place))) as daemon:
        pids: set[str] = set()
        for _ in range(2):
            with stdio(place, proxy("connect", daemon.url), era) as client:
                assert [t["name"] for t in client.tools()] == ["tool_search", "tool_describe", "tool_call"]
                pids.add(text_of(client.through("raw__pid")["result"]))
                assert client.call("raw__nothing")["result"]["isError"]
        assert len(pids) == 1


def test_a_token_is_sent_and_its_lack_is_told(place: Place) -> None:
    token = "a-token-of-some-length"
    with Daemon(place, "--config", str(write(place)), NARROW_WAIST_TOKEN=token) as daemon:
        with stdio(place, proxy("connect", daemon.url), NARROW_WAIST_TOKEN=token) as client:
            assert len(client.tools()) == 3
        lines = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
        (place.folder / "in").write_text(lines)
        script = f"{' '.join(proxy('connect', daemon.url))} < in; sleep 0"
        assert token not in place.run("sh", "-c", script).stdout


def test_a_batch_is_taken_apart_and_a_line_that_is_no_message_is_answered(place: Place) -> None:
    with Daemon(place, "--config", str(write(place))) as daemon, stdio(place, proxy("connect", daemon.url)) as client:
        assert client.process.stdin is not None
        client.process.stdin.write(b"nonsense\n" + b'[{"jsonrpc": "2.0", "id": "b", "method": "ping"}]\n')
        client.process.stdin.write(b'[1, {"jsonrpc": "2.0", "id": "c", "method": "ping"}]\n')
        client.process.stdin.flush()
        got = [client.receive() for _ in range(4)]
    assert sorted(json.dumps(each.get("id")) for each in got) == ['"b"', '"c"', "null", "null"]


def heard_of_change(client: StdioClient) -> bool:
    return any(message.get("method") == "notifications/tools/list_changed" for message in client.seen)


def test_a_client_hears_of_a_changed_list_also_across_a_restart_of_the_daemon(place: Place) -> None:
    """Its GET stream was never opened, and no session knows what was listed before the daemon's start."""
    config = str(write(place))
    menu = place.folder / "raw" / "tools.json"
    with Daemon(place, "--config", config) as daemon, stdio(place, proxy("connect", daemon.url)) as client:
        client.tools()
        menu.write_text(json.dumps([{"name": "one", "inputSchema": {"type": "object"}}]), encoding="utf-8")
        os.kill(int(text_of(client.through("raw__pid")["result"])), signal.SIGKILL)  # it lists when it starts again
        while not heard_of_change(client):
            client.receive()
        client.tools()
        client.seen.clear()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait(PATIENCE)
        menu.write_text(json.dumps([{"name": "two", "inputSchema": {"type": "object"}}]), encoding="utf-8")
        address = daemon.base.removeprefix("http://")
        with Running(place, proxy("--http", address, "--config", config)):
            while not heard_of_change(client):
                client.receive()
            assert "two" in json.dumps(client.tools())


def test_without_a_daemon_it_says_what_to_do(place: Place) -> None:
    done = place.cli("connect", "http://127.0.0.1:9/mcp")
    assert done.returncode == 2
    assert "--start" in done.stderr and len(done.stderr.splitlines()) == 1


def test_it_starts_the_daemon_where_it_is_asked_to(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("connect", "--start", f"http://127.0.0.1:{port}/mcp", "--config", str(write(place)))
    try:
        with stdio(place, proxy(*words)) as client:
            assert text_of(client.through("raw__pid")["result"])
            told = client.stderr.wait(r"it stays, until: kill (\d+)")
        daemons = [pid for pid, command in place.processes().items() if "--http" in command]
        assert daemons == [int(told[1])]
    finally:
        for pid, command in place.processes().items():
            if "--http" in command:
                os.kill(pid, signal.SIGTERM)
