"""The login of a server at an address: sends the token that is kept, and renews it. Nobody is ever asked here.

The SDK's own flow holds a lock while a request is under way, forgets at a restart where and when to renew, and starts a
browser at each refusal; so of it only what it sends and understands is used. `asking.py` is where a person logs in.
"""

import logging
import shlex
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from proxy.config import OAuthConfig, ServerConfig
from proxy.errors import ConfigError
from proxy.masking import learn
from proxy.upstream.failure import ConnectError, LoginNeeded, describe
from proxy.upstream.kept import Kept, LoginFile, Stamp
from proxy.upstream.web import same_origin

log = logging.getLogger(__name__)

RENEWAL = 30.0
"""Seconds that renewing may take."""
LOOK = 2.0
"""Seconds between two looks whether somebody has logged in meanwhile."""


def login_of(config: ServerConfig, environ: Mapping[str, str]) -> "Login | None":
    """The login of a server, be there one or not yet; None where it can have none (see `own_login`)."""
    if config.transport == "stdio" or config.url is None or own_login(config):
        return None
    return Login(config, LoginFile(config, environ))


def own_login(config: ServerConfig) -> str:
    """Where in the configuration the person has said what to send as a login; "" where it is not said."""
    if any(name.lower() == "authorization" for name in config.headers):
        return "`headers`"
    return "`url`" if "@" in urlsplit(config.url or "").netloc else ""


class Store:
    """What the SDK keeps its results in; we keep them all at once in a file of ours."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """None: they are kept elsewhere."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Nothing: they are kept elsewhere."""

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client that was registered by hand, if any."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing: it is kept elsewhere."""


class Login(OAuthClientProvider):
    """Puts the token on each request to the server's own origin.

    Its requests raise LoginNeeded where a person must log in (first, or again), and ConnectError where the login could
    not be renewed just now; nothing was executed then.
    """

    def __init__(self, config: ServerConfig, file: LoginFile) -> None:
        assert config.url is not None
        super().__init__(config.url, OAuthClientMetadata(redirect_uris=None), Store())
        self.context.protocol_version = LATEST_HANDSHAKE_VERSION  # so that `resource` is always sent
        self._key, self._oauth, self._file = config.key, config.oauth, file
        self._home = httpx2.URL(config.url)
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
        if not same_origin(self._home, request.url):
            yield request
            return
        sent = await self._token()
        response = yield _bearing(request, sent)
        if response.status_code == 401 and sent is not None and (fresh := await self._token(refused=sent)) is not None:
            response = yield _bearing(request, fresh)
        if response.status_code == 401 and (self._known or self._trouble or _asks(response)):
            raise LoginNeeded(self._key, self._trouble)

    async def _token(self, refused: str | None = None) -> str | None:
        """A token that is good as far as we know and is not `refused`, renewed if need be; None where there is none."""
        self._look()
        if not self._good(refused) and self.context.can_refresh_token():
            async with self.context.lock, self._file.locked():
                self._look()  # another proxy may have renewed it
                if not self._good(refused) and self.context.can_refresh_token():
                    await self._renew()
        tokens = self.context.current_tokens
        return tokens.access_token if tokens is not None and self._good(refused) else None

    def _good(self, refused: str | None) -> bool:
        tokens = self.context.current_tokens
        return tokens is not None and tokens.access_token != refused and self.context.is_token_valid()

    def _look(self) -> None:
        """Take up what is kept, if it has changed."""
        if (stamp := self._file.stamp()) == self._stamp:
            return
        self._stamp, self._trouble, kept = stamp, "", None
        try:
            kept = self._file.read()
        except ConfigError as error:
            self._trouble = str(error)
        if kept is not None and self._oauth.client_id not in (None, kept.client.client_id):
            kept = None  # of the client before
        self._known = kept is not None
        if kept is None:
            self.context.clear_tokens()
            return
        context = self.context
        context.current_tokens, context.token_expiry_time = kept.tokens, kept.expires_at
        context.client_info = configured_client(self._oauth, kept.metadata) or kept.client
        context.oauth_metadata, context.protected_resource_metadata = kept.metadata, kept.resource
        self._learn()

    def _learn(self) -> None:
        tokens, client = self.context.current_tokens, self.context.client_info
        found = (tokens.access_token, tokens.refresh_token) if tokens is not None else ()
        learn(self._key, [text for text in (*found, client.client_secret if client is not None else None) if text])

    async def _renew(self) -> None:
        """Get new tokens for the old ones, and keep them. Not to be cut off half way, when the old ones are spent.

        Raises:
            ConnectError: it may work another time. (A refusal leaves us without tokens.)
        """
        try:
            with anyio.fail_after(RENEWAL, shield=True):
                async with httpx2.AsyncClient(timeout=RENEWAL) as client:
                    response = await client.send(await self._refresh_token())
        except (httpx2.HTTPError, TimeoutError) as error:
            raise self._unrenewed(describe(error)) from None
        if response.status_code in (400, 401):  # RFC 6749, 5.2: what is kept is no good any more
            log.info("server %r: its login was not renewed (HTTP %d)", self._key, response.status_code)
            self.context.clear_tokens()
            return
        if not await self._handle_refresh_response(response):
            self._stamp = None  # it has forgotten the tokens, which may be good another time
            raise self._unrenewed(f"HTTP {response.status_code}" + " without a token" * response.is_success)
        self._learn()
        if (kept := kept_of(self, self._oauth)) is not None:
            try:
                self._file.write(kept)
            except OSError as error:
                log.warning("server %r: its renewed login could not be kept: %s", self._key, error)

    def _unrenewed(self, why: str) -> ConnectError:
        command = f"narrow-waist login {shlex.quote(self._key)}"
        return ConnectError(f"its login could not be renewed: {why} (if it stays so: {command})")


def kept_of(provider: OAuthClientProvider, oauth: OAuthConfig) -> Kept | None:
    """What is to be kept of a login, without a secret of the configuration; None where there are no tokens."""
    context, client = provider.context, provider.context.client_info
    if context.current_tokens is None or client is None:
        return None
    return Kept(
        context.current_tokens,
        context.token_expiry_time,
        client.model_copy(update={"client_secret": None}) if oauth.client_id is not None else client,
        context.oauth_metadata,
        context.protected_resource_metadata,
    )


def configured_client(oauth: OAuthConfig, metadata: OAuthMetadata | None) -> OAuthClientInformationFull | None:
    """The client that was registered by hand; None where the configuration has none."""
    if oauth.client_id is None:
        return None
    taken = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
    how = "none"
    if oauth.client_secret is not None:
        # Basic is what every server has to take, and what holds where it says nothing (RFC 8414, 2).
        how = "client_secret_basic" if taken is None or "client_secret_basic" in taken else "client_secret_post"
    return OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret,
        token_endpoint_auth_method=how,
        redirect_uris=None,
    )


def _bearing(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["authorization"] = f"Bearer {token}"
    return request


def _asks(response: httpx2.Response) -> bool:
    """Whether a refusal asks for a token (RFC 6750), not for a password."""
    return "bearer" in response.headers.get("www-authenticate", "").lower()
