"""`install` and `uninstall`: our entry in a program's own file, and its servers moved behind us and back."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from proxy.cli import installed
from proxy.cli.common import serving_words
from proxy.cli.files import back_up, config_target, confirmed, read_text, shown_diff, surroundings, write_text
from proxy.cli.importing import Plan, plan_for, write_plan
from proxy.config import user_file
from proxy.errors import ConfigError
from proxy.hosts.collecting import Found, secrets_of, servers_of
from proxy.hosts.editing import Editor, editor
from proxy.hosts.launches import Dialect, our_entry, read_entry, starts_us
from proxy.hosts.problem import HostFileError
from proxy.hosts.programs import Place, Program, Surroundings, program
from proxy.hosts.secrets import Vault
from proxy.text import one_line


def run(options: argparse.Namespace) -> int:
    """0 if the file is now as wanted, or could be (`--dry-run`); else 1."""
    at = surroundings()
    host = program(options.host)
    place = _place(host, at, options)
    try:
        text = read_text(place.file)
        edit = editor(place.file.name)
        entries = edit.entries(text or "", place.path)
        if options.command == "install":
            return _install(host, place, edit, text, entries, options)
        return _uninstall(host, place, edit, text, entries, options)
    except HostFileError as error:
        raise ConfigError(f"{place.file}: {one_line(str(error))}; the file was left alone") from None


def _place(host: Program, at: Surroundings, options: argparse.Namespace) -> Place:
    places = host.places(at)
    scope = "project" if options.project else "user"
    found = next((p for p in places if p.scope == scope), None)
    if found is None:
        raise ConfigError(f"{host.title} has no file for a project; install without --project")
    return Place(Path(options.file).expanduser().absolute(), found.path, scope) if options.file else found


# Install.


def _install(
    host: Program, place: Place, edit: Editor, text: str | None, entries: Mapping[str, Any], options: argparse.Namespace
) -> int:
    name: str = options.name
    if name in entries and not starts_us(entries[name]):
        raise HostFileError(f"has another server called {name!r}; choose a different name with --name")
    vault = Vault(os.environ)
    movable = [f for f in servers_of(entries, host.dialect, vault) if not f.ours] if options.move else []
    moved = [found for found in movable if found.launch is not None]
    plan = plan_for(config_target(options), [(host.name, found) for found in moved]) if moved else None
    renamed = plan.merged.renamed if plan is not None else {}
    after = edit.set(text or "", place.path, name, _entry(host, name, entries, moved, vault, renamed, options))
    for found in moved:
        after = edit.remove(after, place.path, found.name)
    for found in movable:
        if found.launch is None:
            print(f"{one_line(found.name)}: stays where it is: {one_line(found.problem)}")
    if after == text:
        print(f"{host.title} has this entry already, in {place.file}.")
        return 0
    if name in entries and not options.profile and (lost := _profiles(entries[name], host.dialect)):
        print(f"The entry had {lost}, which this install takes out; to keep it, give it again.")
    # Every secret of the file is masked in what we print, also where its server stays.
    secrets = [*secrets_of(entries, host.dialect), *vault.values.values()]
    if plan is not None and plan.after != (plan.before or ""):
        print(f"{shown_diff(plan.target, plan.before, plan.after, [*secrets, *plan.secrets])}\n")
    print(f"{shown_diff(place.file, text, after, secrets)}\n")
    if not confirmed(f"Write {place.file}?", options):
        return 0 if options.dry_run else 1
    if plan is not None and plan.after != (plan.before or ""):
        write_plan(plan)
        print(f"Wrote {plan.target}.")
    backup = back_up(place.file)
    write_text(place.file, after, text)
    installed.remember(place.file, text, after, backup, [found.name for found in moved])
    print(f"Wrote {place.file}." + (f" Before: {backup.name}" if backup else ""))
    _say_next(host, moved, vault, plan, options)
    return 0


def _entry(
    host: Program,
    name: str,
    entries: Mapping[str, Any],
    moved: Sequence[Found],
    vault: Vault,
    renamed: Mapping[str, str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Our entry; with the secrets of moved servers, which stay in the file where they have always been."""
    wanted = {export.variable for found in moved for export in found.exports}
    values = {renamed.get(variable, variable): value for variable, value in vault.values.items() if variable in wanted}
    references = {k: v for found in moved if found.launch for k, v in found.launch.references.items()}
    entry = our_entry(own_command(options), host.dialect, values, {k: references[k] for k in sorted(references)})
    before: Any = entries.get(name)
    for key in ("env", "environment", "env_vars"):  # what an earlier install with --move has left there
        kept = cast(Mapping[str, Any], before).get(key) if isinstance(before, Mapping) else None
        if isinstance(kept, Mapping):
            entry[key] = {**cast(Mapping[str, Any], kept), **entry.get(key, {})}
        elif isinstance(kept, list):
            entry[key] = sorted({*cast(list[str], kept), *entry.get(key, [])})
    return entry


