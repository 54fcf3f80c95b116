"""What `install` has changed in the programs' files, kept for `uninstall`."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proxy.cli.files import read_text, write_text
from proxy.config import user_file
from proxy.errors import ConfigError
from proxy.hosts.problem import HostFileError


@dataclass(frozen=True)
class Record:
    """What an install changed in one file, kept for the uninstall."""

    backup: str | None
    """The copy of what was there before; None where there was no file."""
    written: str
    """sha256 of what was written: while the file is still that, its old bytes can come back as they were."""
    moved: Mapping[str, str] = field(default_factory=dict[str, str])
    """Server moved behind us -> the backup that holds it."""


def _record_file() -> Path:
    return user_file(os.environ, Path.home()).with_name("installed.json")


def records() -> dict[str, Record]:
    """File -> what was changed in it; a record that cannot be read is as if nothing had been."""
    try:
        data: Any = json.loads(_record_file().read_bytes())
        return {str(k): Record(**v) for k, v in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remember(file: Path, before: str | None, after: str, backup: Path | None, moved: Sequence[str]) -> None:
    """Note that `file` is now `after`, with what was there in `backup`, and which servers have left it."""
    known = records()
    name = str(backup) if backup else None
    old = known.get(str(file))
    if old is not None and before is not None and old.written == fingerprint(before):
        name = old.backup  # installed twice: an uninstall goes back to before the first time
    kept = dict(old.moved) if old is not None else {}
    if backup is not None:
        kept |= dict.fromkeys(moved, str(backup))
    _save({**known, str(file): Record(name, fingerprint(after), kept)})


def forget(file: Path) -> None:
    """What was changed in `file` is undone."""
    known = records()
    if known.pop(str(file), None) is not None:
        _save(known)


def _save(known: Mapping[str, Record]) -> None:
    path = _record_file()
    text = json.dumps({k: asdict(r) for k, r in known.items()}, indent=1) + "\n"
    try:
        write_text(path, text, read_text(path))
    except HostFileError as error:
        raise ConfigError(f"{path}: {error}") from None


def fingerprint(text: str) -> str:
    """What `Record.written` holds of a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
