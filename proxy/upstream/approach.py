"""How a server is approached: in which era and, at an address, over which of the two transports.

Both are learnt from attempts that failed. `connection.py` makes the attempts and asks here what the next one is to be.
"""

import re

from proxy.config import Mode, ServerConfig, Transport
from proxy.errors import UpstreamFailure
from proxy.upstream.failure import NO_STREAM, ConnectError, describe

_TURNED_AWAY = re.compile(r"HTTP (400|404|405)\b")
"""How a server of the older HTTP+SSE answers the POST that begins Streamable HTTP (2025-11-25, transports)."""


class Approach:
    """What the next attempt is; one for each connection."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self.era: Mode = config.mode
        self.transport: Transport = config.transport
        self.again = False
        """Whether the next attempt differs from the one that has just failed, so that there is no reason to wait."""
        self._refusal = ""

    def agreed(self, *, modern: bool) -> None:
        """Begin in the era that the server agreed to, now or before our start."""
        if self._config.mode == "auto":
            self.era = "modern" if modern else "legacy"

    def begun(self) -> None:
        """The next attempt begins."""
        self.again = False

    def refused(self, error: ConnectError | UpstreamFailure) -> None:
        """Learn from an attempt that ended before there was a session."""
        before = self.era
        if self._turned_away(error.reason):
            # The first POST was a probe, unless the era is known; the era of an event stream is not.
            self.transport, self._refusal, self.again = "sse", error.reason, True
            self.era = self._config.mode
        elif self._config.mode == "auto":
            if before == "modern":
                self.era = "auto"  # it has changed since it was remembered
            elif before == "auto" and isinstance(error, UpstreamFailure):
                self.era = "legacy"  # it died of the probe
            elif before == "legacy" and isinstance(error, ConnectError):
                self.era = "auto"
            self.again = before != "legacy" and self.era != before

    def late(self) -> None:
        """Learn from an attempt that took too long: it may be the probe that stalls the server."""
        if self._config.mode == "auto":
            self.again = self.era != "legacy"
            self.era = "auto" if self.era == "legacy" else "legacy"

    def failed(self, error: Exception | None) -> Exception | None:
        """What to tell of an attempt that no other follows at once: of the transport that was tried first."""
        if self.transport == self._config.transport:
            return error
        self.transport = self._config.transport
        if error is None or (isinstance(error, ConnectError) and error.reason.startswith(NO_STREAM)):
            return ConnectError(self._refusal)
        return ConnectError(f"{self._refusal}; as a server of the older SSE: {describe(error)}")

    def _turned_away(self, reason: str) -> bool:
        if not self._config.inferred or self.transport != "http" or self.era != "legacy":
            return False
        return _TURNED_AWAY.match(reason) is not None
