"""Other clients' files: JSON, and any `mcpServers` block, are read leniently."""

import json
from pathlib import Path

import pytest

from proxy.config import ServerConfig, Settings, load
from proxy.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path):
    def write_and_load(content: object, name: str = "mcp.json", **environ: str) -> Settings:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return load(file, environ, home=Path("/home/me"))

    return write_and_load


@pytest.fixture
def server(config):
    def one(block: dict[str, object], **environ: str) -> ServerConfig:
        return config({"mcpServers": {"s": block}}, **environ).servers[0]

    return one


STDIO = {"command": "npx", "args": ["-y", "thing"]}


@pytest.mark.parametrize(
    "content",
    [
        {"mcpServers": {"s": STDIO}},  # Claude, Cursor, Gemini, Cline, ...
        {"servers": {"s": STDIO}, "inputs": [{"id": "key", "type": "promptString"}]},  # VS Code
        {"mcp": {"servers": {"s": STDIO}}, "editor.fontSize": 12},  # VS Code's settings.json
        {"mcp": {"s": {"type": "local", "command": ["npx", "-y", "thing"]}}},  # opencode
        {"context_servers": {"s": STDIO}},  # Zed
        {"s": STDIO},  # a bare map
    ],
)
def test_every_clients_shape_is_recognised(config, content):
    (s,) = config(content).servers
    assert (s.key, s.transport, s.command, s.args) == ("s", "stdio", "npx", ("-y", "thing"))
    assert s.problem is None


@pytest.mark.parametrize(
    ("block", "transport"),
    [
        ({"url": "http://h/mcp"}, "http"),
        ({"url": "http://h/sse"}, "http"),
        ({"url": "http://h/sse", "type": "sse"}, "sse"),
        ({"url": "http://h/mcp", "type": "streamable-http"}, "http"),
        ({"url": "http://h/mcp", "type": "streamableHttp"}, "http"),
        ({"url": "http://h/mcp", "type": "remote"}, "http"),
        ({"url": "http://h/mcp", "transport": "http"}, "http"),
        ({"httpUrl": "http://h/mcp"}, "http"),
        ({"serverUrl": "http://h/mcp"}, "http"),
        ({"httpUrl": "http://h/mcp", "url": "http://h/mcp"}, "http"),
    ],
)
def test_every_spelling_of_an_address_is_understood(server, block, transport):
    s = server(block)
    assert (s.transport, s.problem) == (transport, None)
    assert s.url is not None and s.url.startswith("http://h/")


def test_disabled_and_enabled_are_honoured(server):
    assert server({**STDIO, "disabled": True}).enabled is False
    assert server({**STDIO, "disabled": False}).enabled is True
    assert server({**STDIO, "enabled": False}).enabled is False


def test_unknown_keys_warn_and_are_passed_over(config):
    settings = config({"mcpServers": {"s": {**STDIO, "trust": True, "alwaysAllow": ["a"]}}, "theme": "dark"})
    assert settings.servers[0].problem is None
    assert any("mcpServers.s: keys that mean nothing here: 'trust', 'alwaysAllow'" in w for w in settings.warnings)
    assert any("'theme'" in w for w in settings.warnings)


def test_hundreds_of_foreign_root_keys_are_one_warning(config):
    settings = config({"mcpServers": {"s": STDIO}, **{f"k{i}": i for i in range(300)}})
    assert len(settings.warnings) == 1
    assert "and 292 more" in settings.warnings[0]


@pytest.mark.parametrize("key", ["excludeTools", "disabledTools", "disabled_tools"])
def test_tools_that_another_client_hides_stay_hidden(server, key):
    assert server({**STDIO, key: ["drop_table"]}).exclude == ("drop_table",)


