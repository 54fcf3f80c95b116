"""Reaper: a tiny shell process that ends our children's process groups should we be killed outright.

SIGKILL leaves us no chance to tidy up, and a server that ignores the end of its stdin would live for ever. The
reaper blocks on a pipe that only we hold; when it ends without a goodbye, we are gone.
"""

import contextlib
import os
import subprocess
import sys

LEAVE = 3.0
"""Seconds the reaper may take to leave: it sends TERM twice and KILL once, a second apart, to what is left."""

SCRIPT = """
trap '' INT TERM HUP
groups=' '
while read -r word group; do
  case $word in
    add) groups="$groups$group " ;;
    del) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for sig in TERM TERM KILL; do
  alive=
  for group in $groups; do kill -s $sig -- "-$group" 2>/dev/null && alive=1; done
  [ -n "$alive" ] || exit 0
  [ "$sig" = KILL ] || sleep 1
done
"""


class Reaper:
    """Started with the first child; ends with us."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        """Watch over the process group `group`."""
        if sys.platform == "win32":
            return
        if self._process is None:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            os.set_blocking(self._fd, False)
        self._say(f"add {group}\n")

    def remove(self, group: int) -> None:
        """The process group is gone; its number may be used again by others."""
        self._say(f"del {group}\n")

    def close(self) -> None:
        """End the reaper; what it still watches is ended too."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVE)  # at once, unless something it watches is still there
            self._process = None

    @property
    def _fd(self) -> int:
        assert self._process is not None and self._process.stdin is not None
        return self._process.stdin.fileno()

    def _say(self, line: str) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, line.encode())
