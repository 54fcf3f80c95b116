"""Files of ours, written whole or not at all: no reader, and no other proxy, ever sees the half of one."""

import contextlib
import os
import tempfile
from pathlib import Path

MINE = 0o600


def write_whole(path: Path, content: bytes, mode: int = MINE, *, sync: bool = False) -> None:
    """Put `content` in the place of a file, or of none; its folder is there. `sync`: it survives a loss of power.

    Raises:
        OSError: it cannot be written; all is as it was.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if mode != MINE:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
