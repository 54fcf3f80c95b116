"""The demo's servers, as real processes: what the demo shows, and what other tests rely on."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from proxy.demo import cloudflare, demo_settings


async def call(module: str, tool: str, arguments: dict[str, Any], **options: Any) -> Any:
    parameters = StdioServerParameters(command=sys.executable, args=["-P", "-m", f"proxy.demo.{module}"])
    with anyio.fail_after(30):
        async with Client(stdio_client(parameters)) as client:
            assert all(t.description and t.annotations for t in (await client.list_tools()).tools)
            return await client.call_tool(tool, arguments, **options)


@pytest.mark.parametrize(
    ("module", "tool", "arguments", "text"),
    [
        ("notes", "create_note", {"title": "a", "text": "b"}, '"id": 3'),
        ("notes", "search_notes", {"query": "OATS"}, "Shopping"),
        (
            "clock",
            "convert_time",
            {"time": "2026-03-01T09:30", "from_timezone": "UTC", "to_timezone": "utc"},
            "2026-03-01T09:30+00:00",
        ),
        ("files", "list_files", {"path": "demo"}, "cloudflare.py"),
        ("calc", "evaluate", {"expression": "(2 + 3) * 4"}, "20"),
    ],
)
async def test_a_small_server_answers(module: str, tool: str, arguments: dict[str, Any], text: str) -> None:
    result = await call(module, tool, arguments)
    assert not result.is_error
    assert text in "\n".join(block.text for block in result.content)


@pytest.mark.parametrize(
    ("module", "tool", "arguments", "text"),
    [
        ("notes", "delete_note", {"id": 9}, "There is no note 9"),
        ("clock", "current_time", {"timezone": "Nowhere/Atlantis"}, "Unknown time zone"),
        ("files", "read_file", {"path": "../LICENSE"}, "outside the served folder"),
        ("calc", "evaluate", {"expression": "__import__('os').getcwd()"}, "are understood"),
        ("calc", "evaluate", {"expression": "1 / 0"}, "division by zero"),
    ],
)
async def test_a_failing_tool_says_why(module: str, tool: str, arguments: dict[str, Any], text: str) -> None:
    result = await call(module, tool, arguments)
    assert result.is_error
    assert text in result.content[0].text


async def test_searching_files_reports_progress_to_the_end() -> None:
    seen: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    await call("files", "search_files", {"text": "def inside"}, progress_callback=on_progress)
    assert seen[-1][0] == seen[-1][1]


def test_every_server_of_the_demo_is_known_to_its_settings() -> None:
    settings = demo_settings()
    assert [s.key for s in settings.servers] == ["calc", "clock", "cloudflare", "files", "notes"]
    assert len({s.launch_hash for s in settings.servers}) == len(settings.servers)


@pytest.fixture(scope="module")
def server() -> cloudflare.Server:
    return cloudflare.Server(cloudflare.load())


def ask(server: cloudflare.Server, method: str, **params: Any) -> dict[str, Any]:
    answer = server.answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert answer is not None
    return answer


def echo(server: cloudflare.Server, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = ask(server, "tools/call", name=tool, arguments=arguments)["result"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


def test_all_pages_together_list_every_tool_once(server: cloudflare.Server) -> None:
    names: list[str] = []
    page = ask(server, "tools/list")["result"]
    while True:
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            break
        page = ask(server, "tools/list", cursor=page["nextCursor"])["result"]
    assert len(names) == len(set(names)) >= 2600


def test_a_call_echoes_the_request_it_would_be(server: cloudflare.Server) -> None:
    assert echo(server, "dns_records_create", zone_id="z/1", name="www", type="A", content="192.0.2.1", ttl=1) == {
        "method": "POST",
        "path": "/zones/z%2F1/dns_records",
        "query": {},
        "body": {"name": "www", "type": "A", "content": "192.0.2.1", "ttl": 1},
    }


def test_a_get_has_its_parameters_in_the_query_under_their_own_names(server: cloudflare.Server) -> None:
    request = echo(server, "dns_records_list", zone_id="z", tag_match="any", per_page=5)
    assert request["query"] == {"tag_match": "any", "per_page": 5}
    assert request["body"] == {}


def test_an_endpoint_of_accounts_and_zones_takes_either_id(server: cloudflare.Server) -> None:
    assert echo(server, "rulesets_list", zone_id="z")["path"] == "/zones/z/rulesets"
    assert echo(server, "rulesets_list", account_id="a")["path"] == "/accounts/a/rulesets"


def test_a_missing_part_of_the_path_is_named(server: cloudflare.Server) -> None:
    result = ask(server, "tools/call", name="dns_records_list", arguments={})["result"]
    assert result["isError"]
    assert "'zone_id'" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("server/discover", {}, -32601),
        ("tools/call", {"name": "no_such_tool"}, -32602),
        ("tools/list", {"cursor": "x"}, -32602),
    ],
)
def test_what_is_unknown_is_a_protocol_error(
    server: cloudflare.Server, method: str, params: dict[str, Any], code: int
) -> None:
    assert ask(server, method, **params)["error"]["code"] == code


@pytest.mark.parametrize(
    ("asked", "answered"), [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("2026-07-28", "2025-11-25")]
)
def test_the_handshake_answers_a_version_it_speaks(server: cloudflare.Server, asked: str, answered: str) -> None:
    assert ask(server, "initialize", protocolVersion=asked)["result"]["protocolVersion"] == answered


def test_notifications_are_not_answered(server: cloudflare.Server) -> None:
    assert server.answer({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None


async def test_the_sdk_client_uses_it_over_stdio() -> None:
    result = await call("cloudflare", "zones_list", {"per_page": 1})
    assert result.structured_content["path"] == "/zones"


@pytest.fixture
def http_url() -> Iterator[str]:
    command = [sys.executable, "-P", "-m", "proxy.demo.cloudflare", "--http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        word, port = process.stdout.readline().split()
        assert word == "PORT"
        yield f"http://127.0.0.1:{port}/mcp"
        process.terminate()


async def test_the_sdk_client_uses_it_over_http(http_url: str) -> None:
    with anyio.fail_after(30):
        async with Client(http_url) as client:
            assert len((await client.list_tools()).tools) == 500
            result = await client.call_tool("zones_list", {"per_page": 1})
    assert result.structured_content == {"method": "GET", "path": "/zones", "query": {"per_page": 1}, "body": {}}


def test_over_http_a_broken_message_is_a_parse_error_and_a_notification_has_no_answer(http_url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(http_url, b"{", method="POST"), timeout=10) as response:
        assert json.load(response)["error"]["code"] == -32700
    note = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    with urllib.request.urlopen(urllib.request.Request(http_url, note, method="POST"), timeout=10) as response:
        assert (response.status, response.read()) == (202, b"")
