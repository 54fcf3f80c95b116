"""A server of 2,600 tools and more, over stdio and over HTTP, is three tools that search and call."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BRIDGE, PATIENCE, Daemon, Place, http_server, text_of
from raw_client import MODERN, OLD, RawClient, connected

WAYS = [("stdio", OLD), ("http", OLD), ("http", MODERN)]
LARGE = [sys.executable, "-P", "-m", "proxy.demo.cloudflare"]


@pytest.fixture(scope="module")
def config(shared_place: Place) -> Iterator[Path]:
    with http_server(shared_place, *LARGE, "--http", "0") as port:
        servers = {
            "big-http": {"url": f"http://127.0.0.1:{port}/mcp"},
            "big-stdio": {"command": LARGE[0], "args": LARGE[1:]},
        }
        yield shared_place.config(servers, first_list_wait=PATIENCE)


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS], scope="module")
def client(request: pytest.FixtureRequest, shared_place: Place, config: Path, daemon: Daemon) -> Iterator[RawClient]:
    with connected(request.param, shared_place, config, daemon) as client:
        yield client


@pytest.mark.parametrize("server", ["big-stdio", "big-http"])
def test_a_server_of_2600_tools_is_three_tools_that_search_and_call(client: RawClient, server: str) -> None:
    tools = client.tools()
    assert [tool["name"] for tool in tools] == BRIDGE
    found = client.call("tool_search", {"query": "create a dns record", "server": server, "limit": 3})["result"]
    answer = json.loads(text_of(found))
    assert answer["total"] >= 2 * 2600
    name = answer["matches"][0]["name"]
    assert name == f"{server}__dns_records_create"
    described = json.loads(text_of(client.call("tool_describe", {"name": name})["result"]))
    assert "zone_id" in described["tools"][0]["inputSchema"]["properties"]
    record = {"zone_id": "z1", "type": "A", "name": "www.example.com", "content": "192.0.2.1", "ttl": 300}
    result = client.through(name, record)["result"]
    assert result["structuredContent"]["path"] == "/zones/z1/dns_records"
    assert result["structuredContent"]["body"]["content"] == "192.0.2.1"
