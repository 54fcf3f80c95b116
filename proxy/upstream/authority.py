"""Authorization servers: what is asked of them, with the SDK's flow, and the bounds of what they may do to us.

Who makes the tokens of a server is named by that server, so an evil one can name anybody. Whatever is asked is
therefore bounded in size and time, goes encrypted or to this machine, and to this machine only for a server that runs
here too. `asking.py` is a person's login, `credentials.py` one that needs nobody, `login.py` sends and renews both.
"""

import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import fields

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthTokenError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from proxy.config import SCOPE, OAuthConfig, ServerConfig
from proxy.errors import NarrowWaistError
from proxy.masking import mask, secret_parts
from proxy.text import one_line, shorten
from proxy.upstream.failure import describe, naming_certificates
from proxy.upstream.kept import Kept
from proxy.upstream.web import origin
from proxy.wire import decode

ANSWER = 30.0
"""Seconds that one whole answer may take."""
MAX_ANSWER = 1024 * 1024
"""Bytes of one answer; real ones have a few thousand."""
LONGEST = 10 * 365 * 86400.0
"""Seconds; a token that is said to last longer is asked about before."""
MACHINE = "client_credentials"
"""The grant that needs no person (RFC 6749, 4.4)."""
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_NAMED = 300
"""Characters of scopes that a line may name; a refusal with more is not believed."""


class AuthorityError(NarrowWaistError):
    """Raised where an authorization server cannot be asked (`passing`: just now), or must not be. Holds no secret."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


def refuse_unsafe(address: httpx2.URL, home: httpx2.URL) -> None:
    """Raises AuthorityError where what is sent to `address` can be read on its way, or where `home`, the server that
    named it, is elsewhere and sends us to a program of this machine.
    """
    if _is_here(address.host):
        if not _is_here(home.host):
            raise AuthorityError(f"{address.host} is this machine, which a server elsewhere has no business to name")
    elif address.scheme != "https":
        raise AuthorityError(f"{address.scheme}://{address.host} would have the login sent unencrypted")


def _is_here(host: str) -> bool:
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_loopback or found.is_unspecified


@naming_certificates()
def authority_client() -> httpx2.AsyncClient:
    """A client for `ask`, without anything that is configured for a server."""
    return httpx2.AsyncClient()


async def ask(client: httpx2.AsyncClient, request: httpx2.Request, home: httpx2.URL) -> httpx2.Response:
    """The whole answer to a request, redirects included, which are not followed.

    Raises:
        AuthorityError: there is none, it is too long or late, or `refuse_unsafe` refuses.
    """
    refuse_unsafe(request.url, home)
    request.headers["accept-encoding"] = "identity"  # what is packed can be a thousand times as long as it seems
    try:
        with anyio.fail_after(ANSWER):
            response = await client.send(request, stream=True, auth=None, follow_redirects=False)
            try:
                content = await _whole(response)
            finally:
                await response.aclose()
    except TimeoutError:
        raise AuthorityError(f"{origin(request)}: no whole answer within {ANSWER:g} s", passing=True) from None
    except httpx2.HTTPError as error:
        raise AuthorityError(f"cannot reach {origin(request)}: {describe(error)}", passing=True) from None
    answer = httpx2.Response(response.status_code, headers=_told(response), content=content, request=request)
    answer.next_request = response.next_request
    return answer


def _told(response: httpx2.Response) -> list[tuple[str, str]]:
    return [(k, v) for k, v in response.headers.multi_items() if k not in ("content-length", "transfer-encoding")]


async def _whole(response: httpx2.Response) -> bytes:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise AuthorityError(f"{origin(response.request)}: packs its answer, which was not asked for")
    found = bytearray()
    async for part in response.aiter_raw():
        found += part
        if len(found) > MAX_ANSWER:
            raise AuthorityError(f"{origin(response.request)}: its answer is longer than {MAX_ANSWER >> 20} MiB")
    return bytes(found)


class _Context(OAuthContext):
    """The SDK's, with lifetimes as servers send them: 0 or less where they mean none, or digits without end."""

    def update_token_expiry(self, token: OAuthToken) -> None:
        if not _VISIBLE.fullmatch(token.access_token):
            raise OAuthTokenError("what came is no bearer token, which is of visible ASCII")
        lasts = token.expires_in
        self.token_expiry_time = time.time() + min(lasts, LONGEST) if lasts is not None and lasts > 0 else None


