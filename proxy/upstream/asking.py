"""A person logs in to a server: the SDK's flow, whose browser comes back to a port of 127.0.0.1.

Only the command `login` does this; whatever serves uses what is kept of it (`login.py`).
"""

import asyncio
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, ValidationError

from proxy.config import OAuthConfig, ServerConfig
from proxy.errors import NarrowWaistError
from proxy.masking import mask, secret_parts
from proxy.text import one_line, shorten
from proxy.upstream.failure import describe
from proxy.upstream.kept import Kept
from proxy.upstream.login import Store, configured_client, kept_of
from proxy.upstream.session import CLIENT_INFO
from proxy.upstream.web import answered, http_client, misled
from proxy.wire import decode, encode_request

PATIENCE = 300.0
"""Seconds that a person has by default."""
ANSWER = 30.0
"""Seconds that a server may be silent."""
_HEAD = 16 * 1024
_PATH = "/callback"

Show = Callable[[str], Awaitable[None]]
"""Shows a person the address to open."""


class LoginError(NarrowWaistError):
    """Raised where a login did not come about; says why, and what to do. Holds no secret."""


async def log_in(config: ServerConfig, show: Show, patience: float = PATIENCE) -> Kept:
    """Have a person log in to a server, and return what is to be kept of it.

    `patience`: seconds that the person has.

    Raises:
        LoginError: no login came about.
    """
    assert config.url is not None
    async with _way_back(config.oauth.callback_port, patience) as back:
        asking = _Asking(config, back, show)
        try:
            async with http_client(config, asking) as client:
                client.timeout = httpx2.Timeout(ANSWER)
                async with answered(client, _knock(config, client)) as response:
                    status, elsewhere = response.status_code, misled(response)
        except LoginError as error:
            raise LoginError(f"{config.key}: {error}") from None
        except httpx2.HTTPError as error:
            raise LoginError(f"{config.key}: cannot be reached: {asking.told(describe(error))}") from None
        except OAuthRegistrationError as error:
            raise LoginError(
                f"{config.key}: it does not register us by itself ({asking.told(_plain(error))}); register a client "
                "there by hand, and set `oauth: {client_id: ..., callback_port: ...}` of this server"
            ) from None
        except (OAuthFlowError, ValidationError) as error:
            raise LoginError(f"{config.key}: the login failed: {asking.told(_plain(error))}") from None
    if elsewhere is not None:
        raise LoginError(f"{config.key}: {elsewhere}")
    if (kept := kept_of(asking, config.oauth)) is None:
        said = "answered without asking for a login" if status < 400 else f"HTTP {status}, but no request for a login"
        raise LoginError(f"{config.key}: {said}; nothing is kept")
    if status in (401, 403):
        raise LoginError(f"{config.key}: refused the token that was just made for it (HTTP {status}); nothing is kept")
    return kept


