"""Reload: takes up what changes in the configuration file while the proxy runs.

A file that is broken, empty or gone changes nothing: what was configured before stays, and one line in the log says
why. (Who cuts a file off before writing it anew, and finds the disk full, has not meant to end every server.)
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import anyio
import anyio.to_thread

from proxy.config import GuardConfig, Settings
from proxy.errors import ConfigError
from proxy.masking import learn

log = logging.getLogger(__name__)

POLL = 1.0
"""Seconds between looks at the file, which is read once two looks find the same change: no editor is at it then."""
RESTLESS = 5
"""Looks after which a file that is another one each time is read all the same: some clients keep more in theirs than
servers, and write it every second."""
AT_START = ("allowed_hosts", "session_idle_timeout")
AT_START_GUARD = ("max_sessions", "max_body", "max_connections", "head_timeout", "body_timeout")
"""What the daemon's listening side is built with, of the file's root and of `guard:`."""

PAUSE = 20.0
"""Times as long as a file took to read, in which it is not read again: it may be 10 MB of another client, which change
every few seconds.
"""

Stamp = tuple[int, ...]


class Reload:
    """Watches the file of one proxy."""

    def __init__(
        self, settings: Settings, read: Callable[[], Settings], take: Callable[[Settings], None], *, listens: bool
    ) -> None:
        """`settings` are served now; `read` reads the file anew and `take` serves what it gives; both may raise
        ConfigError. `listens`: whether what a daemon is built with counts.
        """
        self._settings, self._read, self._take, self._listens = settings, read, take, listens
        self._stamp = _stamp(settings.path)
        self._said = ""
        """Why the file could not be used when that was told last; a program may write the same one again and again."""

    async def run(self) -> None:
        """Watch until cancelled; ends where there is nothing to watch, or nothing is to be taken up."""
        seen, restless, pause = self._stamp, 0, -math.inf
        while self._settings.reload and self._settings.path is not None:
            await anyio.sleep(POLL)
            found = _stamp(self._settings.path)
            restless = restless + 1 if found != seen else 0
            ready = (found == seen or restless >= RESTLESS) and anyio.current_time() >= pause
            if found is not None and found != self._stamp and ready:
                restless, began = 0, anyio.current_time()
                # What cannot be used now may only be half of it: that is told once the file is at rest.
                if await self._reread(found, tell=found == seen) or found == seen:
                    self._stamp = found
                pause = anyio.current_time() + PAUSE * (anyio.current_time() - began)
            seen = found

    async def _reread(self, stamp: Stamp, *, tell: bool) -> bool:
        """Take up the file as it is now; whether it could be used. `tell`: whether the log says why not."""
        before, warned = self._settings, set(self._settings.warnings)
        try:
            # Whoever stops us does not wait for a file that takes long to read.
            settings = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            if not stamp[_SIZE]:
                raise ConfigError(f"{before.path}: is empty")
            if (changed := changes(before, settings)) is not None:
                # Those of before stay: what is refused, or ends only now, still knows them.
                learn("configuration", _secrets(before, settings))
                self._take(settings)
        except Exception as error:  # whatever it is, nobody who is served now may suffer from it
            said = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            if tell and said != self._said:
                self._said = said
                log.warning(
                    "the configuration was changed and cannot be used; what was configured before stays: %s", said
                )
                log.debug("that was", exc_info=error)
            return False
        self._settings, self._said = settings, ""
        for warning in settings.warnings:
            if warning not in warned:
                log.warning("%s", warning)
        if changed is not None:
            log.warning("%s was read again: %s", settings.path, changed)
            if self._listens and (waiting := ", ".join(_at_start(before, settings))):
                log.warning("%s: taken up when the daemon is started again", waiting)
        return True


def _secrets(*configured: Settings) -> Iterator[str]:
    return (secret for settings in configured for server in settings.servers for secret in server.secrets)


def _stamp(path: Path | None) -> Stamp | None:
    """What changes when a file is written, or who may read it; None where it cannot be seen."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    # Whoever copies a file with its times changes neither size nor mtime; nobody can set the ctime.
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino) if found is not None else None


_SIZE = 0
"""Where the size stands in it."""


def changes(before: Settings, now: Settings) -> str | None:
    """What is different, by names alone, in one line for a person; None where nothing that is served is."""
    if replace(before, warnings=()) == replace(now, warnings=()):
        return None
    old, new = ({s.key: s for s in settings.servers if s.enabled} for settings in (before, now))
    said = {
        "new": [key for key in new if key not in old],
        "gone": [key for key in old if key not in new],
        "changed": [key for key in new if key in old and new[key] != old[key]],
    }
    parts = [f"{what}: {', '.join(keys)}" for what, keys in said.items() if keys]
    others = [f.name for f in fields(Settings) if f.name not in ("servers", "warnings", "path")]
    if blocks := [name for name in others if getattr(before, name) != getattr(now, name)]:
        parts.append(f"also {', '.join(blocks)}")
    return "; ".join(parts) or "nothing that is served"


def _at_start(before: Settings, now: Settings) -> list[str]:
    """What has changed that a daemon is built with."""
    guards = [settings.guard or GuardConfig() for settings in (before, now)]
    found = [name for name in AT_START if getattr(before, name) != getattr(now, name)]
    return found + [f"guard.{name}" for name in AT_START_GUARD if len({getattr(g, name) for g in guards}) > 1]
