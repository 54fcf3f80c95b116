"""`install` and `uninstall`: one entry comes and goes; everything else in a person's file stays as it was."""

import os
import stat
from pathlib import Path

import pytest
import yaml
from test_import import FILES, SECRET, ours, put

from proxy.cli import main
from proxy.cli.files import BACKUP
from proxy.hosts.editing import editor
from proxy.hosts.launches import read_entry, starts_us
from proxy.hosts.programs import PROGRAMS, Program, Surroundings, program


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    for name in list(os.environ):
        if name.startswith(("XDG_", "CODEX_", "CLAUDE_", "HERMES_", "NARROW_WAIST", "GITHUB_", "DOCS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    at = Surroundings(home, work, os.environ, "linux")
    monkeypatch.setattr("proxy.cli.installing.surroundings", lambda: at)
    monkeypatch.setattr("proxy.cli.installing.user_file", lambda *_: ours(home))
    monkeypatch.setattr("proxy.cli.installed.user_file", lambda *_: ours(home))
    monkeypatch.setattr("proxy.cli.files.places", lambda *_: (ours(home), Path.cwd() / "upstreams.yaml"))
    monkeypatch.chdir(work)
    return home


def entries(path: Path, name: str, home: Path) -> dict[str, object]:
    place = program(name).places(Surroundings(home, home / "none", {}, "linux"))[0]
    return editor(path.name).entries(path.read_text(encoding="utf-8"), place.path)


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"*{BACKUP}"))


@pytest.mark.parametrize("name", FILES)
def test_a_round_trip_gives_back_every_byte(name: str, home: Path) -> None:
    path = put(home, name)
    before = path.read_bytes()
    path.chmod(0o600)
    assert main(["install", name, "--yes"]) == 0
    found = entries(path, name, home)
    assert starts_us(found["narrow-waist"])
    assert {"github", "docs"} < found.keys()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [b.read_bytes() for b in backups(path)] == [before]
    assert [stat.S_IMODE(b.stat().st_mode) for b in backups(path)] == [0o600]
    assert main(["uninstall", name, "--yes"]) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", FILES)
def test_what_the_person_changes_in_between_stays(name: str, home: Path) -> None:
    path = put(home, name)
    assert main(["install", name, "--yes"]) == 0
    comment = "# mine\n" if path.suffix in (".toml", ".yaml") else "// mine\n"
    path.write_text(comment + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["uninstall", name, "--yes"]) == 0
    assert path.read_text(encoding="utf-8") == comment + FILES[name][1].replace("SECRET", SECRET)


