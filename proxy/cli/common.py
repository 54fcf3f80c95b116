"""What every command that needs the configuration shares: finding and reading it, and the files beside it."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from proxy.config import Settings, find, load, others_may, user_file
from proxy.errors import ConfigError


def settings(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings that `--demo` or `--config` (or the usual places) name; raises ConfigError.

    `environ`: what `${VAR}` is replaced from, where that is not our own environment.
    """
    if options.demo:
        from proxy.demo import demo_settings

        return demo_settings()
    return load(find(options.config, os.environ, Path.cwd()), os.environ if environ is None else environ)


def token_file(environ: Mapping[str, str]) -> Path:
    """Where the tokens of the daemon's clients are kept."""
    return user_file(environ, Path.home()).with_name("tokens.json")


def read_token(option: str, file: str) -> str:
    """The bearer token in a file that a person has named.

    Raises:
        ConfigError: it cannot be read, is empty, or others may read it.
    """
    path = Path(file).expanduser()
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror}") from None
    if others_may(path):
        raise ConfigError(f"{option} {file}: other users can read it; run: chmod 600 {path}")
    if not token:
        raise ConfigError(f"{option} {file}: the file is empty; expected one line with the token")
    return token
