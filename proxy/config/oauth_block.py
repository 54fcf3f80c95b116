"""A server's `oauth:` block, for the few who have to set something for its login; and what other clients have there."""

import re
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from proxy.config.document import Node, present
from proxy.config.fields import Reader
from proxy.config.settings import Grant, OAuthConfig

OAUTH_KEYS = ("scopes", "client_id", "client_secret", "callback_port", "grant", "issuer")
SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""One scope (RFC 6749, 3.3)."""
FOREIGN_BLOCKS = ("oauth", "auth")
"""Where other clients keep such things; Cursor in `auth`."""

_GRANTS: Mapping[str, str] = {"authorization_code": "authorization_code", "client_credentials": "client_credentials"}
_SPELLINGS = {
    "clientId": "client_id", "CLIENT_ID": "client_id",
    "clientSecret": "client_secret", "CLIENT_SECRET": "client_secret",
    "scope": "scopes", "callbackPort": "callback_port", "redirect_port": "callback_port",
}  # fmt: skip
"""Words of Claude Code, Cursor, Gemini CLI, Hermes, opencode and VS Code."""


def oauth(node: Node | None, read: Reader) -> OAuthConfig:
    """The block as it was read; what is wrong in it is told to `read`."""
    if not present(node):
        return OAuthConfig()
    return _read(read.block(node, OAUTH_KEYS), read)


def foreign_oauth(block: Mapping[str, Node], read: Reader, warnings: list[str]) -> OAuthConfig:
    """What maps clearly of a block that was written for another client; the rest is told, in a warning for each block.

    What cannot be used there never stops the server: until now it has meant nothing here.
    """
    found = OAuthConfig()
    for name in FOREIGN_BLOCKS:
        node = block.get(name)
        if not present(node) or not node.is_map:
            continue
        ours: dict[str, Node] = {}
        ignored: list[str] = []
        for word, child in node.items.items():
            key = _SPELLINGS.get(word, word)
            if key in OAUTH_KEYS and key not in ours:
                ours[key] = child
            elif not (word == "enabled" and child.value is True):
                ignored.append(word)
        wrong: list[str] = []
        trial = Reader(read.file, read.environ, wrong.append, wrong.append)
        read_here = _read(ours, trial)
        if wrong:
            warnings.append(f"{read.where(node)}: nothing of it is used: {wrong[0].removeprefix(f'{read.file}: ')}")
            continue
        read.secrets |= trial.secrets
        if found == OAuthConfig():
            found = read_here
        if ignored:
            used = f"only {', '.join(ours)} of it mean something here, not" if ours else "means nothing here:"
            warnings.append(f"{read.where(node)}: {used} {', '.join(map(repr, ignored))}")
    return found


def _read(items: Mapping[str, Node], read: Reader) -> OAuthConfig:
    """The values under our names, all of them optional."""
    scopes = tuple(word for text in read.texts(items.get("scopes")) or () for word in text.split())
    if not all(map(SCOPE.fullmatch, scopes)):
        read.complain(items["scopes"], "expected names of scopes, of ASCII without quotes and backslashes")
    client_id, secret = read.text(items.get("client_id")), read.text(items.get("client_secret"))
    if secret and not client_id:
        read.complain(items["client_secret"], "means nothing without `client_id`")
    port = int(read.number(items.get("callback_port"), 0, 1, 65535))
    grant = cast(Grant, read.choice(items.get("grant"), _GRANTS, "authorization_code"))
    if grant == "client_credentials" and not (client_id and secret):
        read.complain(items["grant"], "needs `client_id` and `client_secret`")
    issuer = read.text(items.get("issuer"))
    if issuer and not _is_address(issuer):
        read.complain(items["issuer"], "expected the address of an authorization server, https://…")
    return OAuthConfig(scopes, client_id or None, secret or None, port, grant, issuer or None)


def _is_address(text: str) -> bool:
    try:
        found = urlsplit(text)
    except ValueError:
        return False
    return found.scheme in ("https", "http") and bool(found.netloc) and not (found.query or found.fragment)
