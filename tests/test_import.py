"""`import`: every program's real file and words, no secret printed or written, nothing overwritten unasked."""

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.cli import main
from proxy.config import load
from proxy.hosts.collecting import config_entry
from proxy.hosts.launches import Dialect, read_entry
from proxy.hosts.problem import HostFileError
from proxy.hosts.programs import PROGRAMS, Surroundings, program
from proxy.hosts.secrets import Vault, without_secrets

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"

FILES: dict[str, tuple[str, str]] = {
    "claude-code": (
        ".claude.json",
        """{"numStartups": 3, "mcpServers": {
            "github": {"type": "stdio", "command": "npx", "args": ["-y", "server-github"],
                       "env": {"GITHUB_TOKEN": "SECRET", "HOSTED": "${HOSTED:-no}"}},
            "docs": {"type": "http", "url": "https://x.example/mcp",
                     "headers": {"Authorization": "Bearer SECRET"}}}}""",
    ),
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        """{"mcpServers": {
            "github": {"command": "npx", "args": ["-y", "server-github"],
                       "env": {"GITHUB_TOKEN": "SECRET", "HOSTED": "${HOSTED:-no}"}},
            "docs": {"type": "http", "url": "https://x.example/mcp",
                     "headers": {"Authorization": "Bearer SECRET"}}}}""",
    ),
    "codex": (
        ".codex/config.toml",
        """
model = "m"
[mcp_servers.github]
command = "npx"
args = ["-y", "server-github"]
startup_timeout_sec = 20
[mcp_servers.github.env]
GITHUB_TOKEN = "SECRET"
HOSTED = "no"
[mcp_servers.docs]
url = "https://x.example/mcp"
bearer_token_env_var = "DOCS_TOKEN"
""",
    ),
    "cursor": (
        ".cursor/mcp.json",
        """{"mcpServers": { // mine
            "github": {"command": "npx", "args": ["-y", "server-github"],
                       "env": {"GITHUB_TOKEN": "${env:GITHUB_TOKEN}", "HOSTED": "no"}},
            "docs": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer SECRET"}},}}""",
    ),
    "gemini": (
        ".gemini/settings.json",
        """{"theme": "x", "mcpServers": {
            "github": {"command": "npx", "args": ["-y", "server-github"], "timeout": 60000, "trust": true,
                       "env": {"GITHUB_TOKEN": "$GITHUB_TOKEN", "HOSTED": "no"}},
            "docs": {"httpUrl": "https://x.example/mcp",
                     "headers": {"Authorization": "Bearer SECRET"}}}}""",
    ),
    "hermes": (
        ".hermes/config.yaml",
        """
model: {default: m}
mcp_servers:
  github:
    command: npx
    args: ["-y", server-github]
    env: {GITHUB_TOKEN: SECRET, HOSTED: "no"}
  docs:
    url: https://x.example/mcp
    headers: {Authorization: Bearer SECRET}
""",
    ),
    "opencode": (
        ".config/opencode/opencode.jsonc",
        """{"mcp": {
            "github": {"type": "local", "command": ["npx", "-y", "server-github"], "enabled": true,
                       "environment": {"GITHUB_TOKEN": "{env:GITHUB_TOKEN}", "HOSTED": "no"}},
            "docs": {"type": "remote", "url": "https://x.example/mcp",
                     "headers": {"Authorization": "Bearer SECRET"}}}}""",
    ),
    "vscode": (
        ".config/Code/User/mcp.json",
        """{"inputs": [{"id": "github-token"}], "servers": {
            "github": {"type": "stdio", "command": "npx", "args": ["-y", "server-github"],
                       "env": {"GITHUB_TOKEN": "${input:github-token}", "HOSTED": "no"}},
            "docs": {"type": "http", "url": "https://x.example/mcp",
                     "headers": {"Authorization": "Bearer SECRET"}}}}""",
    ),
    "windsurf": (
        ".codeium/windsurf/mcp_config.json",
        """{"mcpServers": {
            "github": {"command": "npx", "args": ["-y", "server-github"],
                       "env": {"GITHUB_TOKEN": "SECRET", "HOSTED": "no"}},
            "docs": {"serverUrl": "https://x.example/mcp",
                     "headers": {"Authorization": "Bearer SECRET"}}}}""",
    ),
    "zed": (
        ".config/zed/settings.json",
        """{"vim_mode": true, // yes
            "context_servers": {
            "github": {"source": "custom", "command": {"path": "npx", "args": ["-y", "server-github"]},
                       "env": {"GITHUB_TOKEN": "SECRET", "HOSTED": "no"}},
            "docs": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer SECRET"}},}}""",
    ),
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without any of the files of the one who runs the tests."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    for name in list(os.environ):
        if name.startswith(("XDG_", "CODEX_", "CLAUDE_", "HERMES_", "NARROW_WAIST", "GITHUB_", "DOCS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NARROW_WAIST_CONFIG", str(ours(home)))
    at = Surroundings(home, work, os.environ, "linux")
    monkeypatch.setattr("proxy.cli.importing.surroundings", lambda: at)
    monkeypatch.chdir(work)
    return home


def put(home: Path, name: str) -> Path:
    file, text = FILES[name]
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("SECRET", SECRET), encoding="utf-8")
    return path


