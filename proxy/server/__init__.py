"""The downstream MCP server, both protocol eras."""

from proxy.server.adapt import adapt
from proxy.server.door import StdioDoor
from proxy.server.server import House, ProxyServer

__all__ = ["House", "ProxyServer", "StdioDoor", "adapt"]
