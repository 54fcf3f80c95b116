"""Snapshot: the last good list of each server on disk, so that nobody ever waits for a server seen before.

One file per (server key, hash of its unexpanded launch config). Files are private, written atomically, versioned;
one that cannot be read, that others can write, or that is for another config, is as if never seen. Several proxies may
share the folder.
"""

import hashlib
import logging
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from proxy.config import ServerConfig
from proxy.private import write_whole
from proxy.upstream.discovery import Found
from proxy.upstream.recall import Answer, sealed, unsealed
from proxy.wire import decode, encode

log = logging.getLogger(__name__)

VERSION = 2
_VECTORS = "vectors-1.bin"


def default_folder(environ: Mapping[str, str]) -> Path:
    """`$NARROW_WAIST_CACHE`, else the platform's cache folder."""
    if explicit := environ.get("NARROW_WAIST_CACHE"):
        return Path(explicit).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "narrow-waist"
    base = environ.get("XDG_CACHE_HOME") or environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "narrow-waist"


@dataclass(frozen=True)
class Entry:
    """What is known of one server from an earlier connection."""

    found: Found
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    modern: bool | None = None
    """The era it spoke, so that the next connection need not probe."""
    instructions: str | None = None
    answer: Answer | None = field(default=None, compare=False)
    """How the tools came, where that is worth knowing."""


class Snapshot:
    """The folder of entries, and the exact token counts beside them."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None keeps nothing."""
        self.folder = folder
        self._told: set[str] = set()
        """Files that others can write, of which that was said."""

    def load(self, config: ServerConfig) -> Entry | None:
        """The entry for exactly this config, or None."""
        data = self._read(self._name(config))
        if data is None or data.get("server") != config.key or data.get("launch") != config.launch_hash:
            return None
        info, modern, capabilities = data.get("info"), data.get("modern"), data.get("capabilities")
        said = data.get("instructions")
        if not isinstance(data.get("tools"), list) or not isinstance(info, dict) or not isinstance(capabilities, dict):
            return None
        found = Found(
            _entries(data, "tools", "name"),
            _entries(data, "resources", "uri"),
            _entries(data, "templates", "uriTemplate"),
            _entries(data, "prompts", "name"),
            cast(dict[str, Any], capabilities),
        )
        return Entry(
            found,
            cast(dict[str, Any], info),
            modern if isinstance(modern, bool) else None,
            said if isinstance(said, str) else None,
            unsealed(data.get("answer"), found.tools),
        )

    def save(self, config: ServerConfig, entry: Entry) -> None:
        """Replace the entry of this config; a full or read-only disk costs a log line."""
        self._write(
            self._name(config),
            {
                "server": config.key,
                "launch": config.launch_hash,
                "info": entry.info,
                "modern": entry.modern,
                "instructions": entry.instructions,
                "capabilities": entry.found.capabilities,
                "tools": entry.found.tools,
                "resources": entry.found.resources,
                "templates": entry.found.templates,
                "prompts": entry.found.prompts,
                "answer": sealed(entry.answer, entry.found.tools) if entry.answer is not None else None,
            },
        )

    def waited(self, config: ServerConfig) -> bool:
        """Whether a start has waited in vain for this config's first list before."""
        data = self._read(self._name(config))
        return data is not None and data.get("launch") == config.launch_hash

    def mark_waited(self, config: ServerConfig) -> None:
        """Note that a start has waited in vain; never in the place of a list."""
        if self._read(self._name(config)) is None:
            self._write(self._name(config), {"server": config.key, "launch": config.launch_hash})

    def load_counts(self) -> dict[str, int]:
        """Exact token counts by text, as far as they were kept."""
        counts = (self._read("counts.json") or {}).get("counts")
        if not isinstance(counts, dict):
            return {}
        return {k: v for k, v in cast(dict[str, Any], counts).items() if isinstance(v, int)}

    def save_counts(self, counts: Mapping[str, int]) -> None:
        """Keep exact token counts."""
        self._write("counts.json", {"counts": counts})

    def load_vectors(self) -> bytes:
        """The packed vectors of the semantic search as they were kept; empty where there are none."""
        try:
            return self._content(_VECTORS)
        except OSError:
            return b""

    def save_vectors(self, packed: bytes) -> None:
        """Keep packed vectors; they say themselves which model made them."""
        self._replace(_VECTORS, packed)

    @staticmethod
    def _name(config: ServerConfig) -> str:
        return (
            hashlib.sha256(f"{config.key}\0{config.launch_hash}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
            + ".json"
        )

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            value: object = decode(self._content(name))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.debug("snapshot %s is not readable and is ignored: %s", name, error)
            return None
        if not isinstance(value, dict) or cast(dict[str, Any], value).get("version") != VERSION:
            return None
        return cast(dict[str, Any], value)

    def _content(self, name: str) -> bytes:
        """What a file holds; raises OSError where there is none, or it may be somebody else's."""
        if self.folder is None:
            raise FileNotFoundError(name)
        path = self.folder / name
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise PermissionError(name)
        with path.open("rb") as file:
            if os.name == "posix":
                found = os.fstat(file.fileno())
                if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    if name not in self._told:
                        self._told.add(name)
                        log.warning("the snapshot %s is ignored: others can write it", self.folder / name)
                    raise PermissionError(name)
            return file.read()

    def _write(self, name: str, data: dict[str, Any]) -> None:
        try:
            content = encode({"version": VERSION, **data})
        except RecursionError as error:
            log.warning("could not keep the snapshot %s: %s", name, error)
            return
        self._replace(name, content)

    def _replace(self, name: str, content: bytes) -> None:
        if self.folder is None:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.folder / name, content)
        except OSError as error:
            log.warning("could not keep the snapshot %s: %s", self.folder / name, error)


def _entries(data: Mapping[str, Any], name: str, key: str) -> list[dict[str, Any]]:
    raw = data.get(name)
    return [
        cast(dict[str, Any], entry)
        for entry in (cast(list[object], raw) if isinstance(raw, list) else [])
        if isinstance(entry, dict) and isinstance(cast(dict[str, Any], entry).get(key), str)
    ]
