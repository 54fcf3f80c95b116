"""Bearer tokens of the daemon's clients: made and revoked by command, and kept as hashes only.

A token is 256 random bits, so one round of sha256 is as good as any slower hash: there is nothing to guess.
"""

import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from proxy.config import others_may
from proxy.errors import ConfigError
from proxy.private import write_whole

log = logging.getLogger(__name__)

PREFIX = "nw_"
"""What every token starts with, so that scanners of repositories can find one that leaked."""
FILE_NAME = "tokens.json"
VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True)
class Token:
    """What is known of a token; not the token."""

    name: str
    hash: str
    profiles: tuple[str, ...] = ()
    """The profiles that it opens; () all of them."""
    created: str = ""


class TokenFile:
    """The file of tokens, and what it held when it was last looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}
        self.exists = False
        """Whether there is a file; then every client needs a token, also when the last one was revoked."""

    def find(self, given: bytes) -> Token | None:
        """The token that a client has sent, or None."""
        self.look()
        digest = _hash(given)
        found = self._tokens.get(digest)
        return found if found is not None and hmac.compare_digest(found.hash, digest) else None

    def look(self) -> None:
        """Read the file if it has changed. One that cannot be read any more lets nobody in.

        Raises:
            ConfigError: it cannot be read, or can be by others, when it is looked at for the first time.
        """
        first = self._stamp is None
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            if first:
                self._stamp = (0, 0, 0)
            elif self.exists:
                self._tokens = {}
            return
        if stamp == self._stamp:
            return
        self._stamp, self.exists = stamp, True
        try:
            self._tokens = {token.hash: token for token in self.read().values()}
        except ConfigError as error:
            self._tokens = {}
            if first:
                raise
            log.warning("nobody is let in: %s", error)

    def read(self) -> dict[str, Token]:
        """All tokens by name.

        Raises:
            ConfigError: the file cannot be read, is not one, or others may read or write it.
        """
        try:
            with self.path.open(encoding="utf-8") as file:
                if others_may(file.fileno()):
                    raise ConfigError(f"{self.path}: other users can read it; run: chmod 600 {self.path}")
                value: object = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path}: the tokens cannot be read: {error}") from None
        root = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        if root.get("version") != VERSION or not isinstance(root.get("tokens"), list):
            raise ConfigError(f"{self.path}: is not a file of tokens of version {VERSION}")
        found: dict[str, Token] = {}
        for entry in cast(list[Any], root["tokens"]):
            try:
                token = Token(
                    str(entry["name"]), str(entry["hash"]), tuple(map(str, entry["profiles"])), str(entry["created"])
                )
            except (KeyError, TypeError):
                raise ConfigError(f"{self.path}: a token in it is not whole") from None
            found[token.name] = token
        return found

    def create(self, name: str, profiles: tuple[str, ...]) -> str:
        """Make a token and return it; it is shown this once and cannot be found out again.

        Raises:
            ConfigError: there is one of that name, or the name is none.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"a token is named with letters, digits and ._@-, at most 64, not {name!r}")
        tokens = self.read()
        if name in tokens:
            raise ConfigError(f"there is a token {name!r} already; revoke it first")
        token = PREFIX + secrets.token_urlsafe(32)
        tokens[name] = Token(name, _hash(token.encode()), profiles, datetime.now(UTC).isoformat(timespec="seconds"))
        self._write(tokens)
        return token

    def revoke(self, name: str) -> None:
        """Take a token back: a running daemon refuses it from its next request on.

        Raises:
            ConfigError: there is none of that name.
        """
        tokens = self.read()
        if tokens.pop(name, None) is None:
            raise ConfigError(f"there is no token {name!r}; there are: {', '.join(sorted(tokens)) or 'none'}")
        self._write(tokens)

    def _write(self, tokens: Mapping[str, Token]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        entries: list[Mapping[str, Any]] = [asdict(tokens[name]) for name in sorted(tokens)]
        write_whole(self.path, json.dumps({"version": VERSION, "tokens": entries}, indent=1).encode())


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()