@pytest.mark.parametrize("name", FILES)
def test_servers_move_behind_the_proxy_and_back(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(home, name)
    before = path.read_bytes()
    assert main(["install", name, "--move", "--yes"]) == 0
    assert entries(path, name, home).keys() == {"narrow-waist"}
    servers = yaml.safe_load(ours(home).read_text(encoding="utf-8"))["servers"]
    assert servers.keys() == {"github", "docs"}
    assert SECRET not in ours(home).read_text(encoding="utf-8")
    # what the servers were given still reaches them: through our own entry, where it has always been
    given = path.read_text(encoding="utf-8")
    assert "GITHUB_TOKEN" in given and "DOCS_TOKEN" in given
    assert main(["uninstall", name, "--yes"]) == 0
    assert path.read_bytes() == before
    assert SECRET not in capsys.readouterr().out


def test_a_server_that_was_imported_beside_another_programs_keeps_its_own_secret(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs, one server, two tokens: the second program's went to the variable of the first one's server."""
    at = Surroundings(home, home / "none", os.environ, "linux")
    monkeypatch.setattr("proxy.cli.importing.surroundings", lambda: at)
    put(home, "claude-code")
    path = put(home, "cursor")
    path.write_text(path.read_text(encoding="utf-8").replace(SECRET, "the-token-of-cursor-12345"), encoding="utf-8")
    assert main(["import", "--yes"]) == 0
    imported = ours(home).read_text(encoding="utf-8")
    servers = yaml.safe_load(imported)["servers"]
    assert servers["docs"] != servers["docs-cursor"]
    assert main(["install", "cursor", "--move", "--yes"]) == 0
    assert ours(home).read_text(encoding="utf-8") == imported
    given = read_entry(entries(path, "cursor", home)["narrow-waist"], program("cursor").dialect).env
    [variable] = [name for name, value in given.items() if value == "the-token-of-cursor-12345"]
    assert f"${{{variable}}}" in servers["docs-cursor"]["headers"]["Authorization"]
    assert f"${{{variable}}}" not in str(servers["docs"])


def test_moved_servers_come_back_also_into_a_file_that_was_changed(home: Path) -> None:
    path = put(home, "cursor")
    before = entries(path, "cursor", home)
    assert main(["install", "cursor", "--move", "--yes"]) == 0
    path.write_text("// mine\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["uninstall", "cursor", "--yes"]) == 0
    assert path.read_text(encoding="utf-8").startswith("// mine\n")
    assert entries(path, "cursor", home) == before


def test_without_the_backup_the_entry_still_goes_and_nothing_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(home, "codex")
    before = path.read_bytes()
    assert main(["install", "codex", "--yes"]) == 0
    for backup in backups(path):
        backup.unlink()
    assert main(["uninstall", "codex", "--yes"]) == 0
    assert path.read_bytes() == before
    assert main(["install", "codex", "--move", "--yes"]) == 0
    for backup in backups(path):
        backup.unlink()
    capsys.readouterr()
    assert main(["uninstall", "codex", "--yes"]) == 0
    assert "github: cannot be put back" in capsys.readouterr().out
    assert "model" in path.read_text(encoding="utf-8")


def test_installing_twice_changes_nothing_and_is_undone_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(home, "claude-code")
    before = path.read_bytes()
    assert main(["install", "claude-code", "--yes"]) == 0
    once = path.read_bytes()
    assert main(["install", "claude-code", "--yes"]) == 0
    assert "has this entry already" in capsys.readouterr().out
    assert path.read_bytes() == once
    assert main(["install", "claude-code", "--move", "--yes"]) == 0
    assert main(["uninstall", "claude-code", "--yes"]) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("program_", PROGRAMS, ids=lambda p: p.name)
def test_a_program_without_a_file_gets_one_for_its_owner_only_and_loses_it_again(program_, home: Path) -> None:  # type: ignore[no-untyped-def]
    path = program_.places(Surroundings(home, home, {}, "linux"))[0].file
    assert main(["install", program_.name, "--yes"]) == 0
    assert entries(path, program_.name, home).keys() == {"narrow-waist"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["uninstall", program_.name, "--yes"]) == 0
    assert not path.exists()


def test_nothing_is_written_without_a_yes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(home, "zed")
    before = path.read_bytes()
    assert main(["install", "zed", "--move"]) == 1
    assert main(["install", "zed", "--dry-run", "--yes"]) == 0, "it was asked to write nothing"
    printed = capsys.readouterr().out
    assert "+++" in printed and "narrow-waist" in printed and "Nothing was written" in printed
    assert SECRET not in printed
    assert path.read_bytes() == before and not backups(path) and not ours(home).exists()
    assert main(["install", "zed", "--yes"]) == 0
    assert (main(["uninstall", "zed", "--dry-run"]), main(["uninstall", "zed"])) == (0, 1)
    assert "narrow-waist" in entries(path, "zed", home)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"mcpServers": {', "not valid JSON"),
        ('{"mcpServers": []}', "expected a mapping at mcpServers"),
        ("\x00\x01", "not valid JSON"),
        ('{"mcpServers": {"narrow-waist": {"command": "something-else"}}}', "another server called 'narrow-waist'"),
    ],
)
def test_a_broken_or_foreign_file_is_left_alone_with_one_clear_line(
    text: str, reason: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    assert main(["install", "cursor", "--yes"]) == 2
    error = capsys.readouterr().err
    assert reason in error and str(path) in error and "left alone" in error
    assert error.count("\n") == 1
    assert path.read_text(encoding="utf-8") == text and not backups(path)


def test_a_file_that_is_not_text_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(b'{"a": "\xff"}')
    assert main(["install", "cursor", "--yes"]) == 2
    assert "is not UTF-8" in capsys.readouterr().err
    assert path.read_bytes() == b'{"a": "\xff"}'


def test_an_entry_that_is_not_ours_is_not_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(home, "cursor")
    assert main(["uninstall", "cursor", "--yes"]) == 0
    assert "nothing to undo" in capsys.readouterr().out
    assert main(["uninstall", "cursor", "--name", "github", "--yes"]) == 2
    assert "does not start this proxy" in capsys.readouterr().err
    assert "github" in entries(path, "cursor", home)


def test_a_linked_file_is_changed_where_it_lies_and_stays_a_link(home: Path) -> None:
    path = put(home, "codex")
    real = home / "dotfiles.toml"
    path.rename(real)
    path.symlink_to(real)
    assert main(["install", "codex", "--yes"]) == 0
    assert path.is_symlink() and "narrow-waist" in real.read_text(encoding="utf-8")
    assert main(["uninstall", "codex", "--yes"]) == 0
    assert path.is_symlink() and real.read_text(encoding="utf-8") == FILES["codex"][1].replace("SECRET", SECRET)


def test_a_project_gets_its_own_file(home: Path, tmp_path: Path) -> None:
    assert main(["install", "vscode", "--project", "--yes"]) == 0
    text = (tmp_path / "work" / ".vscode" / "mcp.json").read_text(encoding="utf-8")
    assert '"servers"' in text and '"type": "stdio"' in text


def test_a_configuration_in_an_unusual_place_is_named_in_the_entry(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("servers: {a: {command: x}}\n", encoding="utf-8")
    assert main(["install", "cursor", "--config", str(config), "--yes"]) == 0
    entry = entries(home / ".cursor" / "mcp.json", "cursor", home)["narrow-waist"]
    assert entry["args"][-2:] == ["--config", str(config)]  # type: ignore[index]


READERS = """\
servers: {a: {command: x}}
profiles: {reader: {read_only: true}, writer: {}}
"""


def configured(home: Path) -> None:
    ours(home).parent.mkdir(parents=True, exist_ok=True)
    ours(home).write_text(READERS, encoding="utf-8")


def words(home: Path, name: str = "cursor") -> list[str]:
    """What the entry gives us."""
    path = program(name).places(Surroundings(home, home / "none", {}, "linux"))[0].file
    entry = entries(path, name, home)["narrow-waist"]
    return list(read_entry(entry, program(name).dialect).args)


@pytest.mark.parametrize("program_", PROGRAMS, ids=lambda p: p.name)
def test_a_profile_is_in_the_entry_and_another_one_takes_its_place(program_: Program, home: Path) -> None:
    """It was dropped without a word: who asked for a client that only reads got one that may do everything."""
    configured(home)
    name = program_.name
    assert main(["install", name, "--profile", "reader", "--yes"]) == 0
    assert words(home, name)[-2:] == ["--profile", "reader"]
    assert main(["install", name, "--profile", "writer", "--yes"]) == 0
    assert words(home, name)[-2:] == ["--profile", "writer"] and "reader" not in words(home, name)
    assert main(["uninstall", name, "--yes"]) == 0
    assert not program_.places(Surroundings(home, home / "none", {}, "linux"))[0].file.exists()


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("--profile reader install cursor", ["--profile", "reader"]),
        ("install cursor --profile reader --profile writer", ["--profile", "reader", "--profile", "writer"]),
        ("--profile reader install cursor --profile writer", ["--profile", "reader", "--profile", "writer"]),
        ("install cursor -v --profile reader", ["--profile", "reader", "--verbose"]),
        ("--demo install cursor", ["--demo"]),
    ],
)
def test_what_is_said_of_serving_is_in_the_entry_wherever_it_stands(line: str, given: list[str], home: Path) -> None:
    configured(home)
    assert main([*line.split(), "--yes"]) == 0
    assert words(home)[-len(given) :] == given and "--config" not in words(home)


def test_an_entry_with_its_profile_is_there_already_and_one_without_says_what_it_loses(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(home)
    assert main(["install", "cursor", "--profile", "reader", "--yes"]) == 0
    assert "narrow-waist doctor cursor --profile reader" in capsys.readouterr().out
    assert main(["install", "cursor", "--profile", "reader", "--yes"]) == 0
    assert "has this entry already" in capsys.readouterr().out
    assert main(["install", "cursor", "--yes"]) == 0
    assert "had --profile reader" in capsys.readouterr().out
    assert "--profile" not in words(home)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("install cursor --profile raeder", "no profile 'raeder' in the configuration; there are: reader, writer"),
        ("install cursor --demo --profile reader", "no profile 'reader' in the configuration; there are: none"),
        ("install cursor --demo --move", "--demo and --move"),
        ("uninstall cursor --profile reader", "--profile means nothing for uninstall"),
        ("--profile reader import cursor", "--profile means nothing for import"),
        ("import cursor --demo", "--demo means nothing for import"),
        ("--http 127.0.0.1:1 install cursor", "--http before a command means nothing"),
    ],
)
def test_what_cannot_be_in_an_entry_is_refused_in_one_line(
    line: str, says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(home)
    path = put(home, "cursor")
    before = path.read_bytes()
    assert main([*line.split(), "--yes"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert path.read_bytes() == before and not backups(path)


def test_a_profile_without_a_configuration_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(home, "cursor")
    assert main(["install", "cursor", "--profile", "reader", "--yes"]) == 2
    error = capsys.readouterr().err
    assert str(ours(home)) in error and error.count("\n") == 1 and not backups(path)
