"""What upstreams.yaml means: the strict side of the loader, its errors, and YAML's traps."""

import importlib.util
import sys
from pathlib import Path

import pytest

from proxy.config import ServerConfig, Settings, find, load
from proxy.config.loader import user_file
from proxy.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path):
    def write_and_load(text: str, name: str = "upstreams.yaml", **environ: str) -> Settings:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return load(file, environ, home=Path("/home/me"))

    return write_and_load


@pytest.fixture
def server(config):
    def one(block: str, **environ: str) -> ServerConfig:
        indented = "".join(f"    {line}\n" for line in block.strip().splitlines())
        return config(f"servers:\n  s:\n{indented}", **environ).servers[0]

    return one


FULL = """
servers:
  github:
    command: npx
    args: [-y, "@modelcontextprotocol/server-github"]
    env: {GITHUB_TOKEN: "${GITHUB_TOKEN}"}
    description: issues, pull requests, code
    tools: {include: ["*"], exclude: ["delete_*"]}
    deny: [admin_*]
    pinned: [get_me]
    cwd: work
  docs:
    url: https://example.com/mcp
    headers: {Authorization: "Bearer ${DOCS_TOKEN}"}
    enabled: true
    timeout: 200
    connect_timeout: 20
    max_concurrency: 4
    mode: legacy
    validate: warn
    inherit_env: [NVM_DIR]
    lazy: false
    retry: true
    transport: sse
tool_search:
  enabled: on
  threshold_pct: 7.5
  context_length: 128000
  listing: off
  listing_max_tokens: 9000
  search_default_limit: 7
  max_search_limit: 30
  eager_below_tokens: 500
  names: {search: find_tool, describe: read_tool, call: run_tool}
  host_row: claude-code
  tokenizer: estimate
  announce_changes: never
first_list_wait: 2.5
allowed_hosts: [proxy.example.com]
"""


def test_every_documented_key_arrives(config, tmp_path):
    settings = config(FULL, GITHUB_TOKEN="ghp_0123456789", DOCS_TOKEN="docs-secret")
    docs, github = settings.servers
    assert (github.key, github.transport, github.command) == ("github", "stdio", "npx")
    assert github.args == ("-y", "@modelcontextprotocol/server-github")
    assert github.env == {"GITHUB_TOKEN": "ghp_0123456789"}
    assert github.description == "issues, pull requests, code"
    assert (github.include, github.exclude) == (("*",), ("delete_*",))
    assert (github.deny, github.pinned) == (("admin_*",), ("get_me",))
    assert github.cwd == tmp_path / "work"
    assert (docs.transport, docs.url) == ("sse", "https://example.com/mcp")
    assert docs.headers == {"Authorization": "Bearer docs-secret"}
    assert (docs.timeout, docs.connect_timeout, docs.max_concurrency) == (200, 20, 4)
    assert (docs.mode, docs.validate, docs.lazy, docs.retry) == ("legacy", "warn", False, True)
    assert docs.inherit_env == ("NVM_DIR",)
    search = settings.tool_search
    assert (search.enabled, search.threshold_pct, search.context_length) == ("on", 7.5, 128_000)
    assert (search.listing, search.listing_max_tokens) == ("off", 9000)
    assert (search.search_default_limit, search.max_search_limit, search.eager_below_tokens) == (7, 30, 500)
    assert (search.search_name, search.describe_name, search.call_name) == ("find_tool", "read_tool", "run_tool")
    assert (search.host_row, search.tokenizer, search.announce_changes) == ("claude-code", "estimate", "never")
    assert settings.first_list_wait == 2.5
    assert settings.allowed_hosts == ("proxy.example.com",)
    assert settings.warnings == ()
    assert [s.problem for s in settings.servers] == [None, None]


