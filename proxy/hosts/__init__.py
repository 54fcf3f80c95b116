"""What each host shows of a server's texts."""

from proxy.hosts.rows import ROWS, UNKNOWN, HostRow, Slot, row_for

__all__ = ["ROWS", "UNKNOWN", "HostRow", "Slot", "row_for"]
