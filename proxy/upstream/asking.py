"""A person logs in to a server: the SDK's flow, whose browser comes back to a port of 127.0.0.1.

Only the command `login` does this; whatever serves uses what is kept of it (`login.py`).
"""

import asyncio
import hmac
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, Field, ValidationError

from proxy.config import ServerConfig
from proxy.errors import NarrowWaistError
from proxy.text import one_line, shorten
from proxy.upstream.authority import ANSWER, AuthorityError, Provider, driven, kept_of, lacking, refuse_unsafe
from proxy.upstream.kept import Kept
from proxy.upstream.session import CLIENT_INFO
from proxy.upstream.web import answered, http_client, misled
from proxy.wire import encode_request

PATIENCE = 300.0
"""Seconds that a person has by default."""
_HEAD = 16 * 1024
_PATH = "/callback"

Show = Callable[[str], Awaitable[None]]
"""Shows a person the address to open."""


class LoginError(NarrowWaistError):
    """Raised where a login did not come about; says why, and what to do. Holds no secret."""


async def log_in(
    config: ServerConfig,
    show: Show,
    patience: float = PATIENCE,
    *,
    scopes: Sequence[str] = (),
    before: Kept | None = None,
) -> Kept:
    """Have a person log in to a server, and return what is to be kept of it.

    `patience`: seconds that the person has; `scopes`: to ask for beside those that the server or the configuration
    names, and beside those of the login `before`.

    Raises:
        LoginError: no login came about.
    """
    assert config.url is not None
    granted = (before.tokens.scope or "").split() if before is not None else []
    async with _way_back(config.oauth.callback_port, patience) as back:
        asking = _Asking(config, back, show, [*granted, *scopes])
        try:
            async with http_client(config) as client:
                client.timeout = httpx2.Timeout(ANSWER)
                await driven(asking, await _refusal(config, client, asking))
                kept = kept_of(asking)
                assert kept is not None
                async with answered(client, _knock(config, client, kept.tokens.access_token)) as response:
                    if response.status_code in (401, 403):
                        what = f"refused the token that was just made for it (HTTP {response.status_code})"
                        raise LoginError(f"{what}; nothing is kept")
        except LoginError as error:
            again = f"; narrow-waist logout {shlex.quote(config.key)} forgets the scopes of the login before"
            raise LoginError(
                f"{config.key}: {error}{again * (bool(granted) and 'invalid_scope' in str(error))}"
            ) from None
        except httpx2.HTTPError as error:
            raise LoginError(f"{config.key}: cannot be reached: {asking.told(error)}") from None
        except OAuthRegistrationError as error:
            raise LoginError(
                f"{config.key}: it does not register us by itself ({asking.told(error)}); register a client "
                "there by hand, and set `oauth: {client_id: ..., callback_port: ...}` of this server"
            ) from None
        except (AuthorityError, OAuthFlowError, ValidationError) as error:
            raise LoginError(f"{config.key}: the login failed: {asking.told(error)}") from None
    return kept


async def _refusal(config: ServerConfig, client: httpx2.AsyncClient, asking: "_Asking") -> httpx2.Response:
    """What the server answers to whoever has no login, as a refusal that asks for one; raises LoginError."""
    request = _knock(config, client)
    async with answered(client, request) as response:
        status, said = response.status_code, response.headers.get("www-authenticate", "")
        if (elsewhere := misled(response)) is not None:
            raise LoginError(elsewhere)
        asking.unasked = response.is_success
        if not (response.is_success or status == 401 or lacking(response) is not None):
            raise LoginError(f"HTTP {status}, but no request for a login; nothing is kept")
    if config.oauth.scopes:  # the first scope in it is the one that counts
        said = f'Bearer scope="{" ".join(config.oauth.scopes)}", {said}'
    return httpx2.Response(401, headers={"www-authenticate": said.encode("ascii", "replace").decode()}, request=request)


def _knock(config: ServerConfig, client: httpx2.AsyncClient, token: str | None = None) -> httpx2.Request:
    """The request that asks for a login where it has no token."""
    assert config.url is not None
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": LATEST_HANDSHAKE_VERSION}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if config.transport == "sse":
        return client.build_request("GET", config.url, headers=headers)
    params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
    body = encode_request({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    headers["content-type"] = "application/json"
    return client.build_request("POST", config.url, content=body, headers=headers)


class _Ours(OAuthClientMetadata):
    """What we say of ourselves. Whichever scopes the SDK chooses while it runs, `also` are asked for beside them."""

    also: list[str] = Field(default_factory=list, exclude=True)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "scope" and self.also:
            value = union_scopes(value if isinstance(value, str) else None, " ".join(self.also))
        super().__setattr__(name, value)


class _Asking(Provider):
    """The flow in which a person is asked."""

    def __init__(self, config: ServerConfig, back: "_WayBack", show: Show, also: list[str]) -> None:
        ours = _Ours(
            client_name="Narrow Waist",
            redirect_uris=[AnyUrl(back.address)],
            token_endpoint_auth_method="none",
            also=also,
        )
        super().__init__(config, ours, self._send_away, self._come_back)
        self._back, self._show = back, show
        self.unasked = False
        """Whether the server has answered without a login. Some ask for one only when a tool is called."""
        self._spent: list[str] = []
        """Secrets of this login that are good for one time."""

    def _expected_issuer(self) -> str:
        if self.unasked and self.context.protected_resource_metadata is None:
            raise LoginError("answered without asking for a login; nothing is kept")
        return super()._expected_issuer()

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        metadata = self.context.oauth_metadata
        places = [metadata.authorization_endpoint, metadata.token_endpoint] if metadata is not None else []
        for address in places or [self.home]:  # without metadata they are at the server itself
            refuse_unsafe(httpx2.URL(str(address)), self.home)
        code, verifier = await super()._perform_authorization_code_grant()
        self._spent += [code, verifier]
        return code, verifier

    async def _send_away(self, address: str) -> None:
        [state] = parse_qs(urlsplit(address).query)["state"]
        self._back.state = state
        await self._show(address)

    async def _come_back(self) -> AuthorizationCodeResult:
        return await self._back.answer()

    def told(self, error: Exception, *more: str) -> str:
        return super().told(error, *self._spent, self._back.state, *more)


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