def test_tools_that_another_client_selects_are_selected(server):
    assert server({**STDIO, "includeTools": ["a", "b"]}).include == ("a", "b")
    assert server({**STDIO, "tools": ["a"]}).include == ("a",)
    assert server({**STDIO, "tools": {"include": ["a"]}}).include == ("a",)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({}, "needs `command`"),
        ({"args": ["x"]}, "needs `command`"),
        ({"command": 1, "args": {"a": 1}}, "mcpServers.s.args: expected a list of strings"),
        ({"url": "h/mcp"}, "mcpServers.s.url: expected an address"),
        ({"url": "ws://h", "type": "websocket"}, "mcpServers.s.type: expected one of"),
        ({"url": "http://h", "headers": {"A": "${input:api-key}"}}, "mcpServers.s.headers.A: ${input:api-key} asks"),
        ("npx", "expected a mapping"),
    ],
)
def test_a_server_that_cannot_be_used_is_its_own_problem(config, block, says):
    bad, good = config({"mcpServers": {"s": block, "t": STDIO}}).servers
    assert bad.problem is not None and says in bad.problem
    assert good.problem is None


def test_type_decides_when_command_and_url_are_both_there(server):
    assert server({**STDIO, "url": "http://h", "type": "http"}).transport == "http"
    assert server({**STDIO, "url": "http://h", "type": "http"}).problem is None
    assert "not both" in str(server({**STDIO, "url": "http://h"}).problem)


def test_json_values_keep_their_text_in_env(server):
    s = server({**STDIO, "env": {"A": 123, "B": True, "C": None, "D": 1.50, "E": "NO"}})
    assert s.env == {"A": "123", "B": "true", "C": "", "D": "1.5", "E": "NO"}


def test_a_byte_order_mark_is_no_problem(config):
    assert config("\ufeff" + json.dumps({"mcpServers": {"s": STDIO}})).servers[0].command == "npx"


def test_tabs_in_a_json_file_are_fine(config):
    text = '{\n\t"mcpServers": {\n\t\t"s": {\n\t\t\t"command": "npx"\n\t\t}\n\t}\n}\n'
    assert config(text).servers[0].command == "npx"
    assert config(text, "config").servers[0].command == "npx"


