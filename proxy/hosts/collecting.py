"""What was found in the programs' files -> entries for our own configuration."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from proxy.hosts.launches import Dialect, Launch, read_entry, starts_us
from proxy.hosts.problem import HostFileError
from proxy.hosts.programs import OUR_NAME
from proxy.hosts.secrets import Export, Vault, without_secrets

_RESERVED = ("narrow_waist", OUR_NAME)


@dataclass(frozen=True)
class Found:
    """One server of one file, without its secrets."""

    name: str
    launch: Launch | None
    """None: it cannot be used, see `problem`."""
    exports: tuple[Export, ...] = ()
    problem: str = ""
    ours: bool = False
    """It starts this proxy, so it is not imported."""


def servers_of(entries: Mapping[str, Any], dialect: Dialect, vault: Vault) -> list[Found]:
    """Every server of one mapping, in the order of the file."""
    found: list[Found] = []
    for name, entry in entries.items():
        if name in _RESERVED or starts_us(entry):
            found.append(Found(name, None, problem="this proxy itself", ours=True))
            continue
        try:
            launch, exports = without_secrets(read_entry(entry, dialect), name, vault)
            found.append(Found(name, launch, tuple(exports)))
        except HostFileError as error:
            found.append(Found(name, None, problem=str(error)))
    return found


def secrets_of(entries: Mapping[str, Any], dialect: Dialect) -> list[str]:
    """Every secret of one mapping of servers, to be masked in what is printed of its file."""
    vault = Vault({})
    servers_of(entries, dialect, vault)
    return list(vault.values.values())


def config_entry(launch: Launch) -> dict[str, Any]:
    """A server's block of `upstreams.yaml`, without what is default."""
    tools: dict[str, Any] = {}
    if launch.include is not None:
        tools["include"] = list(launch.include)
    if launch.exclude:
        tools["exclude"] = list(launch.exclude)
    entry: dict[str, Any]
    if launch.transport == "stdio":
        entry = {"command": launch.command, "args": list(launch.args), "env": dict(launch.env), "cwd": launch.cwd}
    else:
        entry = {"url": launch.url, "headers": dict(launch.headers)}
        entry["transport"] = "sse" if launch.transport == "sse" else None
    entry |= {"tools": tools, "timeout": _number(launch.timeout), "connect_timeout": _number(launch.connect_timeout)}
    kept = {key: value for key, value in entry.items() if value}
    switches = {
        "enabled": launch.enabled,
        "lazy": launch.lazy,
        "resources": launch.resources,
        "prompts": launch.prompts,
    }
    return kept | {key: on for key, on in switches.items() if not on}


def _number(value: float | None) -> float | int | None:
    return int(value) if value is not None and value == int(value) else value


@dataclass
class Merged:
    """The servers of several files under one name each."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """New ones, by the key they get."""
    keys: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """(source, name there) -> key here, of the new ones and of those that were here."""
    known: list[str] = field(default_factory=list[str])
    """Keys of the configuration that hold the same server already."""
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    """Variable of a secret that was found -> the one that the configuration has for it."""


def merge(found: Iterable[tuple[str, Found]], existing: Mapping[str, Any]) -> Merged:
    """One key for each different server.

    `found` are (source, server); `existing` is the servers' block of the configuration as it is. The same launch
    twice is one server; another launch under a name that is taken gets the source's name behind its own.
    """
    merged = Merged()
    for source, server in found:
        if server.launch is None:
            continue
        entry = config_entry(server.launch)
        taken = {**existing, **merged.entries}
        own = f"{server.name.strip()}-{source}"
        if own in existing and _VARIABLE.sub("${", _launch(entry)) == _VARIABLE.sub("${", _launch(existing[own])):
            # An earlier import has given it this name, and maybe other variables, because of another program's secret.
            merged.renamed |= zip(*(_VARIABLE.findall(_launch(each)) for each in (entry, existing[own])), strict=True)
            same = own
        else:
            same = next((key for key, other in taken.items() if _launch(entry) == _launch(other)), None)
        if same is not None:
            if same in existing and same not in merged.known:
                merged.known.append(same)
            merged.keys[source, server.name] = same
            continue
        wanted = server.name.strip() or "server"
        candidates = (wanted, f"{wanted}-{source}", *(f"{wanted}-{source}-{n}" for n in range(2, 1_000)))
        key = next(name for name in candidates if name not in taken)
        merged.entries[key] = entry
        merged.keys[source, server.name] = key
    return merged


_VARIABLE = re.compile(r"\$\{(\w+)")


def _launch(entry: object) -> str:
    """How a server of `upstreams.yaml` is started, as one text to compare."""
    keys = ("command", "args", "env", "cwd", "url", "headers")
    fields = cast(Mapping[str, Any], entry if isinstance(entry, Mapping) else {})
    # Names are compared as texts: YAML has numbers for some, which cannot be sorted among texts.
    values = [
        {str(k): v for k, v in cast(Mapping[Any, Any], value).items()} if isinstance(value, Mapping) else value
        for value in (fields.get(key) or None for key in keys)
    ]
    return json.dumps(values, sort_keys=True, default=str)