def test_defaults_are_those_of_the_documentation(server):
    s = server("command: x")
    assert (s.timeout, s.connect_timeout, s.max_concurrency) == (300, 30, 0)
    assert (s.mode, s.validate, s.inherit_env, s.lazy, s.retry, s.enabled) == ("auto", None, False, True, False, True)
    assert (s.include, s.exclude, s.deny, s.pinned) == (("*",), (), (), ())


@pytest.mark.parametrize("root", ["servers", "mcp_servers", "mcpServers"])
def test_the_three_names_of_the_server_block_are_synonyms(config, root):
    assert [s.key for s in config(f"{root}:\n  a: {{command: x}}\n").servers] == ["a"]


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("servers:\n  a:\n    comand: npx\n", 3, "servers.a.comand", "did you mean 'command'?"),
        ("servers:\n  a:\n    type: http\n    url: http://x\n", 3, "servers.a.type", "did you mean 'transport'?"),
        ("servers:\n  a: {command: x, disabled: true}\n", 2, "servers.a.disabled", "did you mean 'enabled'?"),
        ("servers:\n  a: {command: x, zzz: 1}\n", 2, "servers.a.zzz", "valid here: aliases, args, c"),
        ("servers:\n  a: {command: x, tools: {includes: [b]}}\n", 2, "servers.a.tools.includes", "'include'"),
        ("servers:\n  a: {command: x, tools: [b]}\n", 2, "servers.a.tools", "expected `include:` and `exclude:`"),
        ("server:\n  a: {command: x}\n", 1, "server", "did you mean 'servers'?"),
        ("github:\n  command: x\n", 1, "github", "move it below `servers:`"),
        ("servers:\n  a:\n    args: [x]\n", 2, "servers.a", "needs `command`"),
        ("servers:\n  a: {command: x, url: http://y}\n", 2, "servers.a.url", "not both"),
        ("servers:\n  a: {command: x, transport: http}\n", 2, "servers.a", "needs `url`"),
        ("servers:\n  a: {url: http://x, transport: stdio}\n", 2, "servers.a", "needs `command`"),
        ("servers:\n  a: {url: http://x, transport: websocket}\n", 2, "servers.a.transport", "one of stdio, http, sse"),
        ("servers:\n  a: {url: example.com/mcp}\n", 2, "servers.a.url", "starts with http:// or https://"),
        ("servers:\n  a: {command: ''}\n", 2, "servers.a.command", "expected a program"),
        ("servers:\n  a: npx\n", 2, "servers.a", "expected a mapping"),
        ("servers:\n  a:\n", 2, "servers.a", "needs `command`"),
        ("servers: [a]\n", 1, "servers", "one `name:` per server"),
        ("servers:\n  a: {command: x, timeout: soon}\n", 2, "servers.a.timeout", "a number more than 0"),
        ("servers:\n  a: {command: x, timeout: 0}\n", 2, "servers.a.timeout", "a number more than 0"),
        ("servers:\n  a: {command: x, timeout: .nan}\n", 2, "servers.a.timeout", "a number"),
        ("servers:\n  a: {command: x, max_concurrency: -1}\n", 2, "servers.a.max_concurrency", "at least 0"),
        ("servers:\n  a: {command: x, lazy: maybe}\n", 2, "servers.a.lazy", "true or false"),
        ("servers:\n  a: {command: x, mode: new}\n", 2, "servers.a.mode", "one of auto, legacy, modern"),
        ("servers:\n  a: {command: x, validate: hard}\n", 2, "servers.a.validate", "one of strict, warn, off"),
        ("servers:\n  a: {command: x, args: {b: 1}}\n", 2, "servers.a.args", "a list of strings"),
        ("servers:\n  a: {command: x, env: [b]}\n", 2, "servers.a.env", "expected a mapping"),
        ("servers:\n  a: {command: x, env: {A=B: c}}\n", 2, "servers.a.env", "environment variable"),
        ("servers:\n  a: {command: x, description: [b]}\n", 2, "servers.a.description", "a string"),
        ("servers:\n  narrow_waist: {command: x}\n", 2, "servers.narrow_waist", "reserved"),
        ("servers:\n  '': {command: x}\n", 2, "servers", "needs a name"),
        ("servers:\n  a: {command: x}\n  a: {command: y}\n", 3, "servers.a", "given twice (first in line 2)"),
        ("servers:\n  a: {command: x}\nmcp_servers:\n  a: {command: y}\n", 4, "mcp_servers.a", "given twice"),
        ("servers:\n  a: {command: x, env: {B: 1, B: 2}}\n", 2, "servers.a.env.B", "given twice"),
        ("tool_search: {lisitng: on}\n", 1, "tool_search.lisitng", "did you mean 'listing'?"),
        ("tool_search: {names: {find: x}}\n", 1, "tool_search.names.find", "valid here: call, describe, search"),
        ("tools: {tool_serach: true}\n", 1, "tools.tool_serach", "did you mean 'tool_search'?"),
        ("tool_search: true\ntools: {tool_search: true}\n", 2, "tools.tool_search", "given twice"),
        ("first_list_wait: -1\n", 1, "first_list_wait", "at least 0"),
        ("allowed_hosts: ['${NOWHERE}']\n", 1, "allowed_hosts[0]", "NOWHERE is not set"),
        ("servers:\n\ta: {command: x}\n", 2, "", "no tabs"),
        ("servers:\n  a: {command: \"x\x01\"}\n", 2, "", "unacceptable character"),
        ("servers:\n  a: [1\n", 3, "", "not valid YAML"),
        ("servers:\n  a: &x {command: x, env: *x}\n", 2, "servers.a.env", "contains itself"),
        ("servers:\n  ? [a]\n  : {command: x}\n", 2, "servers", "plain word"),
        ("- a\n", 1, "", "expected a mapping"),
        ("servers:\n  a: {command: x, env: {A: !secret b}}\n", 2, "servers.a.env.A", "the tag '!secret'"),
        ("servers:\n  a: !!python/object:os.x {}\n", 2, "servers.a", "the tag '!!python/object:os.x'"),
        ("servers: {}\n---\nservers: {}\n", 2, "", "found another document"),
        ("servers:\n  a: {command: x, inherit_env: NVM_DIR}\n", 2, "servers.a.inherit_env", "a list of variables"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_key_and_what_was_expected(config, tmp_path, text, line, key, says):
    with pytest.raises(ConfigError) as caught:
        config(text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'upstreams.yaml'}:{line}:")
    assert key in message
    assert says in message


@pytest.mark.parametrize("key", ["storage"])
@pytest.mark.parametrize("name", ["upstreams.yaml", "mcp.json"])
def test_a_reserved_root_key_is_not_silently_passed_over(config, key, name):
    text = f"{key}: {{a: b}}\n" if name.endswith("yaml") else f'{{"{key}": {{"a": "b"}}}}'
    with pytest.raises(ConfigError, match="not supported yet"):
        config(text, name)


# YAML's traps


def test_yaml_booleans_are_understood_wherever_a_switch_is(config, server):
    assert server("command: x\nenabled: off").enabled is False
    assert server("command: x\nenabled: 'off'").enabled is False
    assert server("command: x\nlazy: no").lazy is False
    assert server("command: x\nvalidate: off").validate == "off"
    assert server("command: x\nvalidate: on").validate == "strict"
    assert config("tool_search: {listing: on}\n").tool_search.listing == "on"
    assert config("tool_search: {listing: no, enabled: yes}\n").tool_search.listing == "off"
    assert config("tool_search: {enabled: true}\n").tool_search.enabled == "on"
    assert config("tool_search: {enabled: false}\n").tool_search.enabled == "off"
    assert config("tool_search: {announce_changes: off}\n").tool_search.announce_changes == "never"


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("true", "auto"),
        ("on", "auto"),
        ("false", "off"),
        ("off", "off"),
        ("auto", "auto"),
        ("'on'", "on"),
        ("", "auto"),
    ],
)
def test_tool_search_can_be_one_word(config, text, enabled):
    assert config(f"tool_search: {text}\n").tool_search.enabled == enabled
    assert config(f"tools:\n  tool_search: {text}\n").tool_search.enabled == enabled


