"""What every command that needs the configuration shares: finding and reading it, and the files beside it."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from proxy.config import OWN_TOKEN, Settings, find, load, others_may, places, user_file
from proxy.errors import ConfigError


def settings(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings that `--demo` or `--config` (or the usual places) name; raises ConfigError.

    `environ`: what `${VAR}` is replaced from, where that is not our own environment.
    """
    if options.demo:
        from proxy.demo import demo_settings

        return demo_settings()
    path = find(options.config, os.environ, Path.cwd())
    own, here = places(os.environ, Path.cwd(), Path.home())
    if path == own != here and here.is_file() and not options.config:
        sys.stderr.write(f"narrow-waist: using {own}; the {here.name} of this folder needs --config {here.name}\n")
    return load(path, os.environ if environ is None else environ)


def checked_profiles(names: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """The names, each once; raises ConfigError where one is no profile of the configuration."""
    asked, there = list(dict.fromkeys(names or ())), list(known)
    for name in asked:
        if name not in there:
            raise ConfigError(
                f"there is no profile {name!r} in the configuration; there are: {', '.join(there) or 'none'}"
            )
    return asked


def serving_words(options: argparse.Namespace, config: Path, *, usual: Path | None = None) -> list[str]:
    """What starts a proxy that serves as these options say, for whoever starts one later: a host, the system.

    `config` is the file to serve, which is not named where it is the `usual` one.

    Raises:
        ConfigError: there is no such profile, or no configuration that could have it.
    """
    words = ["--demo"] if options.demo else [] if config == usual else ["--config", str(config)]
    if options.profile:
        known = settings(options) if options.demo else load(config)
        for name in checked_profiles(options.profile, known.profiles):
            words += ["--profile", name]
    return [*words, *(["--verbose"] if options.verbose else [])]


def token_file(environ: Mapping[str, str]) -> Path:
    """Where the tokens of the daemon's clients are kept."""
    return user_file(environ, Path.home()).with_name("tokens.json")


def own_token(file: str | None) -> str | None:
    """The bearer token in the file of `--token-file`, else the one of the environment, if any.

    Raises:
        ConfigError: the file cannot be read, is empty, or others may read it.
    """
    if not file:
        return os.environ.get(OWN_TOKEN) or None
    path = Path(file).expanduser()
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"--token-file {file}: {error.strerror}") from None
    if others_may(path):
        raise ConfigError(f"--token-file {file}: other users can read it; run: chmod 600 {path}")
    if not token:
        raise ConfigError(f"--token-file {file}: the file is empty; expected one line with the token")
    return token