def ours(home: Path) -> Path:
    return home / ".config" / "narrow-waist" / "upstreams.yaml"


@pytest.mark.parametrize("name", FILES)
def test_every_programs_file_is_read_and_its_secrets_become_references(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(home, name)
    before = path.read_bytes()
    assert main(["import", name, "--yes"]) == 0
    printed = capsys.readouterr().out
    text = ours(home).read_text(encoding="utf-8")
    assert SECRET not in printed and SECRET not in text
    assert path.read_bytes() == before
    servers = yaml.safe_load(text)["servers"]
    assert servers["github"]["command"] == "npx"
    assert servers["github"]["args"] == ["-y", "server-github"]
    assert servers["github"]["env"]["GITHUB_TOKEN"] == "${GITHUB_TOKEN}"
    assert servers["github"]["env"]["HOSTED"] in ("no", "${HOSTED:-no}")
    assert servers["docs"] == {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}
    assert "export GITHUB_TOKEN=..." in printed and "export DOCS_TOKEN=..." in printed
    settings = load(ours(home), {"GITHUB_TOKEN": "t" * 20, "DOCS_TOKEN": "d" * 20})
    assert [server.problem for server in settings.servers] == [None, None]
    assert not settings.warnings


def test_every_program_that_can_be_imported_from_has_a_test() -> None:
    assert set(FILES) == {p.name for p in PROGRAMS}


def test_the_same_server_in_several_programs_is_one_and_a_different_one_gets_another_name(home: Path) -> None:
    for name in ("claude-desktop", "hermes", "windsurf", "zed"):
        put(home, name)
    assert main(["import", "--yes"]) == 0
    servers = yaml.safe_load(ours(home).read_text(encoding="utf-8"))["servers"]
    # Claude Desktop's entry differs in one variable from the three others, which are the same
    assert set(servers) == {"github", "docs", "github-hermes"}


def test_nothing_is_written_without_a_yes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home, "cursor")
    for options, code in (([], 1), (["--dry-run"], 0), (["--dry-run", "--yes"], 0)):
        assert main(["import", *options]) == code
        assert "Nothing was written" in capsys.readouterr().out
    assert not ours(home).exists()


