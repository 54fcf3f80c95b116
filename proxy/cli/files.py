"""Changing a person's files: shown as a diff first, written only after a yes, with a backup beside the file."""

import argparse
import difflib
import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from proxy.config import places
from proxy.errors import ConfigError
from proxy.hosts.problem import HostFileError
from proxy.hosts.programs import Surroundings
from proxy.masking import mask
from proxy.private import MINE, write_whole

BACKUP = ".narrow-waist-backup"
_SHORTEST = 3


def surroundings() -> Surroundings:
    """Where this person's programs are looked for."""
    return Surroundings(Path.home(), Path.cwd(), os.environ)


def config_target(options: argparse.Namespace) -> Path:
    """Our configuration file to write to: the one that would be read, else the one in the user's folder."""
    named = options.config or os.environ.get("NARROW_WAIST_CONFIG")
    if named:
        return Path(named).expanduser().absolute()
    usual = places(os.environ, Path.cwd(), Path.home())
    return next((place for place in usual if place.is_file()), usual[0])


def read_text(path: Path) -> str | None:
    """The text of a file with its own line ends; None where there is none.

    Raises:
        HostFileError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise HostFileError(f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise HostFileError(f"cannot be read: {error.strerror or error}") from None


def shown_diff(path: Path, before: str | None, after: str | None, secrets: Iterable[str] = ()) -> str:
    """A unified diff without secrets; None stands for no file."""
    lines = difflib.unified_diff(
        (before or "").splitlines(),
        (after or "").splitlines(),
        str(path) if before is not None else "/dev/null",
        str(path) if after is not None else "/dev/null",
        lineterm="",
        n=2,
    )
    # Unlike in a log, a short secret counts too, and as it is written in JSON.
    spelled = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1]) if len(form) >= _SHORTEST}
    return mask("\n".join(lines), sorted(spelled, key=len, reverse=True))


def confirmed(question: str, options: argparse.Namespace) -> bool:
    """Whether the person says yes: `--yes`, or an answer on the terminal. `--dry-run` is no."""
    if options.dry_run:
        print("Nothing was written (--dry-run).")
        return False
    if options.yes:
        return True
    if not sys.stdin.isatty():
        print("Nothing was written: there is no terminal to ask on; --yes writes.")
        return False
    print(f"{question} [y/N] ", end="", flush=True)
    answer = sys.stdin.readline().strip().lower()
    if answer in ("y", "yes"):
        return True
    print("Nothing was written.")
    return False


def back_up(path: Path) -> Path | None:
    """A copy beside the file, with its rights; None where there is no file yet."""
    path = _real(path)
    if not path.exists():
        return None
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(1_000):
        copy = path.with_name(f"{path.name}.{stamp}{f'-{number}' if number else ''}{BACKUP}")
        try:
            handle = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"{copy}: cannot be written: {error.strerror or error}") from None
        with os.fdopen(handle, "wb") as file:
            file.write(path.read_bytes())
        copy.chmod(path.stat().st_mode & 0o777)
        return copy
    raise ConfigError(f"{path}: there are a thousand backups of this second")


def write_text(path: Path, text: str, before: str | None) -> None:
    """Replace a file whole, keeping its rights (a new one is for its owner only) and the link that may lead to it.

    Raises:
        ConfigError: it cannot be written, or is not as it was when it was shown.
    """
    path = _real(path)
    try:
        current = read_text(path)
    except HostFileError as error:
        raise ConfigError(f"{path}: {error}") from None
    if current != before:
        raise ConfigError(f"{path}: has been changed by another program just now; nothing was written, try again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = MINE if before is None else path.stat().st_mode & 0o777
        write_whole(path, text.encode("utf-8"), mode, sync=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None


def _real(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path
