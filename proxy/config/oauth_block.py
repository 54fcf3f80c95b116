"""A server's `oauth:` block, for the few who have to set something for its login."""

import re

from proxy.config.document import Node, present
from proxy.config.fields import Reader
from proxy.config.settings import OAuthConfig

OAUTH_KEYS = ("scopes", "client_id", "client_secret", "callback_port")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, 3.3."""


def oauth(node: Node | None, read: Reader) -> OAuthConfig:
    """The block as it was read; what is wrong in it is told to `read`."""
    if not present(node):
        return OAuthConfig()
    items = read.block(node, OAUTH_KEYS)
    scopes = tuple(word for text in read.texts(items.get("scopes")) or () for word in text.split())
    if not all(map(_SCOPE.fullmatch, scopes)):
        read.complain(items["scopes"], "expected names of scopes, of ASCII without quotes and backslashes")
    client_id, secret = read.text(items.get("client_id")), read.text(items.get("client_secret"))
    if secret and not client_id:
        read.complain(items["client_secret"], "means nothing without `client_id`")
    port = int(read.number(items.get("callback_port"), 0, 1, 65535))
    return OAuthConfig(scopes, client_id or None, secret or None, port)
