"""The downstream MCP server, both protocol eras."""

from proxy.server.adapt import adapt
from proxy.server.client import ACCESS, Client
from proxy.server.door import Call, StdioDoor, answer, frame, tool_call
from proxy.server.house import House
from proxy.server.server import ProxyServer

__all__ = ["ACCESS", "Call", "Client", "House", "ProxyServer", "StdioDoor", "adapt", "answer", "frame", "tool_call"]