def test_strings_keep_the_text_they_were_written_as(server):
    s = server(
        "command: 123\nargs: [-y, 8080, true, 1_000, 0o17, 2024-01-01, ~]\n"
        "env: {A: NO, B: 123, C: 1.0, D: 0x1F, E: '', F: , G: null, on: y}\ndescription: yes"
    )
    assert s.command == "123"
    assert s.args == ("-y", "8080", "true", "1_000", "0o17", "2024-01-01")
    assert s.env == {"A": "NO", "B": "123", "C": "1.0", "D": "0x1F", "E": "", "F": "", "G": "", "on": "y"}
    assert s.description == "yes"


def test_server_keys_keep_their_text(config):
    assert [s.key for s in config("servers:\n  on: {command: x}\n  1: {command: x}\n").servers] == ["1", "on"]


def test_a_key_without_a_value_is_absent(server):
    s = server("command: x\nargs:\nenv:\ntools:\ndeny: null\ntimeout:\nvalidate:\ninherit_env:\nenabled:")
    assert s == server("command: x")


def test_one_word_is_a_list_of_one(server):
    s = server("command: x\nargs: -v\ndeny: delete_*\ntools: {include: get_*}")
    assert (s.args, s.deny, s.include) == (("-v",), ("delete_*",), ("get_*",))