def own_command(options: argparse.Namespace) -> list[str]:
    """How a program is to start us: the installed script by its full path, because many programs do not see the
    shell's PATH; through `uvx` where we run from uv's cache, which may be emptied at any time. Raises ConfigError.
    """
    beside = Path(sys.executable).with_name("narrow-waist.exe" if os.name == "nt" else "narrow-waist")
    script = str(beside) if beside.is_file() else shutil.which("narrow-waist")
    if script is None or (f"{os.sep}uv{os.sep}" in script and "archive-v" in script):
        script_words = [shutil.which("uvx") or "uvx", "narrow-waist"]
    else:
        script_words = [script]
    usual = user_file(os.environ, Path.home())
    return [*script_words, *serving_words(options, config_target(options), usual=usual)]


def _say_next(
    host: Program, moved: Sequence[Found], vault: Vault, plan: Plan | None, options: argparse.Namespace
) -> None:
    target = plan.target if plan is not None else config_target(options)
    if not target.is_file() and not options.demo:
        print(f"There is no configuration at {target} yet: narrow-waist import writes one.")
    variables = sorted({e.variable for found in moved for e in found.exports} - vault.values.keys())
    passed = {k for found in moved if found.launch for k in found.launch.references}
    if unset := [v for v in variables if v not in passed and not vault.is_set(v)]:
        print(f"{host.title} must start us with these variables set: {', '.join(unset)}.")
    words = ["narrow-waist", "doctor", host.name, *(["--demo"] if options.demo else [])]
    print(f"Restart it to connect. Then: {' '.join([*words, *_named(options.profile)])}")


def _profiles(entry: object, dialect: Dialect) -> str:
    """The profiles that an entry of ours serves, as it says it; "" where it says none."""
    return " ".join(
        _named(value for option, value in pairwise(read_entry(entry, dialect).args) if option == "--profile")
    )


def _named(profiles: Iterable[str] | None) -> list[str]:
    return [word for name in profiles or () for word in ("--profile", name)]


# Uninstall.


def _uninstall(
    host: Program, place: Place, edit: Editor, text: str | None, entries: Mapping[str, Any], options: argparse.Namespace
) -> int:
    record = installed.records().get(str(place.file))
    if text is None or options.name not in entries:
        print(f"{host.title} has no entry {options.name!r} in {place.file}; nothing to undo.")
        return 0
    if record is None and not starts_us(entries[options.name]):
        raise HostFileError(f"the entry {options.name!r} does not start this proxy; remove it by hand")
    after: str | None = edit.remove(text, place.path, options.name)
    moved: Mapping[str, str] = record.moved if record is not None else {}
    for key, backup in moved.items():
        original = _entries_of(place, edit, Path(backup))
        if key in entries:
            print(f"{one_line(key)}: is there again already, and stays as it is")
        elif key in original:
            after = edit.set(after or "", place.path, key, original[key])
        else:
            print(f"{one_line(key)}: cannot be put back, the backup {backup} is gone; it is still in upstreams.yaml")
    if record is not None and record.written == installed.fingerprint(text):
        # Untouched since: the bytes of before come back, order and comments included.
        before = read_text(Path(record.backup)) if record.backup else None
        after = None if record.backup is None else after if before is None else before
    both = (entries, edit.entries(after or "", place.path))
    values = [*(s for each in both for s in secrets_of(each, host.dialect)), *_values(entries[options.name])]
    print(f"{shown_diff(place.file, text, after, values)}\n")
    if not confirmed(f"Write {place.file}?" if after is not None else f"Remove {place.file}?", options):
        return 0 if options.dry_run else 1
    backup = back_up(place.file)
    if after is None:
        place.file.unlink()
        print(f"Removed {place.file}, which held nothing else." + (f" Before: {backup.name}" if backup else ""))
    else:
        write_text(place.file, after, text)
        print(f"Wrote {place.file}." + (f" Before: {backup.name}" if backup else ""))
    installed.forget(place.file)
    if record is not None and record.moved:
        print("The servers that had been moved are still in upstreams.yaml too.")
    return 0


def _values(entry: object) -> list[str]:
    """Every value of our entry's environment, to be masked."""
    if not isinstance(entry, Mapping):
        return []
    given = cast(Mapping[str, Any], entry)
    blocks = [cast(Mapping[str, Any], b) for k in ("env", "environment") if isinstance(b := given.get(k), Mapping)]
    return [str(value) for block in blocks for value in block.values()]


def _entries_of(place: Place, edit: Editor, backup: Path) -> dict[str, Any]:
    try:
        return edit.entries(read_text(backup) or "", place.path)
    except HostFileError:
        return {}
