"""The logins that are kept: a private file for each server, which all proxies of a person share.

A file is of one server key and URL together, so that a changed URL never gets another server's token. Files are written
atomically into a folder that only the person can enter; one that others can reach is refused.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ValidationError

from proxy.config import ServerConfig, others_may, state_file
from proxy.errors import ConfigError
from proxy.private import write_whole

if sys.platform != "win32":
    import fcntl

VERSION = 1
LOCKED, LOCK_LOOK = 30.0, 0.05
"""Seconds after which a lock that another proxy holds is passed over, and between two looks at it."""

Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Kept:
    """A login: its tokens, and what renewing them takes."""

    tokens: OAuthToken = field(repr=False)
    expires_at: float | None
    """`time.time()` at which the access token expires; None where the server did not say."""
    client: OAuthClientInformationFull = field(repr=False)
    metadata: OAuthMetadata | None
    """Of the authorization server."""
    resource: ProtectedResourceMetadata | None


class LoginFile:
    """Where the login of one server is kept."""

    def __init__(self, config: ServerConfig, environ: Mapping[str, str]) -> None:
        self._key = config.key
        self._identity = hashlib.sha256(f"{config.key}\0{config.url}".encode("utf-8", "surrogatepass")).hexdigest()
        self.path = state_file("logins", environ) / f"{self._identity[:32]}.json"

    def stamp(self) -> Stamp | None:
        """What changes with the file; None where there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid

    def read(self) -> Kept | None:
        """The login, or None.

        Raises:
            ConfigError: it cannot be read, or others may read or write it. The text shows nothing of what it holds.
        """
        try:
            with self.path.open(encoding="utf-8") as file:
                if others_may(file.fileno()) or _of_another(file.fileno()):
                    raise ConfigError(f"{self.path}: other users can reach it; run: chmod 600 {self.path}")
                value: object = json.load(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise ConfigError(f"{self.path}: is not a login that was kept") from None
        data = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        if (data.get("version"), data.get("identity")) != (VERSION, self._identity):
            raise ConfigError(f"{self.path}: is not a login that was kept for this server")
        expires = data.get("expires_at")
        try:
            return Kept(
                OAuthToken.model_validate(data.get("tokens")),
                float(expires) if isinstance(expires, int | float) else None,
                OAuthClientInformationFull.model_validate(data.get("client")),
                OAuthMetadata.model_validate(data["metadata"]) if data.get("metadata") else None,
                ProtectedResourceMetadata.model_validate(data["resource"]) if data.get("resource") else None,
            )
        except (ValidationError, OverflowError):
            raise ConfigError(f"{self.path}: is not a login that was kept") from None

    def write(self, kept: Kept) -> None:
        """Keep a login in place of the one before; raises OSError."""
        data: dict[str, Any] = {"version": VERSION, "server": self._key, "identity": self._identity}
        data |= {"tokens": _plain(kept.tokens), "expires_at": kept.expires_at, "client": _plain(kept.client)}
        data |= {"metadata": _plain(kept.metadata), "resource": _plain(kept.resource)}
        self._make_folder()
        write_whole(self.path, json.dumps(data, indent=1).encode())

    def remove(self) -> bool:
        """Forget the login; whether there was one. Raises OSError."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Held by one proxy at a time: what renews a token is often good for one time only.

        The file itself is what is locked. It is replaced while it is, so whoever has waited locks the new one, and must
        look at it anew.
        """
        lock = self._opened()
        try:
            with anyio.move_on_after(LOCKED):
                while lock is not None:
                    if not _taken(lock):
                        await anyio.sleep(LOCK_LOOK)
                    elif self._stands(lock):
                        break
                    else:
                        os.close(lock)
                        lock = self._opened()
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def _opened(self) -> int | None:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # there is none any more
                return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _stands(self, lock: int) -> bool:
        """Whether what is locked is still the file."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(lock), os.stat(self.path))
        return False

    def _make_folder(self) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if others_may(folder):
            folder.chmod(0o700)


def _taken(lock: int) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
    return True


def _of_another(file: int) -> bool:
    return os.name == "posix" and os.fstat(file).st_uid not in (os.geteuid(), 0)


def _plain(model: BaseModel | None) -> dict[str, Any] | None:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else None
