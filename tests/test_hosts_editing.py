"""Editing other programs' files: the entry changes, and not one other byte."""

import json
import random
import string
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.hosts.editing import editor
from proxy.hosts.problem import HostFileError

ENTRY = {"command": "narrow-waist", "args": ["--config", "/a b/c.yaml"]}

JSON_FILES = [
    '{\n  "mcpServers": {\n    "a": {"command": "x"}\n  }\n}\n',
    '{\n\t"theme": "dark", // mine\n\t"mcpServers": {\n\t\t/* first */\n\t\t"a": {\n\t\t\t"b": "x",\n\t\t},\n\t},\n}\n',
    '{"mcpServers": {"a": {"command": "x"}}, "z": 1}',
    '{"mcpServers": {"a": {"command": "x"},}}',
    '{\r\n    "mcpServers": {\r\n        "a": {} // last\r\n    }\r\n}\r\n',
    '{\n  "mcpServers": {\n    "a": {} // note, with a comma\n    // and a line of its own\n  }\n}',
    '\ufeff{\n  "mcpServers": {\n    "a": "http://x//y", "b": 2\n  }\n}\n',
    '// settings\n{\n  "mcpServers": {}\n}\n',
]

TOML_FILES = [
    "",
    'model = "x"\n',
    """\
# mine
model = "x" # why

[mcp_servers.a]
command = "x"
args = [
  "[mcp_servers.narrow-waist]", # odd
]

[tui]
t = '''
[x]
'''
""",
    'model = "x"\r\n\r\n[mcp_servers.a.env]\r\nK = "v"\r\n',
    '[mcp_servers]\n\n[mcp_servers."a b"]\ncommand = "x"',
    "[[things]]\nx = 1\n[[things]]\nx = 2\n",
]

YAML_FILES = [
    "mcp_servers:\n  a:\n    command: x\n",
    """\
# mine
model:
  default: x   # why
mcp_servers:
    a:   # first
        command: x
        env:
            K: |
                two
                lines

# the end
other: [1, 2]
""",
    "mcp_servers: {a: {command: x}}\nz: 1\n",
    "model: x\nmcp_servers:\n  a: {command: x}\n  # below\n\nz: 1",
    "mcp_servers:\r\n  a:\r\n    command: x\r\nz: 1\r\n",
]

CASES = (
    [("a.json", text, ["mcpServers"]) for text in JSON_FILES]
    + [("a.toml", text, ["mcp_servers"]) for text in TOML_FILES]
    + [("a.yaml", text, ["mcp_servers"]) for text in YAML_FILES]
)


@pytest.mark.parametrize(("name", "text", "path"), CASES)
def test_an_entry_comes_and_goes_and_leaves_no_trace(name: str, text: str, path: list[str]) -> None:
    edit = editor(name)
    added = edit.set(text, path, "narrow-waist", ENTRY)
    assert edit.entries(added, path)["narrow-waist"] == ENTRY
    back = edit.remove(added, path, "narrow-waist")
    assert back.rstrip("\r\n") == text.rstrip("\r\n")


@pytest.mark.parametrize(("name", "text", "path"), CASES)
def test_every_line_that_was_there_is_still_there_in_order(name: str, text: str, path: list[str]) -> None:
    added = editor(name).set(text, path, "narrow-waist", ENTRY)
    rest = iter(added)
    assert all(any(ch == other for other in rest) for ch in text.rstrip("\r\n")), "a character is gone"
    for comment in ("// mine", "/* first */", "# why", "# first", "# the end", "// note, with a comma"):
        assert (comment in text) == (comment in added)


@pytest.mark.parametrize(("name", "text", "path"), CASES)
def test_setting_an_entry_again_replaces_only_that_entry(name: str, text: str, path: list[str]) -> None:
    edit = editor(name)
    once = edit.set(text, path, "narrow-waist", ENTRY)
    assert edit.set(once, path, "narrow-waist", ENTRY) == once
    other = edit.set(once, path, "narrow-waist", {"command": "other", "env": {"A": "b"}})
    assert edit.entries(other, path)["narrow-waist"] == {"command": "other", "env": {"A": "b"}}
    assert edit.set(other, path, "narrow-waist", ENTRY) == once


