"""What each host shows of a server's texts, and how each keeps its servers in a file. Pure: text in, text out."""

from proxy.hosts.rows import ROWS, UNKNOWN, HostRow, HostTable, Slot

__all__ = ["ROWS", "UNKNOWN", "HostRow", "HostTable", "Slot"]