def test_numbers_may_be_written_as_text(server):
    assert server("command: x\ntimeout: '60'").timeout == 60
    assert server("command: x\ntimeout: ${T:-45}").timeout == 45


def test_anchors_and_merge_keys_work(config):
    a, b = config("servers:\n  a: &a {command: x, timeout: 5}\n  b: {<<: *a, timeout: 6}\n").servers
    assert (a.command, a.timeout, b.command, b.timeout) == ("x", 5, "x", 6)


def test_a_bomb_of_aliases_is_read_in_no_time(config):
    lines = ["l0: &l0 [x, x]", *(f"l{i}: &l{i} [*l{i - 1}, *l{i - 1}]" for i in range(1, 40))]
    with pytest.raises(ConfigError, match="unknown key 'l0'"):
        config("\n".join(lines))


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "servers:\n", "servers: {}\n"])
def test_an_empty_configuration_is_a_warning(config, text):
    settings = config(text)
    assert settings.servers == ()
    assert "no servers" in settings.warnings[0]


def test_a_file_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "u.yaml").write_bytes("servers: ä".encode("utf-16"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "u.yaml", {})


def test_a_byte_order_mark_is_no_problem(config):
    assert config("\ufeffservers:\n  a: {command: x}\n").servers[0].key == "a"


# tool_search


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("threshold_pct: 500", "threshold_pct", 100),
        ("threshold_pct: -1", "threshold_pct", 0),
        ("listing_max_tokens: 10", "listing_max_tokens", 200),
        ("listing_max_tokens: 1000000", "listing_max_tokens", 60_000),
        ("max_search_limit: 99", "max_search_limit", 50),
        ("max_search_limit: 0", "max_search_limit", 1),
        ("search_default_limit: 40", "search_default_limit", 20),
        ("context_length: lots", "context_length", 200_000),
        ("context_length: [1]", "context_length", 200_000),
        ("context_length: true", "context_length", 200_000),
        ("listing: perhaps", "listing", "auto"),
        ("tokenizer: cl100k", "tokenizer", "o200k"),
        ("host_row: ${NOWHERE}", "host_row", None),
        ("host_row: claude-kode", "host_row", None),
        ("names: {call: 'bad name'}", "call_name", "tool_call"),
        ("names: {call: 7up}", "call_name", "tool_call"),
        ("names: {call: same, search: same}", "call_name", "tool_call"),
        ("names: {search: tool_call}", "search_name", "tool_search"),
        ("names: tool", "search_name", "tool_search"),
    ],
)
def test_a_bad_value_of_tool_search_is_clamped_with_a_warning(config, text, field, value):
    settings = config(f"servers:\n  a: {{command: x}}\ntool_search:\n  {text}\n")
    assert getattr(settings.tool_search, field) == value
    assert len(settings.warnings) == 1
    assert "upstreams.yaml:4: tool_search" in settings.warnings[0]


