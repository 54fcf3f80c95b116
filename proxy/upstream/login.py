"""The login of a server at an address: sends the token that is kept, and renews it. Nobody is ever asked here.

The SDK's own flow holds a lock while a request is under way, forgets at a restart where and when to renew, and starts a
browser at each refusal; so of it only what it sends and understands is used. `asking.py` is where a person logs in.
"""

import logging
import shlex
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthTokenError
from mcp.shared.auth import OAuthClientMetadata

from proxy.config import ServerConfig
from proxy.errors import ConfigError
from proxy.masking import learn
from proxy.upstream.authority import (
    AuthorityError,
    Provider,
    ask,
    asks_for_token,
    authority_client,
    configured_client,
    fits,
    kept_of,
    lacking,
)
from proxy.upstream.failure import ConnectError, LoginNeeded, ScopeNeeded, login_command
from proxy.upstream.kept import Kept, LoginFile, Stamp
from proxy.upstream.web import same_origin, shorten_body

log = logging.getLogger(__name__)

RENEWAL = 30.0
"""Seconds that renewing may take, all its requests together."""
LOOK = 2.0
"""Seconds between two looks whether somebody has logged in meanwhile."""


def own_login(config: ServerConfig) -> str:
    """Where in the configuration the person has said what to send as a login; "" where it is not said."""
    if any(name.lower() == "authorization" for name in config.headers):
        return "`headers`"
    return "`url`" if "@" in urlsplit(config.url or "").netloc else ""


class Login(Provider):
    """Puts the token on each request to the server's own origin.

    Its requests raise LoginNeeded where a person must log in (first, or again), ScopeNeeded where the login does not
    reach as far as one request, and ConnectError where it could not be renewed just now; nothing was executed then.
    """

    def __init__(self, config: ServerConfig, file: LoginFile) -> None:
        super().__init__(config, OAuthClientMetadata(redirect_uris=None))
        self.key, self._file = config.key, file
        self._stamp: Stamp | None = None
        """Of the file as it was when it was read."""
        self._noticed: Stamp | None = None
        """Of the file whose change has woken somebody, who may have failed before reading it."""
        self._known = False
        """Whether there is a login, good or not."""
        self._trouble = ""

    async def awaited(self, wake: anyio.Event) -> None:
        """Wait until `wake` is set, or somebody has logged in."""
        while not wake.is_set() and self._file.stamp() in (self._stamp, self._noticed):
            with anyio.move_on_after(LOOK):
                await wake.wait()
        self._noticed = self._file.stamp()

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if not same_origin(self.home, request.url):
            yield request
            return
        sent = await self._token()
        response = yield _bearing(request, sent)
        if response.status_code == 401:
            shorten_body(response)  # it is read before the request goes again
            if (fresh := await self._again(response, sent)) is not None:
                response = yield _bearing(request, fresh)
        if (error := self._refused(response)) is not None:
            raise error
        if (scopes := lacking(response)) is not None:
            raise self._too_narrow(scopes)

    async def _again(self, refusal: httpx2.Response, sent: str | None) -> str | None:
        """A token to try in the place of the one that was `sent`."""
        return await self._token(refused=sent) if sent is not None else None

    def _refused(self, response: httpx2.Response) -> ConnectError | None:
        """The error that a response is, where it refuses the login as a whole."""
        if response.status_code == 401 and (self._known or self._trouble or asks_for_token(response)):
            return LoginNeeded(self.key, self._trouble)
        return None

    def _too_narrow(self, scopes: tuple[str, ...]) -> ScopeNeeded:
        more = f" --scope {shlex.quote(' '.join(scopes))}" if scopes else ""
        return ScopeNeeded(scopes, f"{login_command(self.key)}{more}")

    async def _token(self, refused: str | None = None, refusal: httpx2.Response | None = None) -> str | None:
        """A token that is good as far as we know and is not `refused`, renewed if need be; None where there is none.

        `refusal`: of the server, where there was one.
        """
        self._look()
        if not self._good(refused) and self._renewable(refusal):
            async with self.context.lock, self._file.locked():
                self._look()  # another proxy may have renewed it
                if not self._good(refused) and self._renewable(refusal):
                    await self._renew(refusal)
        tokens = self.context.current_tokens
        return tokens.access_token if tokens is not None and self._good(refused) else None

    def _good(self, refused: str | None) -> bool:
        tokens = self.context.current_tokens
        return tokens is not None and tokens.access_token != refused and self.context.is_token_valid()

    def _renewable(self, refusal: httpx2.Response | None) -> bool:
        return self.context.can_refresh_token()

    def _look(self) -> None:
        """Take up what is kept, if it has changed."""
        if (stamp := self._file.stamp()) == self._stamp:
            return
        self._stamp, self._trouble, kept = stamp, "", None
        try:
            kept = self._file.read()
        except ConfigError as error:
            self._trouble = str(error)
        if kept is not None and not fits(kept, self.oauth):
            kept, self._trouble = None, "the one that is kept was made otherwise than `oauth` says now"
        self._known = kept is not None
        if kept is None:
            self.context.clear_tokens()
        else:
            self._take(kept)

    def _take(self, kept: Kept) -> None:
        context = self.context
        context.current_tokens, context.token_expiry_time = kept.tokens, kept.expires_at
        context.client_info = configured_client(self.oauth, kept.metadata) or kept.client
        context.oauth_metadata, context.protected_resource_metadata = kept.metadata, kept.resource
        self._learn()

    def _learn(self) -> None:
        tokens, client = self.context.current_tokens, self.context.client_info
        found = (tokens.access_token, tokens.refresh_token) if tokens is not None else ()
        learn(self.key, [text for text in (*found, client.client_secret if client is not None else None) if text])

    async def _renew(self, refusal: httpx2.Response | None) -> None:
        """Get new tokens for the old ones, and keep them. Not to be cut off half way, when the old ones are spent.

        Raises:
            ConnectError: it may work another time. (A refusal leaves us without tokens.)
        """
        try:
            with anyio.fail_after(RENEWAL, shield=True):
                async with authority_client() as client:
                    response = await ask(client, await self._refresh_token(), self.home)
        except (AuthorityError, TimeoutError) as error:
            raise self._unrenewed(str(error) or f"not within {RENEWAL:g} s") from None
        if response.status_code in (400, 401):  # RFC 6749, 5.2: what is kept is no good any more
            log.info("server %r: its login was not renewed (HTTP %d)", self.key, response.status_code)
            self.context.clear_tokens()
            return
        try:
            renewed = await self._handle_refresh_response(response)
        except OAuthTokenError:
            renewed = False
        if not renewed:
            self._stamp = None  # it has forgotten the tokens, which may be good another time
            raise self._unrenewed(f"HTTP {response.status_code}" + " without a token" * response.is_success)
        self._learn()
        if (kept := kept_of(self)) is not None:
            self._keep(kept)

    def _keep(self, kept: Kept) -> None:
        try:
            self._file.write(kept)
        except OSError as error:
            log.warning("server %r: its renewed login could not be kept: %s", self.key, error)

    def _unrenewed(self, why: str) -> ConnectError:
        return ConnectError(f"its login could not be renewed: {why} (if it stays so: {login_command(self.key)})")


def _bearing(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["authorization"] = f"Bearer {token}"
    return request
