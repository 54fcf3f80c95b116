"""A proxy or certificates that our environment names and that fail are told as such, and not as the server's fault."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import httpx2
import pytest

from proxy.config import ServerConfig
from proxy.errors import NarrowWaistError
from proxy.upstream.failure import ConnectError, describe, single
from proxy.upstream.http import open_http
from proxy.upstream.peer import Peer
from proxy.upstream.sse import open_sse

PATIENCE = 10.0
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def trouble(url: str, transport: Literal["http", "sse"] = "http") -> str:
    """Why a server at `url` cannot be used."""
    peer = Peer("s", lambda method, params: None)
    config = ServerConfig(key="s", transport=transport, url=url)
    with anyio.fail_after(PATIENCE), pytest.raises((NarrowWaistError, ExceptionGroup)) as caught:
        async with open_sse(config, peer) if transport == "sse" else open_http(config, peer, *[lambda: None] * 2):
            await peer.request("initialize", {})
    return str(single(caught.value))


@asynccontextmanager
async def proxy(*says: bytes) -> AsyncGenerator[str]:
    """The address of a proxy that answers whatever is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for text in says:
            await reader.read(1024)
            writer.write(text)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def nobody() -> str:
    """An address of this machine where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize(
    ("variable", "scheme"), [("HTTP_PROXY", "http"), ("https_proxy", "https"), ("ALL_PROXY", "http")]
)
async def test_a_proxy_that_is_down_is_named_with_its_variable_and_without_its_password(
    variable: str, scheme: str, transport: Literal["http", "sse"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"http://me:hunter2@{(address := nobody())}")
    said = await trouble(f"{scheme}://server.invalid/mcp", transport)
    assert f"cannot reach {scheme}://server.invalid: the proxy that {variable} names ({address}) cannot be" in said
    assert said.endswith(f"; start it, correct or unset {variable}, or name server.invalid in NO_PROXY")
    assert "hunter2" not in said and "\n" not in said


async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy(b"HTTP/1.1 407 Login wanted\r\ncontent-length: 0\r\n\r\n") as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        said = await trouble("https://server.invalid/mcp")
    assert f"the proxy that HTTPS_PROXY names ({address}) refuses: 407 Login wanted" in said


async def test_a_proxy_is_not_blamed_for_what_is_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy(b"HTTP/1.1 200 OK\r\n\r\n", b"this is no TLS") as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        assert "HTTPS_PROXY" not in await trouble("https://server.invalid/mcp")


async def test_a_proxy_is_not_blamed_for_a_server_that_goes_round_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{nobody()}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    said = await trouble(f"http://{(address := nobody())}/mcp")
    assert f"cannot reach http://{address}: " in said and "HTTP_PROXY" not in said


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), ("nonsense", "NO_CERTIFICATE")])
async def test_certificates_that_cannot_be_read_are_told_with_their_variable(
    content: str | None, why: str, transport: Literal["http", "sse"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    said = await trouble("http://127.0.0.1:9/mcp", transport)
    assert said.startswith(f"the certificates that SSL_CERT_FILE names ({file}) cannot be read: {why}")
    assert said.endswith("; correct or unset SSL_CERT_FILE")


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_address_without_tls_is_told_as_that(transport: Literal["http", "sse"]) -> None:
    async with proxy(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        said = await trouble(f"https://{address}/mcp", transport)
    assert said.endswith(
        f"cannot reach https://{address}: it does not answer in TLS; is its address http:// and not https://?"
    )


def test_a_certificate_that_is_not_trusted_is_told_with_the_variable_that_names_more() -> None:
    cause = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)")
    cause.verify_message = "self-signed certificate"
    error = httpx2.ConnectError(str(cause))
    error.__cause__ = cause
    said = describe(error)
    assert said == (
        "its certificate is not trusted: self-signed certificate; SSL_CERT_FILE names a file of certificates to trust"
    )


def test_an_error_whose_causes_go_round_in_a_circle_is_described() -> None:
    """An error's own cause that is raised again while it is handled; looking for TLS in it had no end."""
    inner, outer = ConnectError("needs a login"), ConnectError("refused")
    outer.__cause__ = inner
    try:
        try:
            raise outer
        except ConnectError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
    except ConnectError as error:
        assert error.__context__ is outer
        assert describe(error) == "needs a login"
