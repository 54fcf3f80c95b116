"""Whether other users of the machine can read a configuration that holds secrets in so many words."""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from proxy.config.document import Node
from proxy.masking import SHORTEST

_SECRET = re.compile(r"key|token|secret|passw|auth|credential|cookie|session|\bpat\b", re.IGNORECASE)
_PLACE = re.compile(r"(?:file|path|dir|url|uri|host|id|name|type|mode)$", re.IGNORECASE)
"""`KEY_FILE` and the like name places, not secrets."""


def others_may(file: Path | int, rights: int = 0o077) -> bool:
    """Whether group or others have any of `rights` on a file that exists (its path, or the descriptor of an open one).

    Never on systems without such rights.
    """
    try:
        return os.name == "posix" and bool(stat.S_IMODE(os.stat(file).st_mode) & rights)
    except OSError:
        return False


def exposure(path: Path, servers: Mapping[str, Node]) -> str | None:
    """A warning that names where the secrets are; None where there are none, or nobody else can read the file."""
    if not others_may(path, 0o044):
        return None
    found = [f"{key}: {place}" for key, node in servers.items() for place in _literal(node)]
    if not found:
        return None
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"{path}: other users can read it, and it holds secrets ({', '.join(found[:3])}{more}); "
        f"write ${{VARIABLE}} or ${{keyring:NAME}} for them, or run: chmod 600 {path}"
    )


def _literal(server: Node) -> Iterator[str]:
    """The fields of a server whose value is a secret, written out."""
    for block in ("env", "headers", "oauth", "auth"):
        node = server.items.get(block)
        for name, value in node.items.items() if node is not None else ():
            if _SECRET.search(name) and not _PLACE.search(name) and "${" not in value.text:
                if len(value.text.rpartition(" ")[2]) >= SHORTEST:
                    yield f"{block}.{name}"
