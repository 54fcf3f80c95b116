"""The audit: one JSON line a call, in a private file that rotates by size.

Several proxies may write one file: each line is one append, and whoever finds the file too large moves it aside,
one at a time. A disk that is full costs the line and a warning, never the call.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

from proxy.caller import Caller
from proxy.config import AuditConfig, others_may
from proxy.masking import mask
from proxy.tool import Tool
from proxy.wire import encode

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks whether another process has moved the file aside."""
STALE = 10.0
"""Seconds after which whoever was rotating has died."""


class Ended(NamedTuple):
    """A call that is over."""

    at: float
    """`time.time()` of its end."""
    name: str
    """Of the tool, as the caller wrote it."""
    tool: Tool | None
    """None where there is none of that name, for this caller."""
    arguments: Mapping[str, Any] | None
    """Those that were sent; None where it did not come to that."""
    caller: Caller
    result: Mapping[str, Any] | None
    outcome: str
    seconds: float
    tries: int
    """How often it was sent."""


class Audit:
    """Writes the lines."""

    def __init__(self, config: AuditConfig, secrets: Iterable[str]) -> None:
        """`secrets` are masked wherever they stand in a line."""
        self.config = config
        self._secrets = tuple(secrets)
        self._wanted = tuple(secret.encode("utf-8", "surrogatepass") for secret in self._secrets)
        self._fd: int | None = None
        self._looked = 0.0
        self._size = 0
        """Of the file: as it was looked up, and what this process has written since."""
        self._ended = False
        self._failed = self._torn = False
        """Whether the last write failed, and whether it left half a line."""
        self._second, self._written = -1, ""
        """The second of the last line, and how it is written."""

    def write(self, *entries: Mapping[str, Any]) -> None:
        """Append their lines, all in one write; the time comes first in each: its own (`time.time()`), else now's."""
        lines = b"".join(map(self._line, map(self._stamped, entries)))
        try:
            self._append(self._open(), b"\n" + lines if self._torn else lines)
            self._failed = False
        except OSError as error:
            self.close()
            if not self._failed:
                log.warning("the audit %s cannot be written: %s", self.config.file, error.strerror or error)
            self._failed = True
        if self._ended:
            self.close()

    def _append(self, fd: int, data: bytes) -> None:
        """Write all of it; a disk that takes only the half of it says why when it is asked for the rest."""
        while data:
            written = os.write(fd, data)
            self._size += written
            self._torn = not data[:written].endswith(b"\n")
            data = data[written:]

    def _stamped(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entry with its time as ISO 8601 with milliseconds."""
        fields = {"time": 0.0, **entry}
        at: float = fields["time"] or time.time()
        if int(at) != self._second:
            self._second = int(at)
            self._written = datetime.fromtimestamp(self._second, UTC).isoformat().removesuffix("+00:00")
        fields["time"] = f"{self._written}.{int(at % 1 * 1000):03}+00:00"
        return fields

    def _line(self, fields: Mapping[str, Any]) -> bytes:
        try:
            line = encode(fields) + b"\n"
            # Secrets are known in their spelling in JSON too; only where one stands is the entry gone through.
            for secret in self._wanted:
                if secret in line:
                    return encode(cast(dict[str, Any], _masked(fields, self._secrets))) + b"\n"
        except RecursionError:  # a call is written down whatever it was called with
            return self._line({**fields, "arguments": "nested too deeply"})
        return line

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def end(self) -> None:
        """Another one writes from now on: the file is open no longer than the line of a call that ends later needs."""
        self._ended = True
        self.close()

    def _open(self) -> int:
        now = time.monotonic()
        if self._fd is not None and now - self._looked > LOOK_EVERY:
            self._looked = now
            with contextlib.suppress(OSError):
                found = os.fstat(self._fd)
                if os.stat(self.config.file).st_ino == found.st_ino:
                    self._size = found.st_size
                    return self._rotated(self._fd)
            self.close()
        if self._fd is None:
            self.config.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._rotated(self._opened() if self._fd is None else self._fd)

    def _opened(self) -> int:
        self._fd = os.open(self.config.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._mend(self._fd)
        self._size = os.fstat(self._fd).st_size
        return self._fd

    def _mend(self, fd: int) -> None:
        """A file that others can read (made by another program, or copied) is made private, and that is told."""
        if not others_may(fd):
            return
        try:
            os.fchmod(fd, 0o600)
            log.warning("the audit %s could be read by other users; now it cannot", self.config.file)
        except OSError as error:
            log.warning("other users can read the audit %s, and that cannot be changed: %s", self.config.file, error)

    def _rotated(self, fd: int) -> int:
        """The descriptor to write to: of a new file where this one is full."""
        if self._size < self.config.max_bytes:
            return fd
        file, marker = self.config.file, f"{self.config.file}.rotating"
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:  # another process is at it, or died at it; this line still goes to the full file
            with contextlib.suppress(OSError):
                if time.time() - os.stat(marker).st_mtime > STALE:
                    os.unlink(marker)
            return fd
        try:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(file).st_ino == os.fstat(fd).st_ino:  # else another process was first
                    _shift(file, self.config.keep)
        finally:
            os.unlink(marker)
        os.close(fd)
        return self._opened()


def _shift(file: Path, keep: int) -> None:
    """audit.jsonl -> audit.jsonl.1 -> ... ; the oldest goes."""
    numbered = [file, *(file.with_name(f"{file.name}.{n}") for n in range(1, keep + 1))]
    for older, newer in zip(reversed(numbered), reversed(numbered[:-1]), strict=False):
        with contextlib.suppress(FileNotFoundError):
            os.replace(newer, older)
    if not keep:
        file.unlink(missing_ok=True)


def _masked(value: object, secrets: tuple[str, ...]) -> object:
    """`value` with every secret in its texts masked, before JSON escapes could hide one."""
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value)
        return {mask(str(key), secrets): _masked(each, secrets) for key, each in fields.items()}
    if isinstance(value, list | tuple):
        return [_masked(each, secrets) for each in cast(list[object], value)]
    return value


def read_entries(config: AuditConfig) -> Iterator[dict[str, Any]]:
    """All entries that are kept, the oldest first; a line that is none is left out."""
    files = [config.file.with_name(f"{config.file.name}.{n}") for n in range(config.keep, 0, -1)]
    for file in (*files, config.file):
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    with contextlib.suppress(ValueError):
                        entry: object = json.loads(line)
                        if isinstance(entry, dict):
                            yield cast(dict[str, Any], entry)
        except FileNotFoundError:
            continue
