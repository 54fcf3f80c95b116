"""Access: who an HTTP caller is, by their bearer token, and what they may see, by the token and the URL.

`/mcp/PROFILE` (and `/sse/PROFILE`) narrows a caller to a profile; a token can be bound to profiles too. Both must
agree: a profile that the token does not open is answered as a page that does not exist.
"""

import hmac
from collections.abc import Callable, Collection
from dataclasses import dataclass

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from proxy.caller import Access, Scope
from proxy.guard.tokens import TokenFile

ENDPOINTS = ("/mcp", "/sse")


@dataclass(frozen=True)
class Holder:
    """A caller who may come in."""

    name: str | None = None
    """The token's name; None for the one token that the daemon was started with, and where none is needed."""
    profiles: tuple[str, ...] = ()
    """The profiles that the token opens; () all."""
    shown: bool = False
    """Whether a token was shown at all."""


@dataclass(frozen=True)
class Way:
    """Where a request goes."""

    path: str
    root: str = ""
    """What stands before the path in addresses that are given to the client."""
    access: Access | None = None
    """None where nothing is guarded."""

    @property
    def user(self) -> AuthenticatedUser | None:
        """Whose sessions the SDK takes the caller's to be: another caller cannot use them."""
        if self.access is None:
            return None
        owner = f"{self.access.name or ''}|{'+'.join(self.access.scope)}"
        return AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[]))


class Doorkeeper:
    """Knows the tokens and the profiles."""

    def __init__(
        self,
        token: str | None,
        tokens: TokenFile | None = None,
        profiles: Callable[[], Collection[str]] = tuple,
        narrowed: Callable[..., Scope] = lambda *_: (),
    ) -> None:
        """`token`: the one that the daemon was started with.

        `profiles`: those that are configured now; `narrowed`: the scope of a caller with these.
        """
        self._token = token.encode() if token else None
        self._tokens = tokens if tokens is not None and tokens.exists else None
        self._profiles, self._narrowed = profiles, narrowed

    def holder(self, authorization: bytes) -> Holder | None:
        """Who has sent this header; None: nobody who may come in."""
        if self._token is None and self._tokens is None:
            return Holder()
        scheme, _, given = authorization.partition(b" ")
        given = given.strip()
        if scheme.lower() != b"bearer" or not given:
            return None
        if self._token is not None and hmac.compare_digest(given, self._token):
            return Holder(shown=True)
        if self._tokens is not None and (found := self._tokens.find(given)) is not None:
            return Holder(found.name, found.profiles, shown=True)
        return None

    def way(self, path: str, holder: Holder) -> Way | None:
        """Where a request of that path goes; None: nowhere."""
        profiles = self._profiles()
        if not profiles and self._tokens is None:
            return Way(path)
        for endpoint in ENDPOINTS:
            profile, slash, rest = path.removeprefix(endpoint + "/").partition("/")
            if not path.startswith(endpoint + "/") or not profile:
                continue
            if slash and not (endpoint == "/sse" and rest == "messages/"):
                return None
            if profile not in profiles or (holder.profiles and profile not in holder.profiles):
                return None
            root = f"/sse/{profile}" if endpoint == "/sse" else ""
            return Way("/messages/" if slash else endpoint, root, Access(self._narrowed(profile), holder.name))
        return Way(path, "", Access(self._narrowed(*holder.profiles), holder.name))
