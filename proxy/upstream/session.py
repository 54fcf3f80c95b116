"""From a fresh connection to a usable one: the protocol era, and who the server is.

Both eras on one connection: `server/discover` of 2026-07-28, and the `initialize` handshake of 2024-11-05 ..
2025-11-25. Afterwards a `Session` adds to each request what the era asks for.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mcp.shared.inbound import encode_header_value, mcp_param_headers
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from proxy import __version__
from proxy.config import Mode
from proxy.errors import RpcError, UpstreamFailure
from proxy.text import one_line, shorten
from proxy.upstream.failure import NEEDS_LOGIN, ConnectError
from proxy.upstream.peer import OnProgress, Peer

CLIENT_INFO = {"name": "narrow-waist", "version": __version__}
PROBE_PATIENCE = 5.0
"""Seconds a server may take to answer `server/discover` before `initialize` is sent as well. Old servers that ignore
the probe cost this much once (the era is remembered); slow starters (12 of 92 need more than 11 s) still get both."""

Capabilities = Callable[[], Awaitable[dict[str, Any]]]
HeaderMap = Mapping[tuple[str, ...], str]


@dataclass
class Session:
    """A negotiated connection: adds what the era asks for to each request."""

    peer: Peer
    version: str
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`serverInfo` as sent."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None
    header_maps: dict[str, HeaderMap] = field(default_factory=dict[str, HeaderMap])
    """Raw tool name -> which argument goes into which `Mcp-Param-*` header (2026-07-28 over HTTP)."""
    ttl: float = math.inf
    """Seconds for which the lists that were read last hold, by the least `ttlMs` the server gave with them."""

    modern: bool = field(init=False)
    """Whether the connection speaks the stateless era."""

    def __post_init__(self) -> None:
        self.modern = self.version in MODERN_PROTOCOL_VERSIONS

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float = math.inf,
        on_progress: OnProgress | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Send a request in the negotiated era; raises what `Peer.request` raises."""
        given = params or {}
        return self.peer.request(
            method,
            _stamped(given, self.version, capabilities) if self.modern else given,
            timeout=timeout,
            on_progress=on_progress,
            headers=self._headers(method, given) if self.peer.takes_headers else None,
        )

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {"mcp-protocol-version": self.version}
        if self.modern:
            headers["mcp-method"] = method
            name = params.get("name") or params.get("uri")
            if isinstance(name, str):
                headers["mcp-name"] = encode_header_value(name)
            if method == "tools/call" and (header_map := self.header_maps.get(cast(str, name))):
                headers |= mcp_param_headers(header_map, params.get("arguments") or {})
        return headers


def _stamped(params: Mapping[str, Any], version: str, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {
        **(params.get("_meta") or {}),
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: CLIENT_INFO,
        CLIENT_CAPABILITIES_META_KEY: dict(capabilities or {}),
    }
    return {**params, "_meta": meta}


async def negotiate(peer: Peer, mode: Mode, capabilities: Capabilities) -> Session:
    """Agree on an era and a version.

    `auto` asks with `server/discover` first; anything but a positive answer leads to `initialize`. A server that is
    silent for `PROBE_PATIENCE` seconds gets both, and its first good answer counts. `capabilities` gives what is
    declared in `initialize`; the stateless era declares them with each request.

    Raises:
        ConnectError: the server speaks no version of ours, or refuses.
        UpstreamFailure: the connection ended or gave no answer.
    """
    if mode == "legacy":
        return await _initialize(peer, capabilities)
    probe = asyncio.ensure_future(_discover(peer))
    try:
        done, _ = await asyncio.wait({probe}, timeout=None if mode == "modern" else PROBE_PATIENCE)
        if done:
            try:
                return probe.result()
            except (RpcError, ConnectError) as error:
                if mode == "modern":
                    raise ConnectError(
                        f"the server does not speak {LATEST_MODERN_VERSION}: {error}", permanent=True
                    ) from None
            return await _initialize(peer, capabilities)
        handshake = asyncio.ensure_future(_initialize(peer, capabilities))
        try:
            return await _first_good(probe, handshake)
        finally:
            handshake.cancel()
    finally:
        probe.cancel()


async def _first_good(*tries: "asyncio.Future[Session]") -> Session:
    waiting = set(tries)
    last: BaseException | None = None
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            if (last := each.exception()) is None:
                return each.result()
    assert last is not None
    raise last


async def _discover(peer: Peer) -> Session:
    headers = {"mcp-protocol-version": LATEST_MODERN_VERSION, "mcp-method": "server/discover"}
    params = _stamped({}, LATEST_MODERN_VERSION)
    try:
        result = await peer.request("server/discover", params, headers=headers, cancellable=False)
    except RpcError as error:
        supported = _mapping(error.data).get("supported")
        if error.code != UNSUPPORTED_PROTOCOL_VERSION or LATEST_MODERN_VERSION not in _listed(supported):
            raise
        # It does speak the version that was asked for: what it wants is to be asked again (SEP-2575).
        result = await peer.request("server/discover", params, headers=headers, cancellable=False)
    supported = _listed(result.get("supportedVersions"))
    mutual = [v for v in MODERN_PROTOCOL_VERSIONS if v in supported]
    if not mutual:
        raise ConnectError("no version in common")
    meta = _mapping(result.get("_meta"))
    return Session(
        peer,
        mutual[-1],
        _mapping(meta.get(SERVER_INFO_META_KEY) or result.get("serverInfo")),
        _mapping(result.get("capabilities")),
        _text(result.get("instructions")),
    )


async def _initialize(peer: Peer, capabilities: Capabilities) -> Session:
    params = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": await capabilities(),
        "clientInfo": CLIENT_INFO,
    }
    try:
        result = await peer.request("initialize", params, cancellable=False)
    except RpcError as error:
        raise ConnectError(f"the server refused to initialize: {shorten(one_line(str(error)), 300)}") from None
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        said = shorten(one_line(repr(version)), 60)
        raise ConnectError(f"not an MCP server of a version we speak (protocolVersion {said})", permanent=True)
    peer.notify("notifications/initialized", headers={"mcp-protocol-version": version})
    return Session(
        peer,
        version,
        _mapping(result.get("serverInfo")),
        _mapping(result.get("capabilities")),
        _text(result.get("instructions")),
    )


def era_after(era: Mode, error: ConnectError | UpstreamFailure) -> Mode:
    """The era in which the next attempt speaks to a server, of which nothing is configured, after `error` in `era`."""
    if era == "modern":
        return "auto"  # it has changed since it was remembered
    if error.reason.startswith(NEEDS_LOGIN):
        return era  # it says nothing of the era
    if era == "auto" and isinstance(error, UpstreamFailure):
        return "legacy"  # it died of the probe
    return "auto" if isinstance(error, ConnectError) else era


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _listed(value: object) -> list[object]:
    return cast(list[object], value) if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
