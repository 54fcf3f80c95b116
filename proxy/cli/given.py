"""What a host gives our process: the environment of our entry in its file, as `install --move` left it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.cli.files import read_text
from proxy.config import Expansion, expand
from proxy.hosts.editing import editor
from proxy.hosts.launches import read_entry, starts_us
from proxy.hosts.problem import HostFileError
from proxy.hosts.programs import PROGRAMS, Surroundings


@dataclass(frozen=True)
class Given:
    """The variables of one entry."""

    file: Path | None = None
    """Where the entry is; None where there is none."""
    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    asked: tuple[str, ...] = ()
    """Variables whose values only the host knows, which asks the person, or has them in its own environment."""


def given_by(row: str, our_name: str, at: Surroundings) -> Given:
    """What the host of that row starts us with; a file that cannot be read gives nothing."""
    for host in (program for program in PROGRAMS if program.name == row):
        for place in host.places(at):
            try:
                entries = editor(place.file.name).entries(read_text(place.file) or "", place.path)
                named = entries.get(our_name) if starts_us(entries.get(our_name)) else None
                entry = named or next((each for each in entries.values() if starts_us(each)), None)
                env = read_entry(entry, host.dialect).env if entry is not None else None
            except HostFileError:
                continue
            if env is not None:
                return _expanded(place.file, env, at.environ)
    return Given()


def _expanded(file: Path, env: Mapping[str, str], environ: Mapping[str, str]) -> Given:
    values: dict[str, str] = {}
    asked: list[str] = []
    for name, text in env.items():
        outcome = Expansion()
        value = expand(text, environ, outcome)
        if outcome.missing:
            asked.append(name)
        else:
            values[name] = value
    return Given(file, values, tuple(asked))
