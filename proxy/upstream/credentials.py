"""Logins that need nobody: client credentials of the configuration, good for a token whenever one is wanted.

The MCP extension io.modelcontextprotocol/oauth-client-credentials. The secret goes to the `issuer` that is configured,
or to an authorization server on the host of the server itself: whom else a server may name nobody has approved.
"""

from collections.abc import Mapping

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientMetadata
from pydantic import ValidationError

from proxy.config import ServerConfig
from proxy.upstream.authority import (
    MACHINE,
    AuthorityError,
    Provider,
    ask,
    authority_client,
    driven,
    kept_of,
    odd_answers,
)
from proxy.upstream.failure import ConnectError, ScopeNeeded
from proxy.upstream.kept import LoginFile
from proxy.upstream.login import RENEWAL, Login, own_login


def login_of(config: ServerConfig, environ: Mapping[str, str]) -> Login | None:
    """The login of a server, be there one or not yet; None where it can have none (see `own_login`)."""
    if config.transport == "stdio" or config.url is None or own_login(config):
        return None
    kind = Credentials if config.oauth.grant == MACHINE else Login
    return kind(config, LoginFile(config, environ))


class Credentials(Login):
    """Puts a token on each request as `Login` does, and gets one by itself; its requests raise ConnectError."""

    def __init__(self, config: ServerConfig, file: LoginFile) -> None:
        super().__init__(config, file)
        self._config = config

    def _renewable(self, refusal: httpx2.Response | None) -> bool:
        return refusal is not None or self.context.oauth_metadata is not None

    async def _again(self, refusal: httpx2.Response, sent: str | None) -> str | None:
        return await self._token(refused=sent, refusal=refusal)

    def _refused(self, response: httpx2.Response) -> ConnectError | None:
        if response.status_code != 401:
            return None
        return self._failed("the server refuses the token that was just made for it (HTTP 401)")

    def _too_narrow(self, scopes: tuple[str, ...]) -> ScopeNeeded:
        return ScopeNeeded(scopes, f"set `oauth.scopes` of server {self.key!r} in the configuration")

    async def _renew(self, refusal: httpx2.Response | None) -> None:
        provider = _Machine(self._config)
        try:
            with anyio.fail_after(RENEWAL, shield=True):
                if refusal is not None:
                    await driven(provider, refusal)
                else:
                    await provider.repeat(self.context)
        except TimeoutError:
            raise self._failed(f"no token within {RENEWAL:g} s", permanent=False) from None
        except AuthorityError as error:
            raise self._failed(provider.told(error), permanent=not error.passing) from None
        except (OAuthFlowError, ValidationError) as error:
            raise self._failed(provider.told(error)) from None
        kept = kept_of(provider)
        assert kept is not None
        self._take(kept)
        self._keep(kept)

    def _failed(self, why: str, *, permanent: bool = True) -> ConnectError:
        return ConnectError(f"its client credentials (`oauth`) do not work: {why}", permanent=permanent)


class _Machine(Provider):
    """The SDK's flow, whose last step asks for a token at once."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config, OAuthClientMetadata(redirect_uris=None, grant_types=[MACHINE]))

    async def repeat(self, before: OAuthContext) -> None:
        """Get a token where the one before came from; raises what `driven` raises."""
        context = self.context
        context.oauth_metadata = before.oauth_metadata
        context.protected_resource_metadata = before.protected_resource_metadata
        context.client_metadata.scope = before.current_tokens.scope if before.current_tokens is not None else None
        async with authority_client() as client:
            response = await ask(client, await self._perform_authorization(), self.home)
        with odd_answers():
            await self._handle_token_response(response)

    async def _perform_authorization(self) -> httpx2.Request:
        self.settle()
        address = httpx2.URL(self._get_token_endpoint())
        if self.oauth.issuer is None and address.host != self.home.host:
            metadata = self.context.oauth_metadata
            where = str(metadata.issuer) if metadata is not None else address.host
            raise AuthorityError(f"the server wants them sent to {where}; if that is right, set it as `oauth.issuer`")
        scope = " ".join(self.oauth.scopes) or self.context.client_metadata.scope
        fields = {"grant_type": MACHINE, "resource": self.context.get_resource_url()}
        fields |= {"scope": scope} if scope else {}
        fields, headers = self.context.prepare_token_auth(fields, {})
        return httpx2.Request("POST", address, data=fields, headers=headers)
