"""Reload: takes up what changes in the configuration file while the proxy runs.

A file that is broken, or gone, changes nothing: what was configured before stays, and one line in the log says why.
"""

import logging
from collections.abc import Callable
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
AT_START = ("allowed_hosts", "session_idle_timeout")
AT_START_GUARD = ("max_sessions", "max_body", "max_connections", "head_timeout", "body_timeout")
"""What the daemon's listening side is built with, of the file's root and of `guard:`."""

Stamp = tuple[int, int, int]


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

    async def run(self) -> None:
        """Watch until cancelled; ends where there is nothing to watch, or nothing is to be taken up."""
        seen = self._stamp
        while self._settings.reload and self._settings.path is not None:
            await anyio.sleep(POLL)
            found = _stamp(self._settings.path)
            if found == seen and found != self._stamp and found is not None:
                self._stamp = found
                await self._reread()
            seen = found

    async def _reread(self) -> None:
        try:
            settings = await anyio.to_thread.run_sync(self._read)
            if (changed := changes(self._settings, settings)) is None:
                return
            learn("configuration", (secret for server in settings.servers for secret in server.secrets))
            self._take(settings)
        except ConfigError as error:
            log.warning("the configuration was changed and cannot be used; what was configured before stays: %s", error)
            return
        for warning in settings.warnings:
            if warning not in self._settings.warnings:
                log.warning(warning)
        before, self._settings = self._settings, settings
        log.warning("%s was read again: %s", settings.path, changed)
        if self._listens and (waiting := ", ".join(_at_start(before, settings))):
            log.warning("%s: taken up when the daemon is started again", waiting)


def _stamp(path: Path | None) -> Stamp | None:
    """What changes when a file is written; None where it cannot be seen."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None


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
