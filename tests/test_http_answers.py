"""Answers over HTTP that are JSON, whatever they are wrapped in, and the one connection they all come over."""

import asyncio
import gzip
import json
from contextlib import closing
from typing import Any

import pytest

from proxy.config import ServerConfig
from proxy.upstream.http import HttpClient

ASKED: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}}
SAID: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "größe"}]}}
ESCAPED, PLAIN = json.dumps(SAID).encode(), json.dumps(SAID, ensure_ascii=False).encode()

ANSWERS = {
    "escaped": (ESCAPED, ""),
    "utf-8": (PLAIN, ""),
    "with a byte order mark": (b"\xef\xbb\xbf" + PLAIN, ""),
    "compressed": (gzip.compress(PLAIN), "content-encoding: gzip\r\n"),
    "in pieces": (b"", "transfer-encoding: chunked\r\n"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_an_answer_is_read_whole_however_it_is_wrapped_and_its_connection_is_used_again() -> None:
    waiting = list(ANSWERS.values())
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with closing(writer):
            while waiting:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                content, header = waiting.pop(0)
                if not content:
                    parts = (PLAIN[:9], PLAIN[9:])
                    content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
                else:
                    header += f"content-length: {len(content)}\r\n"
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/json\r\n{header}\r\n".encode() + content)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        config = ServerConfig(key="s", transport="http", url=url)
        async with HttpClient(config, lambda: None, lambda: None) as client:
            for name in ANSWERS:
                async with client.stream("POST", url, json=ASKED) as answer:
                    assert answer.headers["content-type"] == "application/json", name
                    assert json.loads((await answer.aread()).decode()) == SAID, name
                assert answer.is_closed
        assert connections == 1