def test_what_is_in_the_configuration_stays_byte_for_byte(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours(home).parent.mkdir(parents=True)
    text = "# mine\nservers:\n  github:   # the fork\n    command: my-github\n\ntool_search: {listing: off}\n"
    ours(home).write_text(text, encoding="utf-8")
    put(home, "cursor")
    assert main(["import", "--yes"]) == 0
    after = ours(home).read_text(encoding="utf-8")
    assert yaml.safe_load(after)["servers"].keys() == {"github", "github-cursor", "docs"}
    head, tail = text.split("\n\n")
    assert after.startswith(head) and after.endswith(tail)
    capsys.readouterr()
    assert main(["import", "--yes"]) == 0
    assert "nothing to add" in capsys.readouterr().out
    assert ours(home).read_text(encoding="utf-8") == after
    backups = list(ours(home).parent.glob("*backup"))
    assert [b.read_text(encoding="utf-8") for b in backups] == [text]


def test_a_broken_file_is_left_alone_with_its_place_and_the_others_are_imported(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home, "cursor")
    broken = put(home, "zed")
    broken.write_text('{"context_servers": {', encoding="utf-8")
    assert main(["import", "--yes"]) == 0
    assert "left alone: is not valid JSON" in capsys.readouterr().out
    assert broken.read_text(encoding="utf-8") == '{"context_servers": {'


def test_a_broken_configuration_of_ours_is_not_touched(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours(home).parent.mkdir(parents=True)
    ours(home).write_text("servers: [", encoding="utf-8")
    put(home, "cursor")
    assert main(["import", "--yes"]) == 2
    assert "not valid YAML" in capsys.readouterr().err
    assert ours(home).read_text(encoding="utf-8") == "servers: ["


def test_a_configuration_of_ours_with_an_error_stays_as_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours(home).parent.mkdir(parents=True)
    ours(home).write_text("servers: {a: {command: x, colour: red}}\n", encoding="utf-8")
    put(home, "cursor")
    assert main(["import", "--yes"]) == 2
    error = capsys.readouterr().err
    assert "unknown key 'colour'" in error and f"{ours(home)}:1" in error
    assert [p.name for p in ours(home).parent.iterdir()] == ["upstreams.yaml"]
    assert "colour" in ours(home).read_text(encoding="utf-8")


def test_secrets_that_stand_in_our_configuration_are_not_printed_either(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours(home).parent.mkdir(parents=True)
    ours(home).write_text("servers:\n  a:\n    command: x\n    env: {A_TOKEN: hunter2}\n", encoding="utf-8")
    put(home, "cursor")
    assert main(["import", "--yes"]) == 0
    printed = capsys.readouterr().out
    assert "A_TOKEN" in printed and "hunter2" not in printed


def test_our_own_entry_and_what_cannot_be_started_are_named_and_left_out(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(
        '{"mcpServers": {"hub": {"command": "uvx", "args": ["narrow-waist"]}, "odd": {}, "worse": 3}}', encoding="utf-8"
    )
    assert main(["import", "--yes"]) == 0
    printed = capsys.readouterr().out
    assert "hub: not imported: this proxy itself" in printed
    assert "odd: not imported: has neither" in printed and "worse: not imported" in printed
    assert not ours(home).exists()


def test_a_file_elsewhere_is_read_in_the_words_of_the_host_that_is_named(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"mcp": {"a": {"type": "local", "command": ["x", "y"], "enabled": false}}}', encoding="utf-8")
    assert main(["import", "opencode", "--from", str(file), "--yes"]) == 0
    servers = yaml.safe_load(ours(home).read_text(encoding="utf-8"))["servers"]
    assert servers == {"a": {"command": "x", "args": ["y"], "enabled": False}}


def test_an_unknown_host_is_refused_with_the_nearest_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "curser"]) == 2
    assert "did you mean 'cursor'" in capsys.readouterr().err


# Words and secrets.


@pytest.mark.parametrize(
    ("dialect", "entry", "expected"),
    [
        (Dialect.GEMINI, {"url": "http://h/sse"}, {"url": "http://h/sse", "transport": "sse"}),
        (Dialect.PLAIN, {"type": "sse", "url": "http://h/sse"}, {"url": "http://h/sse", "transport": "sse"}),
        (Dialect.PLAIN, {"command": "x", "disabled": True}, {"command": "x", "enabled": False}),
        (Dialect.GEMINI, {"command": "x", "includeTools": ["a"]}, {"command": "x", "tools": {"include": ["a"]}}),
        (Dialect.CODEX, {"command": "x", "enabled_tools": []}, {"command": "x", "tools": {"include": []}}),
        (Dialect.CODEX, {"command": "x", "tool_timeout_sec": 90}, {"command": "x", "timeout": 90}),
        (Dialect.GEMINI, {"command": "x", "timeout": 1500}, {"command": "x", "timeout": 1.5}),
        (Dialect.HERMES, {"command": "x", "timeout": 120}, {"command": "x", "timeout": 120}),
        (Dialect.HERMES, {"command": "x", "lazy": False}, {"command": "x", "lazy": False}),
        (Dialect.HERMES, {"command": "x", "tools": {"prompts": False}}, {"command": "x", "prompts": False}),
        (Dialect.HERMES, {"command": "x", "tools": {"resources": False}}, {"command": "x", "resources": False}),
        (Dialect.CODEX, {"command": "x", "env_vars": ["A"]}, {"command": "x", "env": {"A": "${A}"}}),
        (Dialect.CODEX, {"command": "x", "args": ["${A}"]}, {"command": "x", "args": ["$${A}"]}),
        (Dialect.PLAIN, {"command": "${userHome}/x"}, {"command": "${HOME}/x"}),
        (
            Dialect.CODEX,
            {"url": "http://h/mcp", "env_http_headers": {"X-Key": "KEY"}},
            {"url": "http://h/mcp", "headers": {"X-Key": "${KEY}"}},
        ),
    ],
)  # fmt: skip
def test_a_programs_words_mean_the_same_here(dialect: Dialect, entry: dict[str, Any], expected: dict[str, Any]) -> None:
    assert config_entry(read_entry(entry, dialect)) == expected


@pytest.mark.parametrize("entry", [None, 3, {}, {"env": {}}, {"command": ""}, {"type": "http"}])
def test_an_entry_that_can_start_nothing_is_refused(entry: object) -> None:
    with pytest.raises(HostFileError):
        read_entry(entry, Dialect.PLAIN)


SECRETS = [
    ({"command": "x", "env": {"API_KEY": "v4lue"}}, "v4lue"),
    ({"command": "x", "env": {"DB_PASSWORD": "pw"}}, "pw"),
    ({"command": "x", "env": {"SETTING": SECRET}}, SECRET),
    ({"command": "x", "env": {"DATABASE_URL": "postgres://me:hunter2@db/x"}}, "hunter2"),
    ({"command": "x", "args": ["--token", "t0ken"]}, "t0ken"),
    ({"command": "x", "args": ["--api-key=t0ken"]}, "t0ken"),
    ({"command": "x", "args": ["--header", "Authorization: Bearer t0ken"]}, "t0ken"),
    ({"command": "x", "args": ["postgres://me:hunter2@db/x"]}, "hunter2"),
    ({"command": "x", "args": [SECRET]}, SECRET),
    ({"url": "https://h/mcp?api_key=t0ken&x=1"}, "t0ken"),
    ({"url": f"https://h/s/{SECRET}/mcp"}, SECRET),
    ({"url": "https://h/mcp", "headers": {"X-Whatever": "t0ken"}}, "t0ken"),
]


@pytest.mark.parametrize(("entry", "secret"), SECRETS)
def test_a_secret_is_a_reference_wherever_it_stands(entry: dict[str, Any], secret: str) -> None:
    vault = Vault({})
    launch, exports = without_secrets(read_entry(entry, Dialect.PLAIN), "srv", vault)
    written = str(config_entry(launch))
    assert secret not in written
    assert [vault.values[e.variable] for e in exports] == [secret]
    assert f"${{{exports[0].variable}}}" in written


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"LOG_LEVEL": "debug", "KEY_FILE": "/etc/key.pem", "AUTH_MODE": "oauth"}},
        {"command": "x", "env": {"USE_TOKEN": "true", "PROJECT_ID": "my-project", "API_URL": "https://h/api"}},
        {
            "command": "npx",
            "args": ["-y", "@scope/package@1.2.3", "--port", "8080", "/a/long/path/to/a/folder"],
        },
        {"url": "https://mcp.example.com/v1/mcp?region=eu", "headers": {"Content-Type": "application/json"}},
    ],
)
def test_what_is_no_secret_stays_readable(entry: dict[str, Any]) -> None:
    launch, exports = without_secrets(read_entry(entry, Dialect.PLAIN), "srv", Vault({}))
    assert not exports
    assert config_entry(launch) == entry


