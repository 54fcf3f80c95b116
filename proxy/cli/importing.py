"""`import`: the servers of the programs on this machine -> `upstreams.yaml`, without their secrets."""

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.cli.files import back_up, config_target, confirmed, read_text, shown_diff, surroundings, write_text
from proxy.config import load
from proxy.errors import ConfigError
from proxy.hosts.collecting import Found, Merged, merge, secrets_of, servers_of
from proxy.hosts.editing import editor
from proxy.hosts.launches import Dialect
from proxy.hosts.problem import HostFileError
from proxy.hosts.programs import PROGRAMS, Place, Program, Surroundings, program, shown_path
from proxy.hosts.secrets import Vault
from proxy.masking import mask, secret_parts
from proxy.text import one_line, shorten

_BLOCKS = ("servers", "mcp_servers", "mcpServers")
_WIDTH = 100


@dataclass(frozen=True)
class Source:
    """One mapping of servers in one file, as it was found."""

    program: Program
    place: Place
    servers: tuple[Found, ...] = ()
    problem: str = ""
    """Why the file was left alone."""

    def title(self, home: Path) -> str:
        """Such as `Cursor, ~/.cursor/mcp.json (project)`."""
        scope = "" if self.place.scope == "user" else f" ({self.place.scope})"
        return f"{self.program.title}, {shown_path(self.place.file, home)}{scope}"


def run(options: argparse.Namespace) -> int:
    """0 if all that was found, if anything, is in the configuration, or could be (`--dry-run`); else 1."""
    at = surroundings()
    vault = Vault(os.environ)
    programs = [program(name) for name in options.host] or PROGRAMS
    if options.from_file and len(programs) != 1:
        raise ConfigError("--from FILE needs the one host whose file it is, for example: import cursor --from mcp.json")
    sources = [source for each in programs for source in sources_of(each, at, vault, options.from_file)]
    for source in sources:
        _print_source(source, at.home, vault)
    found = [(source.program.name, server) for source in sources for server in source.servers]
    if not any(server.launch for _, server in found):
        names = ", ".join(p.title for p in programs)
        print(f"No servers to import were found for {names}.")
        return 1 if any(source.problem for source in sources) else 0
    target = config_target(options)
    plan = plan_for(target, found)
    written = _write(plan, _exports(sources, vault, plan.merged), options, vault)
    return 0 if written or options.dry_run else 1


def sources_of(each: Program, at: Surroundings, vault: Vault, file: str | None = None) -> list[Source]:
    """Every place of a program that exists, or `file` in its format; a broken one says so and is left alone."""
    places: Sequence[Place] = each.places(at)
    if file is not None:
        places = [Place(Path(file).expanduser().absolute(), places[0].path, "user")]
    found: list[Source] = []
    for place in reversed({(p.file, p.path): p for p in reversed(places)}.values()):
        try:
            text = read_text(place.file)
            if text is None:
                if file is not None:
                    raise HostFileError("no such file")
                continue
            entries = editor(place.file.name).entries(text, place.path)
        except HostFileError as error:
            found.append(Source(each, place, problem=str(error)))
            continue
        if entries:
            found.append(Source(each, place, tuple(servers_of(entries, each.dialect, vault))))
    return found


@dataclass(frozen=True)
class Plan:
    """What a write of our configuration would be."""

    target: Path
    before: str | None
    after: str
    merged: Merged
    secrets: tuple[str, ...] = ()
    """Of what stands there already, to be masked in a diff."""


def plan_for(target: Path, found: Iterable[tuple[str, Found]]) -> Plan:
    """The configuration at `target` with the new servers added; what stands there is never changed.

    Raises:
        ConfigError: the file there is broken or cannot be added to.
    """
    try:
        before = read_text(target)
        edit = editor(target.name)
        top = edit.entries(before or "", [])
        block = next((name for name in _BLOCKS if top.get(name)), None)
        block = block or ("mcpServers" if edit.name == "json" else "servers")
        existing = edit.entries(before or "", [block])
        merged = merge(found, existing)
        after = before or ""
        for key, entry in merged.entries.items():
            after = edit.set(after, [block], key, entry)
    except HostFileError as error:
        raise ConfigError(f"{target}: {error}") from None
    return Plan(target, before, after, merged, tuple(secrets_of(existing, Dialect.PLAIN)))


def write_plan(plan: Plan) -> Path | None:
    """Write the plan; returns the backup of what was there.

    Raises:
        ConfigError: it cannot be written, or would not be a configuration (nothing is written then).
    """
    trial = plan.target.with_name(f".trial-{os.getpid()}-{plan.target.name}")
    try:
        write_text(trial, plan.after, None)
        load(trial)
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(trial), str(plan.target))) from None
    finally:
        trial.unlink(missing_ok=True)
    backup = back_up(plan.target)
    write_text(plan.target, plan.after, plan.before)
    return backup


def _write(plan: Plan, exports: Sequence[str], options: argparse.Namespace, vault: Vault) -> bool:
    if plan.merged.known:
        print(f"Already in {plan.target}: {', '.join(plan.merged.known)}.")
    if plan.after == (plan.before or ""):
        print("There is nothing to add.")
        return True
    secrets = [*vault.values.values(), *plan.secrets]
    print(f"\n{shown_diff(plan.target, plan.before, plan.after, secrets)}\n")
    if exports:
        print("Set these variables before you start the proxy (the values stay where they are; none is shown here):")
        print("\n".join(f"  {line}" for line in exports) + "\n")
    verb = "Write" if plan.before is None else "Add this to"
    if not confirmed(f"{verb} {plan.target}?", options):
        return False
    backup = write_plan(plan)
    print(f"Wrote {plan.target}." + (f" Before: {backup.name}" if backup else ""))
    print("Next: narrow-waist check, then narrow-waist install HOST.")
    return True


def _exports(sources: Sequence[Source], vault: Vault, merged: Merged) -> list[str]:
    """`export NAME=...` and where the value is found, for the servers that are new."""
    lines: dict[str, str] = {}
    for source in sources:
        for server in source.servers:
            key = merged.keys.get((source.program.name, server.name))
            if key not in merged.entries:
                continue
            for export in server.exports:
                place = f"  # {source.program.title}: {server.name}, {export.origin}" if export.origin else ""
                state = "  # is set" if vault.is_set(export.variable) and not place else place
                lines.setdefault(export.variable, f"export {export.variable}=...{state}")
    return list(lines.values())


def _print_source(source: Source, home: Path, vault: Vault) -> None:
    print(source.title(home))
    if source.problem:
        print(f"  left alone: {one_line(source.problem)}")
    secrets = secret_parts(vault.values.values())
    for server in source.servers:
        name = one_line(server.name)
        if server.launch is None:
            print(f"  {name}: not imported: {one_line(server.problem)}")
            continue
        launch = server.launch
        where = launch.url if launch.transport != "stdio" else " ".join((launch.command or "", *launch.args))
        state = "" if launch.enabled else " (disabled)"
        print(f"  {name}: {launch.transport}{state}, {shorten(mask(one_line(where or ''), secrets), _WIDTH)}")
        if launch.ignored:
            print(f"    has no equal here: {', '.join(launch.ignored)}")
        if launch.login:
            print(f"    not taken over: {launch.login}; if its login needs that, set `oauth` in upstreams.yaml")
