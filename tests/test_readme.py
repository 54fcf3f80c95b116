"""The README does what it says: every snippet parses and starts, every command of ours runs."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from guarded_house import upstream
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from proxy.config import load
from proxy.errors import ConfigError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OURS = str(Path(sys.executable).with_name("narrow-waist"))
HOSTS = ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "Codex", "Gemini CLI", "opencode", "Hermes Agent")
PARSERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def blocks(*languages: str) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks in these languages."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [(language, text) for language, text in found if language in languages]


def launches(value: Any) -> Iterator[list[str]]:
    """Every way a parsed client configuration starts us, as the words of a command line."""
    if isinstance(value, Mapping):
        command = value.get("command")
        if command:
            words = command if isinstance(command, list) else [command, *value.get("args", [])]
            if "narrow-waist" in words:
                yield words
        for child in value.values():
            yield from launches(child)


def installed(words: list[str]) -> list[str]:
    """The same launch with the installed console script; `uvx` would fetch a published release."""
    assert words[:2] == ["uvx", "narrow-waist"], words
    return [OURS, *words[2:]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The first example, with a stand-in that lists what mcp-server-time lists."""
    tools = json.loads((ROOT / "tests" / "catalogs" / "time.json").read_text(encoding="utf-8"))["tools"]
    path = tmp_path / "upstreams.yaml"
    path.write_text(
        yaml.safe_dump({"servers": {"time": upstream(tmp_path / "time", {"tools": tools})}}), encoding="utf-8"
    )
    return path


def environment(tmp_path: Path, config: Path) -> dict[str, str]:
    """No files of the person who runs the tests are read or written."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "NARROW_WAIST_CONFIG": str(config),
    }


def test_every_host_has_a_snippet_that_parses_and_launches_us() -> None:
    section = README.split("## Register it in a client")[1].split("\n## ")[0]
    for host in HOSTS:
        assert f"**{host}**" in section
        language, text = re.findall(
            r"^```(json|toml|yaml)\n(.*?)^```$", section.split(f"**{host}**")[1], flags=re.DOTALL | re.MULTILINE
        )[0]
        assert list(launches(PARSERS[language](text))), host


async def test_every_launch_of_the_snippets_shows_three_tools(tmp_path: Path, config: Path) -> None:
    commands = {tuple(installed(w)) for language, t in blocks(*PARSERS) for w in launches(PARSERS[language](t))}
    assert commands
    for command in commands:
        parameters = StdioServerParameters(
            command=command[0], args=list(command[1:]), env=environment(tmp_path, config), cwd=tmp_path
        )
        with anyio.fail_after(30):
            async with Client(stdio_client(parameters)) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["tool_search", "tool_describe", "tool_call"]


def test_the_example_configuration_is_read_without_a_warning(tmp_path: Path) -> None:
    examples = [text for _, text in blocks("yaml") if text.startswith("servers:")]
    assert examples
    for number, text in enumerate(examples):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        settings = load(path, {"GITHUB_TOKEN": "t" * 20, "DOCS_TOKEN": "d" * 20})
        assert settings.servers and not settings.warnings
        assert not any(server.problem for server in settings.servers)


def test_the_first_example_needs_no_key_and_no_address() -> None:
    text = next(text for _, text in blocks("yaml") if text.startswith("servers:"))
    assert yaml.safe_load(text) == {"servers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}


def commands() -> list[list[str]]:
    lines = "".join(text for _, text in blocks("sh")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def test_the_readme_shows_the_first_subcommands_of_a_newcomer() -> None:
    assert {"check", "list", "search", "describe", "call"} <= {w[1] for w in commands() if w[0] == "narrow-waist"}


@pytest.mark.parametrize("words", [w for w in commands() if w[0] == "narrow-waist"], ids=" ".join)
def test_a_command_of_ours_runs(words: list[str], tmp_path: Path, config: Path) -> None:
    done = subprocess.run(
        [OURS, *words[1:]],
        capture_output=True, text=True, timeout=50, check=False, cwd=tmp_path, env=environment(tmp_path, config),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "time" in done.stdout


def test_every_other_command_is_a_script_that_ci_runs() -> None:
    scripts = {words[0] for words in commands() if words[0] != "narrow-waist"}
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o111, f"{script} is not executable"
        assert script == ".ci/run" or script in ci


def keys_of_table(title: str) -> set[str]:
    table = README.split(title)[1].split("\n\n")[1]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in first_cells for name in re.findall(r"`(\w+)", cell)}


def valid_keys(tmp_path: Path, text: str) -> set[str]:
    """The keys that are valid where `text` has the key `zzzz`, as the error about it lists them."""
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="valid here") as raised:
        load(path, {})
    return set(str(raised.value).split("valid here: ")[1].split(", "))


def test_the_reference_names_every_key_and_no_other(tmp_path: Path) -> None:
    of_server = valid_keys(tmp_path, "servers: {a: {command: x, zzzz: 1}}")
    of_search = valid_keys(tmp_path, "tool_search: {zzzz: 1}")
    assert keys_of_table("For each server, below") == of_server
    assert keys_of_table("Below `tool_search:`") == of_search


def test_the_map_of_the_source_names_what_is_there_and_every_package() -> None:
    section = README.split("## Development")[1]
    named = set(re.findall(r"(?:proxy|scripts|tests|\.ci)/[\w./-]*\w", section))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    packages = {path.parent.name for path in (ROOT / "proxy").glob("*/__init__.py")}
    aside = {"data", "demo", "signature", "tokens"}  # nothing passes through them on the two journeys
    assert [name for name in sorted(packages - aside) if f"proxy/{name}/" not in section] == []
    modules = {path.name for path in (ROOT / "proxy").rglob("*.py")}
    assert [name for name in re.findall(r"`(\w+\.py)`", section) if name not in modules] == []