def test_a_low_maximum_lowers_the_default_limit_without_a_word(config):
    settings = config("servers:\n  a: {command: x}\ntool_search: {max_search_limit: 3}\n")
    assert settings.tool_search.search_default_limit == 3
    assert settings.warnings == ()


# launching


def test_tilde_and_relative_folders_are_resolved(server, tmp_path):
    s = server("command: ~/bin/x\ncwd: ~/work")
    assert (s.command, s.cwd) == ("/home/me/bin/x", Path("/home/me/work"))
    assert server("command: x\ncwd: sub/dir").cwd == tmp_path / "sub/dir"
    assert server("command: x\ncwd: /abs").cwd == Path("/abs")
    assert server("command: x").cwd is None


def test_a_command_may_be_a_list(server):
    s = server("command: [npx, -y, thing]\nargs: [more]")
    assert (s.command, s.args) == ("npx", ("-y", "thing", "more"))


def test_a_whole_command_line_in_command_is_pointed_out(config):
    settings = config("servers:\n  a: {command: npx -y thing}\n")
    assert "rest in `args`" in settings.warnings[0]


@pytest.mark.parametrize(
    ("block", "transport"),
    [
        ("command: x", "stdio"),
        ("url: https://example.com/sse", "http"),
        ("url: https://example.com/sse\ntransport: sse", "sse"),
        ("url: https://example.com/mcp\ntransport: streamable-http", "http"),
    ],
)
def test_the_transport_is_inferred_unless_it_is_given(server, block, transport):
    assert server(block).transport == transport


def test_the_launch_hash_is_of_the_unexpanded_launch_config_only(server):
    base = "command: x\nargs: [a]\nenv: {T: '${T}'}"
    first = server(base, T="one-value").launch_hash
    assert len(first) == 64
    assert server(base, T="another-value").launch_hash == first
    assert server(f"{base}\ndescription: d\ntimeout: 5\ndeny: [x]\nenabled: false", T="").launch_hash == first
    assert server("command: [x, a]\nenv: {T: '${T}'}", T="").launch_hash == first
    changed = ["command: y\nargs: [a]", "command: x\nargs: [b]", f"{base}\ncwd: /w", f"{base}\nmode: legacy"]
    assert len({first, *(server(c, T="").launch_hash for c in changed)}) == len(changed) + 1


# finding the file


def test_the_file_is_looked_for_in_the_documented_order(tmp_path):
    cwd, home, xdg = tmp_path / "cwd", tmp_path / "home", tmp_path / "xdg"
    by_flag, by_variable = tmp_path / "flag.yaml", tmp_path / "variable.yaml"
    user = xdg / "narrow-waist" / "upstreams.yaml"
    for file in (by_flag, by_variable, cwd / "upstreams.yaml", user):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("servers: {}")
    environ = {"NARROW_WAIST_CONFIG": str(by_variable), "XDG_CONFIG_HOME": str(xdg)}
    assert find(str(by_flag), environ, cwd, home, "linux") == by_flag
    assert find(None, environ, cwd, home, "linux") == by_variable
    environ["NARROW_WAIST_CONFIG"] = ""
    assert find(None, environ, cwd, home, "linux") == user
    user.unlink()
    assert find(None, environ, cwd, home, "linux") == cwd / "upstreams.yaml"


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("linux", ".config/narrow-waist"), ("darwin", "Library/Application Support/narrow-waist")],
)
def test_each_platform_has_its_user_folder(tmp_path, platform, folder):
    file = tmp_path / "home" / folder / "upstreams.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("servers: {}")
    assert find(None, {}, tmp_path, tmp_path / "home", platform) == file