def _knock(config: ServerConfig, client: httpx2.AsyncClient) -> httpx2.Request:
    """The request that asks for a login, because it has none."""
    assert config.url is not None
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": LATEST_HANDSHAKE_VERSION}
    if config.transport == "sse":
        return client.build_request("GET", config.url, headers=headers)
    params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
    body = encode_request({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    headers["content-type"] = "application/json"
    return client.build_request("POST", config.url, content=body, headers=headers)


class _Asking(OAuthClientProvider):
    """The SDK's flow, with what the person has configured in the place of what the server says."""

    def __init__(self, config: ServerConfig, back: "_WayBack", show: Show) -> None:
        assert config.url is not None
        ours = OAuthClientMetadata(
            client_name="Narrow Waist",
            redirect_uris=[AnyUrl(back.address)],
            token_endpoint_auth_method="none",
        )
        store = Store(configured_client(config.oauth, None))
        super().__init__(config.url, ours, store, redirect_handler=self._send_away, callback_handler=self._come_back)
        self._oauth: OAuthConfig = config.oauth
        self._back, self._show = back, show
        self._spent: list[str] = []
        """Secrets of this login that are good for one time."""

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                if outgoing is request and self._oauth.scopes:
                    said = response.headers.get("www-authenticate", "")  # the first scope in it is the one that counts
                    response.headers["www-authenticate"] = f'Bearer scope="{" ".join(self._oauth.scopes)}", {said}'
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        metadata = self.context.oauth_metadata
        if (client := configured_client(self._oauth, metadata)) is not None:
            self.context.client_info = client
        places = [metadata.authorization_endpoint, metadata.token_endpoint] if metadata is not None else []
        for address in places or [AnyUrl(self.context.server_url)]:  # without metadata they are at the server itself
            if address.scheme != "https" and address.host not in ("127.0.0.1", "localhost", "[::1]"):
                raise OAuthFlowError(f"{address.scheme}://{address.host} would have the login sent unencrypted")
        code, verifier = await super()._perform_authorization_code_grant()
        self._spent += [code, verifier]
        return code, verifier

    async def _send_away(self, address: str) -> None:
        [state] = parse_qs(urlsplit(address).query)["state"]
        self._back.state = state
        await self._show(address)

    async def _come_back(self) -> AuthorizationCodeResult:
        return await self._back.answer()

    def told(self, text: str) -> str:
        """What may be told of an error."""
        tokens, client = self.context.current_tokens, self.context.client_info
        known = [*self._spent, self._back.state, client.client_secret if client is not None else ""]
        known += [tokens.access_token, tokens.refresh_token] if tokens is not None else []
        return shorten(mask(one_line(text), secret_parts(filter(None, known))), 300)


class _WayBack:
    """Takes the one request with which the browser comes back."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.port = 0
        self.state = ""
        """What must come back with it; "" while nothing is expected."""
        self._result: AuthorizationCodeResult | LoginError | None = None
        self._come = anyio.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PATH}"

    async def answer(self) -> AuthorizationCodeResult:
        """What the browser came back with; raises LoginError where that is a refusal, or nothing in time."""
        with anyio.move_on_after(self._patience):
            await self._come.wait()
        if self._result is None:
            raise LoginError(f"nobody has logged in within {self._patience:g} s; run it again")
        if isinstance(self._result, LoginError):
            raise self._result
        return self._result

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection; whoever does not know the state can do nothing with it."""
        try:
            with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                with anyio.fail_after(ANSWER):
                    head = await reader.readuntil(b"\r\n\r\n")
                    status, text = self._judged(head.decode("latin-1").split(None, 2))
                    body = text.encode()
                    fields = f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                    fields += "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n"
                    writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body)
                    await writer.drain()
        finally:
            writer.close()
            if self._result is not None:
                self._come.set()

    def _judged(self, words: list[str]) -> tuple[str, str]:
        """The status and text to answer; what came is noted where it is the answer to our question."""
        target = urlsplit(words[1] if len(words) > 1 else "")
        if words[:1] != ["GET"] or target.path != _PATH:
            return "404 Not Found", "There is nothing here."
        fields = {name: values[0] for name, values in parse_qs(target.query).items()}
        given = fields.get("state", "")
        if not self.state or not hmac.compare_digest(given.encode(), self.state.encode()):
            return "400 Bad Request", "This is not the login that narrow-waist waits for."
        if self._result is None:
            if "code" in fields:
                self._result = AuthorizationCodeResult(code=fields["code"], state=given, iss=fields.get("iss"))
            else:
                why = (
                    ": ".join(filter(None, (fields.get("error"), fields.get("error_description")))) or "without a word"
                )
                self._result = LoginError(f"the login was refused: {shorten(one_line(why), 200)}")
        if isinstance(self._result, LoginError):
            return "200 OK", "You are not logged in. You can close this page."
        return "200 OK", "That was all: narrow-waist goes on in the terminal. You can close this page."


@asynccontextmanager
async def _way_back(port: int, patience: float) -> AsyncGenerator[_WayBack]:
    back = _WayBack(patience)
    try:
        server = await asyncio.start_server(back.serve, "127.0.0.1", port, limit=_HEAD)
    except OSError as error:
        raise LoginError(f"port {port} of 127.0.0.1 (oauth.callback_port) cannot be used: {error.strerror}") from None
    back.port = server.sockets[0].getsockname()[1]
    try:
        yield back
    finally:
        server.close()  # and no waiting for connections that a browser has opened in advance


def _plain(error: Exception) -> str:
    """An error of the SDK, of whose answers it shows only what is meant to be shown: they may hold a token."""
    text = str(error)
    if "validation error" in text:
        return text.partition("\n")[0]
    head, brace, rest = text.partition("{")
    try:
        answer: dict[str, object] = decode((brace + rest).encode())  # a mapping, as it begins with a brace
    except (ValueError, RecursionError):
        return text
    return head + ": ".join(str(answer[name]) for name in ("error", "error_description") if name in answer)