def test_comments_and_trailing_commas_are_tolerated(config):
    text = """{
      // a comment with "quotes"
      "servers": { /* block,
        } */ "s": {"command": "npx", "args": ["http://a//b", "/*no*/", "a,]",], // end
        },
      },
    }"""
    assert config(text).servers[0].args == ("http://a//b", "/*no*/", "a,]")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"mcpServers": {\n  "s": {"command": "x" "args": []}}}', "mcp.json:2:24"),
        ('{"mcpServers": ', "mcp.json:1:16"),
        ('{// c\n"a": tru}', "mcp.json:2:6"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_json_names_line_and_column(config, text, place):
    with pytest.raises(ConfigError) as caught:
        config(text)
    assert place in str(caught.value)


@pytest.mark.parametrize("root", ["mcpServers", None])
def test_a_server_given_twice_is_an_error(config, root):
    inner = '{"s": {"command": "x"}, "s": {"command": "y"}}'
    with pytest.raises(ConfigError, match="'s' is given twice"):
        config(f'{{"{root}": {inner}}}' if root else inner)


def test_the_reserved_server_key_is_an_error_here_too(config):
    with pytest.raises(ConfigError, match=r"mcpServers\.narrow_waist: the name 'narrow_waist' is reserved"):
        config({"mcpServers": {"narrow_waist": STDIO}})


def test_a_bare_server_may_have_the_name_of_a_reserved_block(config):
    assert [s.key for s in config({"storage": STDIO, "tools": {"tool_search": False}}).servers] == ["storage"]


@pytest.mark.parametrize(
    "block",
    [
        {"command": "uvx", "args": ["narrow-waist"]},
        {"command": "/opt/bin/narrow-waist", "args": ["--stdio"]},
        {"command": "uvx", "args": ["narrow-waist@1.2"]},
    ],
)
def test_our_own_entry_in_a_clients_file_does_not_start_us_again(config, block):
    settings = config({"mcpServers": {"nw": block, "s": STDIO}})
    assert [(s.key, s.enabled) for s in settings.servers] == [("nw", False), ("s", True)]
    assert "starts narrow-waist itself" in settings.warnings[0]


def test_time_outs_that_look_like_milliseconds_are_pointed_out(config):
    settings = config({"mcpServers": {"s": {**STDIO, "timeout": 30000}}})
    assert settings.servers[0].timeout == 30_000
    assert "milliseconds" in settings.warnings[0]


def test_our_own_keys_work_in_json(config):
    settings = config(
        {"mcpServers": {"s": STDIO}, "tool_search": {"listing": "off", "enbaled": 1}, "first_list_wait": 3}
    )
    assert (settings.tool_search.listing, settings.first_list_wait) == ("off", 3)
    assert any("did you mean 'enabled'?" in w for w in settings.warnings)


def test_an_mcp_servers_block_in_yaml_is_lenient_and_its_root_is_strict(config):
    text = "mcpServers:\n  s: {command: x, alwaysAllow: [a], disabled: true}\n"
    settings = config(text, "u.yaml")
    assert settings.servers[0].enabled is False
    assert "u.yaml:2: mcpServers.s: keys that mean nothing here: 'alwaysAllow'" in settings.warnings[0]
    with pytest.raises(ConfigError, match="unknown key 'extra'"):
        config(text + "extra: 1\n", "u.yaml")


def test_an_empty_json_file_is_a_warning(config):
    assert "no servers" in config("").warnings[0]
    assert "no servers" in config("{}").warnings[0]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("deney", "deny"), ("Deny", "deny"), ("denyTools", "deny"), ("tool", "tools"), ("excludTools", "excludeTools"),
        ("max_results_chars", "max_result_chars"), ("maxResultChars", "max_result_chars"), ("disbled", "disabled"),
        ("inheritEnv", "inherit_env"), ("clientRequests", "client_requests"), ("sesion", "session"),
    ],
)  # fmt: skip
def test_a_slip_in_a_key_that_protects_stops_the_server(server, key, meant):
    """`"deney": ["drop_table"]` was a warning, and the tool was called."""
    problem = server({**STDIO, key: ["drop_table"]}).problem
    assert problem is not None and f"mcpServers.s.{key}: unknown key {key!r}; did you mean {meant!r}?" in problem


def test_a_slip_below_tools_stops_the_server(server):
    problem = server({**STDIO, "tools": {"exlude": ["drop_table"]}}).problem
    assert problem is not None and "unknown key 'exlude'; did you mean 'exclude'?" in problem


FOREIGN = (
    "name", "source", "trust", "alwaysAllow", "autoApprove", "gallery", "version", "dev", "required", "icon",
    "settings", "oauth", "auth", "sandboxEnabled", "default_tools_approval_mode", "tool_timeout_sec", "envFile",
    "bearer_token_env_var", "registryUrl", "isActive", "longRunning", "installed", "disabledByUser", "roots", "scopes",
    "authProviderType", "alwaysLoad", "timeoutMs", "projects", "permissions", "protocol", "readOnly", "retryDelay",
)  # fmt: skip


def test_keys_of_other_hosts_stop_nothing(server):
    assert server({**STDIO, **dict.fromkeys(FOREIGN, "x")}).problem is None


@pytest.mark.parametrize(
    ("key", "meant"),
    [("gaurd", "guard"), ("profile", "profiles"), ("toolSets", "toolsets"), ("allowedHosts", "allowed_hosts")],
)
def test_a_slip_in_a_root_key_that_protects_is_an_error(config, key, meant):
    with pytest.raises(ConfigError, match=f"{key}: unknown key '{key}'; did you mean '{meant}'"):
        config({"mcpServers": {"s": STDIO}, key: {"lock": "strict"}})
    foreign = {"projects": {}, "profile": "work", "preferences": {}, "permissions": {}, "hooks": {}, "theme": "x"}
    assert len(config({"mcpServers": {"s": STDIO}, **foreign}).servers) == 1