def test_a_missing_file_says_where_it_was_looked_for_and_what_to_do(tmp_path):
    with pytest.raises(ConfigError) as caught:
        find(None, {"XDG_CONFIG_HOME": "/xdg"}, tmp_path, tmp_path / "home", "linux")
    message = str(caught.value)
    for part in (str(tmp_path / "upstreams.yaml"), "/xdg/narrow-waist/upstreams.yaml", "--config", "servers:"):
        assert part in message


def test_a_named_file_that_is_missing_is_not_replaced_by_another(tmp_path):
    (tmp_path / "upstreams.yaml").write_text("servers: {}")
    with pytest.raises(ConfigError, match=r"nope.yaml: no such file \(from --config\)"):
        find("nope.yaml", {}, tmp_path, tmp_path, "linux")
    with pytest.raises(ConfigError, match=r"from \$NARROW_WAIST_CONFIG"):
        find(None, {"NARROW_WAIST_CONFIG": "nope.yaml"}, tmp_path, tmp_path, "linux")
    with pytest.raises(ConfigError, match="is a folder"):
        find(str(tmp_path), {}, tmp_path, tmp_path, "linux")


def test_a_file_that_vanished_is_an_error_of_ours(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "gone.yaml", {})


def test_the_example_at_the_root_runs_as_it_is():
    settings = load(Path(__file__).parent.parent / "upstreams.yaml", {})
    assert settings.warnings == ()
    assert settings.servers
    for s in settings.servers:
        assert (s.problem, s.command, s.args[:2]) == (None, sys.executable, ("-P", "-m"))
        assert importlib.util.find_spec(s.args[2]) is not None


def test_every_key_that_the_example_explains_exists(config):
    text = (Path(__file__).parent.parent / "upstreams.yaml").read_text(encoding="utf-8")
    lines = text.split("# github:")[1].split("#\n  # The rest")[0].splitlines()
    examples = [
        line.removeprefix("  # ").removeprefix("  #") for line in lines if ":" in line and "Streamable" not in line
    ]
    body = "".join(f"  {line}\n" for line in ["github:", *examples])
    settings = config(f"servers:\n{body}", GITHUB_TOKEN="x", DOCS_TOKEN="y")
    assert [s.key for s in settings.servers] == ["docs", "github"]
    assert [s.problem for s in settings.servers] == [None, None]


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("command: narrow-waist, args: [--config, {file}]", True),
        ("command: /opt/bin/narrow-waist, args: [--config={file}, --profile, x]", True),
        ("command: uvx, args: [narrow-waist, --config, upstreams.yaml], cwd: {folder}", True),
        ("command: uvx, args: [narrow-waist], env: {{NARROW_WAIST_CONFIG: {file}}}", True),
        ("command: narrow-waist", False),
        ("command: narrow-waist, args: [--config, {folder}/another.yaml]", False),
        ("command: narrow-waist, args: [--config, {file}, --demo]", False),
        ("command: grep, args: [--config, {file}]", False),
    ],
)
def test_a_server_that_would_start_this_proxy_with_this_file_is_left_out(
    config, tmp_path: Path, words: str, again: bool
) -> None:
    """It started itself, which started itself, and so on: a process a second."""
    block = words.format(file=tmp_path / "upstreams.yaml", folder=tmp_path)
    settings = config(f"servers:\n  me: {{{block}}}\n  other: {{command: x}}\n")
    assert [(s.key, s.enabled) for s in settings.servers] == [("me", not again), ("other", True)]
    assert ["starts narrow-waist with this same file" in warning for warning in settings.warnings] == [True] * again


def test_a_server_that_is_this_proxy_in_a_persons_own_file_is_left_out(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}
    file = user_file(environ, tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text("servers:\n  me: {command: narrow-waist}\n", encoding="utf-8")
    assert not load(file, environ, home=tmp_path).servers[0].enabled
