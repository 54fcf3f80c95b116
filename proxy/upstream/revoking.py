"""Has an authorization server forget the tokens of a login that ends (RFC 7009)."""

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import OAuthClientMetadata

from proxy.config import ServerConfig
from proxy.upstream.authority import AuthorityError, Provider, ask, authority_client, fits
from proxy.upstream.failure import ConnectError
from proxy.upstream.kept import Kept

PATIENCE = 10.0
"""Seconds that it may take, all tokens together."""


async def revoke(config: ServerConfig, kept: Kept) -> str:
    """Revoke the tokens of a login; "" where that is done, else why not. Never raises for what a server does."""
    endpoint = kept.metadata.revocation_endpoint if kept.metadata is not None else None
    if endpoint is None:
        return "it has no way to do that"
    provider = Provider(config, OAuthClientMetadata(redirect_uris=None))
    context = provider.context
    context.oauth_metadata, context.current_tokens, context.client_info = kept.metadata, kept.tokens, kept.client
    try:
        if fits(kept, config.oauth):
            provider.settle()  # its secret is in the configuration
        with anyio.fail_after(PATIENCE):
            async with authority_client() as client:
                return await _revoked(provider, client, str(endpoint), kept)
    except TimeoutError:
        return f"no answer within {PATIENCE:g} s"
    except (AuthorityError, ConnectError, OAuthFlowError) as error:
        return provider.told(error)


async def _revoked(provider: Provider, client: httpx2.AsyncClient, endpoint: str, kept: Kept) -> str:
    # The one for renewal first: with it a server lets all go that came of it.
    tokens = (("refresh_token", kept.tokens.refresh_token), ("access_token", kept.tokens.access_token))
    why: list[str] = []
    for kind, token in tokens:
        if token is not None:
            fields = {"token": token, "token_type_hint": kind, "client_id": kept.client.client_id}
            fields, headers = provider.context.prepare_token_auth(fields, {})
            response = await ask(client, httpx2.Request("POST", endpoint, data=fields, headers=headers), provider.home)
            if not response.is_success:
                why.append(f"HTTP {response.status_code} for the {kind.replace('_', ' ')}")
    return ", ".join(why)