class _Store:
    """What the SDK keeps its results in; we keep them all at once in a file of ours."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
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


class Provider(OAuthClientProvider):
    """The SDK's flow for one server, with what the person has configured in the place of what the server says."""

    def __init__(
        self,
        config: ServerConfig,
        ours: OAuthClientMetadata,
        send_away: Callable[[str], Awaitable[None]] | None = None,
        come_back: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        assert config.url is not None
        super().__init__(config.url, ours, _Store(configured_client(config.oauth, None)), send_away, come_back)
        self.context = _Context(**{each.name: getattr(self.context, each.name) for each in fields(self.context)})
        self.context.protocol_version = LATEST_HANDSHAKE_VERSION  # so that `resource` is always sent
        self.oauth = config.oauth
        self.home = httpx2.URL(config.url)

    def _select_authorization_server(self, advertised: list[str]) -> str:
        wanted = self.oauth.issuer
        return next((each for each in advertised if wanted is not None and issuers_match(each, wanted)), advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        self.settle()
        return await super()._perform_authorization()

    def settle(self) -> None:
        """Once the authorization server is known: refuse one that is not configured, and be the client that is."""
        metadata = self.context.oauth_metadata
        found, wanted = str(metadata.issuer) if metadata is not None else "", self.oauth.issuer
        if wanted is not None and not issuers_match(found, wanted):
            raise AuthorityError(f"its authorization server is {found or 'unknown'}, and `oauth.issuer` is another")
        if (client := configured_client(self.oauth, metadata)) is not None:
            self.context.client_info = client

    def told(self, error: Exception, *more: str) -> str:
        """What may be told of an error: one line without the secrets that are known, and `more`."""
        tokens, client = self.context.current_tokens, self.context.client_info
        known = [*more, self.oauth.client_secret, client.client_secret if client is not None else None]
        known += [tokens.access_token, tokens.refresh_token] if tokens is not None else []
        return shorten(mask(one_line(_plain(error)), secret_parts(filter(None, known))), 300)


@contextmanager
def odd_answers() -> Generator[None]:
    """Around what the SDK reads: raises AuthorityError for what it expects of no server, such as text that is none."""
    try:
        yield
    except ValidationError:
        raise
    except httpx2.InvalidURL:
        raise AuthorityError("it was sent to an address that is none") from None
    except (ValueError, OverflowError, RecursionError):
        raise AuthorityError("an answer cannot be read") from None


async def driven(provider: Provider, refusal: httpx2.Response) -> None:
    """Run a provider's flow from a server's refusal (a 401) until it has a token; the server itself is sent nothing.

    Raises:
        AuthorityError: an authorization server could not be asked.
        OAuthFlowError, ValidationError: it gave no token; `Provider.told` says what may be told of it.
    """
    request = refusal.request
    flow = provider.async_auth_flow(request)
    try:
        async with authority_client() as client:
            await anext(flow)  # the request, which has been refused
            with odd_answers():
                outgoing = await flow.asend(refusal)
                while outgoing is not request:
                    outgoing = await flow.asend(await ask(client, outgoing, provider.home))
    finally:
        await flow.aclose()


def kept_of(provider: Provider) -> Kept | None:
    """What is to be kept of a login, without a secret of the configuration; None where there are no tokens."""
    context, client = provider.context, provider.context.client_info
    if context.current_tokens is None or client is None:
        return None
    return Kept(
        context.current_tokens,
        context.token_expiry_time,
        client.model_copy(update={"client_secret": None}) if provider.oauth.client_id is not None else client,
        context.oauth_metadata,
        context.protected_resource_metadata,
    )


def fits(kept: Kept, oauth: OAuthConfig) -> bool:
    """Whether a login was made as it is configured now."""
    client, machine = kept.client, oauth.grant == MACHINE
    if oauth.client_id not in (None, client.client_id) or machine != (client.grant_types == [MACHINE]):
        return False
    if machine and client.scope != (" ".join(oauth.scopes) or None):
        return False
    issuer = str(kept.metadata.issuer) if kept.metadata is not None else ""
    return oauth.issuer is None or issuers_match(issuer, oauth.issuer)


def configured_client(oauth: OAuthConfig, metadata: OAuthMetadata | None) -> OAuthClientInformationFull | None:
    """The client that was registered by hand; None where the configuration has none."""
    if oauth.client_id is None:
        return None
    taken = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
    how = "none"
    if oauth.client_secret is not None:
        # Basic is what every server has to take, and what holds where it says nothing (RFC 8414, 2).
        how = "client_secret_basic" if taken is None or "client_secret_basic" in taken else "client_secret_post"
    found = OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret,
        token_endpoint_auth_method=how,
        redirect_uris=None,
    )
    if oauth.grant == MACHINE:
        found.grant_types, found.scope = [MACHINE], " ".join(oauth.scopes) or None
    return found


def asks_for_token(response: httpx2.Response) -> bool:
    """Whether a refusal asks for a token (RFC 6750), not for a password."""
    return "bearer" in response.headers.get("www-authenticate", "").lower()


def lacking(response: httpx2.Response) -> tuple[str, ...] | None:
    """The scopes that a login lacks for one request, () where they are not named; None where it lacks none."""
    if response.status_code != 403 or extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    said = extract_scope_from_www_auth(response) or ""
    scopes = tuple(dict.fromkeys(said.split()))
    return scopes if len(said) <= _NAMED and all(map(SCOPE.fullmatch, scopes)) else ()


def _plain(error: Exception) -> str:
    """An error of the SDK, of whose answers it shows only what is meant to be shown: they may hold a token."""
    text = str(error)
    if "validation error" in text:
        return text.partition("\n")[0]
    head, brace, rest = text.partition("{")
    with suppress(ValueError, RecursionError):
        answer: dict[str, object] = decode((brace + rest).encode())  # a mapping, as it begins with a brace
        return head + ": ".join(str(answer[name]) for name in ("error", "error_description") if name in answer)
    return text