def test_two_secrets_of_one_name_get_two_variables() -> None:
    vault = Vault({"API_KEY": "of the shell"})
    names = []
    for server in ("a", "b"):
        entry = {"command": "x", "env": {"API_KEY": f"of {server}"}}
        names += [e.variable for e in without_secrets(read_entry(entry, Dialect.PLAIN), server, vault)[1]]
    assert names == ["A_API_KEY", "B_API_KEY"]


# Places.


@pytest.mark.parametrize(
    ("name", "platform", "expected"),
    [
        ("claude-desktop", "darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "AppData/Roaming/Code/User/mcp.json"),
        ("zed", "darwin", ".config/zed/settings.json"),
        ("zed", "win32", "AppData/Roaming/Zed/settings.json"),
        ("codex", "win32", ".codex/config.toml"),
        ("cursor", "darwin", ".cursor/mcp.json"),
    ],
)
def test_files_are_where_each_platform_keeps_them(name: str, platform: str, expected: str, tmp_path: Path) -> None:
    at = Surroundings(tmp_path, tmp_path / "project", {}, platform)
    assert program(name).places(at)[0].file == tmp_path / expected


def test_folders_named_by_variables_are_looked_into(tmp_path: Path) -> None:
    at = Surroundings(tmp_path, tmp_path, {"CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/d", "HERMES_HOME": "/h"}, "linux")
    assert program("codex").places(at)[0].file == Path("/c/config.toml")
    assert program("claude-code").places(at)[0].file == Path("/d/.claude.json")
    assert program("hermes").places(at)[0].file == Path("/h/config.yaml")


def test_the_options_name_every_program() -> None:
    from proxy.cli import parser

    actions = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    install = actions["install"]
    assert isinstance(install, argparse.ArgumentParser)
    text = " ".join(install.format_help().split()).replace("- ", "-")
    assert all(p.name in text for p in PROGRAMS)
