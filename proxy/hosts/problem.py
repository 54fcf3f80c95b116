"""The one thing that can be wrong with a host's file."""

from proxy.errors import NarrowWaistError


class HostFileError(NarrowWaistError):
    """Raised when a host's file is broken or not as expected; it is then left alone. The text says what and where."""
