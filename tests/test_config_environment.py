"""`${VAR}`, what an upstream inherits, and what is masked (reports E1, E2, E5)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import ServerConfig, child_environment, load
from proxy.masking import mask, secret_parts


@pytest.fixture
def server(tmp_path: Path):
    def one(block: str, **environ: str) -> ServerConfig:
        file = tmp_path / "u.yaml"
        file.write_text(f"servers:\n  s:\n    {block}\n", encoding="utf-8")
        return load(file, environ, home=Path("/home/me")).servers[0]

    return one


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${FOO}", "foo"),
        ("${env:FOO}", "foo"),
        ("a${FOO}b${FOO}c", "afoobfooc"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${env:NONE:-d}", "d"),
        ("${NONE:-${FOO}}", "foo"),
        ("${NONE:-http://h:1/p?a=b}", "http://h:1/p?a=b"),
        ("$${FOO}", "${FOO}"),
        ("$FOO", "$FOO"),
        ("$(FOO)", "$(FOO)"),
        ("${NESTED}", "${FOO}"),
    ],
)
def test_references_are_expanded(server, written, read):
    s = server(f"command: x\n    args: ['{written}']", FOO="foo", EMPTY="", NESTED="${FOO}")
    assert s.args == (read,)
    assert s.problem is None


def test_every_field_is_expanded(server):
    s = server(
        "command: ${V}\n    args: ['${V}']\n    env: {A: '${V}'}\n    cwd: /${V}\n    description: ${V}\n"
        "    deny: ['${V}']\n    tools: {exclude: ['${V}']}\n    timeout: ${T}\n    enabled: ${E}",
        V="v", T="12", E="no",
    )  # fmt: skip
    assert (s.command, s.args, s.env, s.cwd, s.description) == ("v", ("v",), {"A": "v"}, Path("/v"), "v")
    assert (s.deny, s.exclude, s.timeout, s.enabled) == (("v",), ("v",), 12, False)
    s = server("url: 'https://${V}/mcp'\n    headers: {H: 'Bearer ${V}'}", V="v")
    assert (s.url, s.headers) == ("https://v/mcp", {"H": "Bearer v"})


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ("command: ${NO}", "servers.s.command"),
        ("command: x\n    args: [a, '${NO}']", "servers.s.args[1]"),
        ("command: x\n    env: {TOKEN: '${NO}'}", "servers.s.env.TOKEN"),
        ("command: x\n    cwd: ${NO}/a", "servers.s.cwd"),
        ("command: ['${NO}', a]", "servers.s.command[0]"),
        ("command: x\n    timeout: ${NO}", "servers.s.timeout"),
        ("command: x\n    enabled: ${NO}", "servers.s.enabled"),
        ("command: x\n    validate: ${NO}", "servers.s.validate"),
        ("url: ${NO}", "servers.s.url"),
        ("url: http://h\n    headers: {Auth: '${NO}'}", "servers.s.headers.Auth"),
    ],
)
def test_an_unset_variable_is_the_problem_of_its_server_and_names_the_field(server, block, field):
    problem = server(block).problem
    assert problem is not None
    assert field in problem
    assert "NO is not set" in problem
    assert "u.yaml:" in problem


def test_our_own_token_cannot_be_handed_to_a_server(server):
    s = server("command: x\n    args: ['${NARROW_WAIST_TOKEN}']", NARROW_WAIST_TOKEN="own-secret-token")
    assert s.args == ("",)
    assert s.problem is not None and "own token" in s.problem and "own-secret-token" not in s.problem


# what an upstream inherits

PARENT = {
    "PATH": "/bin", "HOME": "/h", "USER": "u", "LANG": "C", "LC_ALL": "C", "TZ": "UTC", "TMPDIR": "/t", "SHELL": "sh",
    "TERM": "x", "XDG_RUNTIME_DIR": "/r", "HTTPS_PROXY": "p", "no_proxy": "n", "SSL_CERT_FILE": "c",
    "NODE_EXTRA_CA_CERTS": "e", "SSH_AUTH_SOCK": "s",
}  # fmt: skip
SECRETS = {"AWS_SECRET_ACCESS_KEY": "k", "GITHUB_TOKEN": "g", "NARROW_WAIST_TOKEN": "t", "NVM_DIR": "/n"}


def test_only_the_documented_variables_are_inherited():
    assert child_environment(ServerConfig("s", "stdio"), PARENT | SECRETS, "linux") == PARENT


def test_env_is_added_and_wins():
    s = ServerConfig("s", "stdio", env={"PATH": "/mine", "A": "b"})
    assert child_environment(s, PARENT, "linux") == PARENT | {"PATH": "/mine", "A": "b"}


def test_inherit_env_adds_names_or_everything_but_never_our_token():
    some = ServerConfig("s", "stdio", inherit_env=("NVM_*", "NARROW_WAIST_TOKEN"))
    assert child_environment(some, PARENT | SECRETS, "linux") == PARENT | {"NVM_DIR": "/n"}
    everything = child_environment(ServerConfig("s", "stdio", inherit_env=True), PARENT | SECRETS, "linux")
    assert everything == {k: v for k, v in (PARENT | SECRETS).items() if k != "NARROW_WAIST_TOKEN"}


def test_exported_shell_functions_are_not_inherited():
    s = ServerConfig("s", "stdio", inherit_env=True)
    assert child_environment(s, {"BASH_FUNC_x%%": "() { :; }", "A": "b"}, "linux") == {"A": "b"}


# secrets


def test_secrets_are_the_long_values_of_env_headers_and_references(server):
    s = server(
        "command: x\n    args: ['--key=${KEY}', '${HOME}/x']\n    env: {A: literal-value, B: short, C: '${TOKEN}'}",
        KEY="key-from-variable", TOKEN="token-from-variable", HOME="/home/someone",
    )  # fmt: skip
    assert set(s.secrets) == {"literal-value", "key-from-variable", "token-from-variable"}
    s = server("url: http://h\n    headers: {Authorization: Bearer abcdefghij}")
    assert set(s.secrets) == {"Bearer abcdefghij", "Bearer%20abcdefghij", "Bearer+abcdefghij", "abcdefghij"}


def test_no_secret_is_in_the_repr_of_a_server(server):
    s = server("command: x\n    args: ['${KEY}']\n    env: {A: '${KEY}'}", KEY="very-secret-key")
    assert "very-secret-key" not in repr(s)


@pytest.mark.parametrize(
    ("text", "secrets", "masked"),
    [
        ("nothing here", ("secret-1",), "nothing here"),
        ("a secret-1 b secret-1", ("secret-1",), "a *** b ***"),
        ("token=longer-secret-1", ("secret-1", "longer-secret-1"), "token=***"),
        ("abcdefghijkl", ("abcdefgh", "efghijkl"), "***"),
        ("secret-1secret-1", ("secret-1",), "***"),
        ("", ("secret-1",), ""),
        ("text", ("",), "text"),
    ],
)
def test_every_occurrence_of_a_secret_is_masked_once(text, secrets, masked):
    assert mask(text, secrets) == masked


def test_a_secret_of_several_lines_is_masked_line_by_line():
    parts = secret_parts(["-----BEGIN KEY-----\nMIIEvQIBADANBg\nshort\n-----END KEY-----\n"])
    assert "MIIEvQIBADANBg" in parts
    assert "short" not in parts
    assert list(parts) == sorted(parts, key=len, reverse=True)


@given(st.text(alphabet="abc", max_size=40), st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4))
def test_no_secret_survives_masking(text, secrets):
    masked = mask(text, secrets)
    assert not any(secret in masked for secret in secrets)
    if not any(secret in text for secret in secrets):
        assert masked == text


PLAIN = "Tr0ub4dor-and-3"
KEY = "sk-abcdefghij0123456789"


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        ([f"--api-key={KEY}"], KEY), (["--api-key", KEY], KEY), ([f"--token={PLAIN}"], PLAIN),
        (["--password", "correcthorse"], "correcthorse"), (["-H", f"Authorization: Bearer {PLAIN}"], PLAIN),
        ([f"--header=X-Api-Key: {PLAIN}"], PLAIN), (["-y", "x", f"https://me:{PLAIN}@host/x"], PLAIN),
        ([f"https://{PLAIN}@host/x"], PLAIN), ([f"https://host/mcp?token={PLAIN}&a=1"], PLAIN), ([KEY], KEY),
        (["run", "-e", f"DB_PASSWORD={PLAIN}", "image"], PLAIN), (["run", f"--env=DB_PASSWORD={PLAIN}"], PLAIN),
        (["--config", json.dumps({"key": KEY})], KEY), (["--githubToken", PLAIN], PLAIN),
        ([f"DB_PASSWORD={PLAIN}xxxxxxxxxxxxxxxxxxxxxxxx"], f"{PLAIN}xxxxxxxxxxxxxxxxxxxxxxxx"),
        (["--endpoint", f"https://me:{PLAIN}@host/"], PLAIN),
    ],
)  # fmt: skip
def test_a_secret_in_the_arguments_counts_among_what_is_masked(server, args, secret):
    """`--api-key=sk-...` was printed in clear by `check` where a server repeats its arguments."""
    one = server(json.dumps({"command": "npx", "args": args}))
    assert secret in one.secrets


def test_a_secret_in_the_address_counts_among_what_is_masked(server):
    for url in (f"https://me:{PLAIN}@host/mcp", f"https://host/mcp?api_key={PLAIN}", f"https://host/{KEY}/mcp"):
        one = server(json.dumps({"url": url}))
        assert {PLAIN, KEY} & set(one.secrets), url
    one = server(json.dumps({"url": "https://host/mcp?token=a%2Fb%2Bcdefgh"}))
    assert {"a%2Fb%2Bcdefgh", "a/b+cdefgh"} <= set(one.secrets)


@pytest.mark.parametrize(
    "args",
    [
        ["--token-limit", "5000000000"], ["--token-file", "/run/secrets/github"], ["--credentials", "/home/me/c.json"],
        ["--token", "./token-of-mine.txt"], ["--token", "short"], ["--auth-provider", "azure-active-directory"],
        ["--password-stdin", "some-image-name"], ["-y", "@scope/task-manager-for-teams-v2"], ["disk-usage-analyzer-v2"],
        ["--sort-key", "created_at_first"], ["/home/me/projects/of-mine-2024", "C:\\Users\\me\\Documents"],
        ["-H", "X-Region: eu-central-1"], ["https://api.example.com/v1/some-endpoint?format=something"],
        ["--db", "postgres://readonlyuser@localhost/database"], ["-e", "LOG_LEVEL=something-long", "-m", "mcp_server"],
        ["secret-manager-of-the-team"], ["--cookie", "~/cookies/of-mine.txt"], ["--max-tokens", "1000000000"],
    ],
)  # fmt: skip
def test_ordinary_words_in_the_arguments_are_not_masked(server, args):
    one = server(json.dumps({"command": "npx", "args": args}))
    assert one.secrets == ()


@pytest.fixture
def warned(tmp_path: Path):
    def of(block: dict[str, object], **environ: str) -> list[str]:
        file = tmp_path / "u.yaml"
        file.write_text(f"servers:\n  s: {json.dumps({'command': 'x', **block})}\n", encoding="utf-8")
        file.chmod(0o600)
        settings = load(file, environ, home=Path("/home/me"))
        assert settings.servers[0].problem is None
        return [warning.removeprefix(f"{file}:2: servers.s.") for warning in settings.warnings]

    return of


@pytest.mark.parametrize(
    ("block", "key"),
    [
        ({"env": {"TOKEN": "$GITHUB_TOKEN"}}, "env.TOKEN"),
        ({"args": ["--token", "$GITHUB_TOKEN"]}, "args[1]"),
        ({"command": None, "url": "http://h/", "headers": {"X-Token": "$GITHUB_TOKEN"}}, "headers.X-Token"),
    ],
)
def test_a_variable_without_braces_is_told(warned, block, key):
    """The server got the name of the variable as its token, and said that it was wrong."""
    says = f"{key}: $GITHUB_TOKEN stays as it is written; for the variable's value write ${{GITHUB_TOKEN}}"
    assert warned(block) == [says]


@pytest.mark.parametrize("text", ["${GITHUB_TOKEN", "Bearer ${GITHUB_TOKEN", "${FOO} and ${BAR", "${FOO:-a"])
def test_a_reference_that_is_not_closed_is_told(warned, text):
    says = "env.TOKEN: has a `${` without its `}` and stays as it is written; close it, or write `$${` for a plain `${`"
    assert warned({"env": {"TOKEN": text}}, FOO="f") == [says]


@pytest.mark.parametrize(
    "text", ["pa$$word", "$ecretOfMine", "a$HOME", "$", "$5", "$HOME/x", "$${FOO", "${FOO}", "$(FOO)", "x$", "^a{2}$"]
)
def test_a_real_value_with_dollars_is_no_concern(warned, text):
    assert warned({"env": {"TOKEN": text}, "args": [text]}, FOO="f") == []


def test_a_variable_in_small_letters_is_told_where_there_is_one(warned):
    assert len(warned({"env": {"TOKEN": "$token"}}, token="t")) == 1
    assert warned({"env": {"TOKEN": "$token"}}) == []