@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("a.json", "", ["mcpServers"]),
        ("a.json", "// nothing yet\n", ["mcpServers"]),
        ("a.json", '{"a": 1}', ["mcp", "servers"]),
        ("a.json", "{}", ["projects", "/home/me", "mcpServers"]),
        ("a.toml", "", ["mcp_servers"]),
        ("a.yaml", "", ["mcp_servers"]),
        ("a.yaml", "# nothing yet\n", ["mcp_servers"]),
        ("a.yaml", "mcp_servers:\nz: 1\n", ["mcp_servers"]),
        ("a.yaml", "mcp_servers: {}\nz: 1\n", ["mcp_servers"]),
        ("a.yaml", "z: 1\n", ["mcp_servers"]),
    ],
)
def test_missing_parents_are_made(name: str, text: str, path: list[str]) -> None:
    edit = editor(name)
    added = edit.set(text, path, "narrow-waist", ENTRY)
    assert edit.entries(added, path) == {"narrow-waist": ENTRY}
    assert ("z: 1" in text) == ("z: 1" in added) and ("nothing yet" in text) == ("nothing yet" in added)
    assert edit.entries(edit.remove(added, path, "narrow-waist"), path) == {}


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.json", '{"mcpServers": {', "line 1"),
        ("a.json", '{\n  "a": 1\n  "b": 2\n}', "comma is missing at line 3"),
        ("a.json", '{"a": 1, "a": 2}', "twice"),
        ("a.json", "{'a': 1}", "double quotes"),
        ("a.json", '{"mcpServers": []}', "expected a mapping at mcpServers"),
        ("a.json", "[1]", "expected a mapping at the top"),
        ("a.json", "[" * 5000, "nested too deeply"),
        ("a.toml", "a = = 1", "line 1"),
        ("a.toml", "mcp_servers = 3", "expected a mapping"),
        ("a.toml", 'mcp_servers = {a = {command = "x"}}', "cannot be edited safely"),
        ("a.yaml", "a: [1", "line"),
        ("a.yaml", "mcp_servers: nonsense", "expected a mapping"),
        ("a.yaml", "a: 1\n---\nb: 2\n", "YAML"),
    ],
)
def test_a_broken_or_foreign_file_is_refused_with_the_place(name: str, text: str, place: str) -> None:
    path = ["mcp_servers"] if name != "a.json" else ["mcpServers"]
    with pytest.raises(HostFileError, match=place):
        editor(name).set(text, path, "narrow-waist", ENTRY)


def test_a_comment_never_swallows_what_follows_a_removed_entry() -> None:
    text = '{"mcpServers": { // mine\n  "a": {}}}'
    assert editor("a.json").remove(text, ["mcpServers"], "a") == '{"mcpServers": { // mine\n  }}'


def test_an_unknown_kind_of_file_is_refused() -> None:
    with pytest.raises(HostFileError, match=r"expected a \.json"):
        editor("settings.ini")


WORD = st.text(st.sampled_from(string.ascii_letters + " _-.:#'\"\\{}[],é/$"), min_size=1, max_size=8)
VALUES = st.dictionaries(WORD, st.text(max_size=12) | st.lists(WORD, max_size=3) | st.booleans(), max_size=4)
SERVERS = st.dictionaries(WORD, VALUES, min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(servers=SERVERS, key=WORD, value=VALUES, seed=st.integers(0, 1_000))
def test_any_json_file_keeps_its_other_entries(
    servers: dict[str, Any], key: str, value: dict[str, Any], seed: int
) -> None:
    chance = random.Random(seed)
    text = json.dumps({"z": 1, "mcpServers": servers}, indent=chance.choice([None, 2, "\t"]))
    lines = [line + chance.choice(["", " // , } ]", " "]) for line in text.split("\n")]
    check_round_trip("a.json", "\n".join(lines), ["mcpServers"], servers, key, value)


@settings(max_examples=40, deadline=None)
@given(servers=SERVERS, key=WORD, value=VALUES)
def test_any_yaml_file_keeps_its_other_entries(servers: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    text = yaml.safe_dump({"z": 1, "mcp_servers": servers}, allow_unicode=True)
    # PyYAML itself does not read back every line break that it writes (U+0085): what the file says must stay.
    said = yaml.safe_load(text)["mcp_servers"]
    check_round_trip("a.yaml", text, ["mcp_servers"], said, key, value)


@settings(max_examples=40, deadline=None)
@given(servers=SERVERS, key=WORD, value=VALUES)
def test_any_toml_file_keeps_its_other_entries(servers: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    edit = editor("a.toml")
    text = "z = 1\n"
    for name, entry in servers.items():
        text = edit.set(text, ["mcp_servers"], name, entry)
    check_round_trip("a.toml", text, ["mcp_servers"], servers, key, value)


def check_round_trip(
    name: str, text: str, path: list[str], servers: dict[str, Any], key: str, value: dict[str, Any]
) -> None:
    edit = editor(name)
    added = edit.set(text, path, key, value)
    assert edit.entries(added, path) == {**servers, key: value}
    if key not in servers:
        assert edit.remove(added, path, key).rstrip("\r\n") == text.rstrip("\r\n")
    else:
        assert edit.entries(edit.remove(text, path, key), path) == {k: v for k, v in servers.items() if k != key}
