"""One row of the matrix of tests/test_guard_matrix.py through whole processes, over real pipes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE, Place, proxy, python_server
from raw_client import ERAS, RawClient, stdio

SECRET = "hidden_launch_codes"
SHOWN = {
    "read_page": ("Read a page of the wiki", {"readOnlyHint": True}),
    "list_pages": ("List the pages of the wiki", {"readOnlyHint": True}),
}
HIDDEN = {
    SECRET: ("Launch the codes of the wiki", {"destructiveHint": True}),
    "read_page_raw": ("Read the launch page raw", {"destructiveHint": True}),
}
OTHER = {"zeta_secret": ("Launch from another server", {"destructiveHint": True})}
NAMES = (
    SECRET, f"wiki__{SECRET}", f"wiki.{SECRET}", f"wiki/{SECRET}", f"wiki:{SECRET}", f"mcp__wiki__{SECRET}",
    f"mcp_wiki_{SECRET}", "wiki__hidden_launch_code", "read_page_raw", "other__zeta_secret", "zeta_secret", "read_page",
)  # fmt: skip

TOOLSETS = {
    "wiki": {"tools": ["wiki/read_page", "wiki/list_pages"]},
    "rest": {"servers": ["other"], "tools": [f"wiki/{SECRET}", "wiki/read_page_raw"]},
}
REASONS: dict[str, dict[str, Any]] = {
    "of a profile that is chosen by name": {"profiles": {"work": {"enabled": ["wiki"]}, "default": {}}},
}


def tools(*groups: Mapping[str, tuple[str, dict[str, bool]]]) -> str:
    schema = {"type": "object", "properties": {"page": {"type": "string"}}}
    return json.dumps(
        [
            {"name": name, "description": text, "inputSchema": schema, "annotations": notes}
            for group in groups
            for name, (text, notes) in group.items()
        ]
    )


def config(place: Place, name: str, root: Mapping[str, Any], *, hidden: bool) -> Path:
    """A configuration whose servers have the hidden tools, or never had them."""
    folder = place.folder / name
    for server, listed in (
        ("wiki", tools(SHOWN, HIDDEN) if hidden else tools(SHOWN)),
        ("other", tools(OTHER) if hidden else "[]"),
    ):
        (folder / server / "answers").mkdir(parents=True)
        (folder / server / "tools.json").write_text(listed, encoding="utf-8")
        for tool in (*SHOWN, *HIDDEN, *OTHER):
            answer = '"result": {"content": [{"type": "text", "text": "' + f"ran {tool}" + '"}]}'
            (folder / server / "answers" / f"{tool}.json").write_text(answer, encoding="utf-8")
    servers = {
        "wiki": python_server("raw_server", str(folder / "wiki"), pinned=["read_page", SECRET]),
        "other": python_server("raw_server", str(folder / "other")),
    }
    toolsets = TOOLSETS | {"other": {"servers": ["other"]}}
    return place.config(servers, f"{name}.yaml", toolsets=toolsets, first_list_wait=PATIENCE, **root)


def everything(client: RawClient) -> list[Any]:
    """All that a caller can find out, in the order it was asked."""
    answers: list[Any] = [client.request("tools/list")]
    searches: list[dict[str, Any]] = [
        {}, {"query": "launch codes"}, {"query": "page"}, {"query": SECRET}, {"query": "x", "server": "other"},
        {"queries": ["launch", "secret", "wiki"]}, {"query": "page", "detail": "full"}, {"server": "wiki"},
    ]  # fmt: skip
    answers += [client.call("tool_search", search) for search in searches]
    for name in NAMES:
        answers += [
            client.call("tool_describe", {"name": name}),
            client.through(name, {"page": "x"}),
            client.through(name, {"page": 1}),
            client.call(name, {"page": "x"}),
            client.through("tool_call", {"name": name, "arguments": {}}),
        ]
    answers += [client.request("resources/list"), client.request("prompts/list")]
    answers.append(client.request("resources/read", {"uri": "wiki://hidden"}))
    return [{key: value for key, value in answer.items() if key != "id"} for answer in answers]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("reason", REASONS)
def test_what_is_hidden_is_answered_as_what_never_was(reason: str, era: str, place: Place) -> None:
    words = ["--profile", "work"] if "by name" in reason else []
    seen: list[list[Any]] = []
    for name in ("with", "without"):
        path = config(place, name, REASONS[reason], hidden=name == "with")
        with stdio(place, proxy("--config", str(path), *words), era) as client:
            hello = client.seen[-1] if client.seen else {}
            seen.append([{k: v for k, v in hello.items() if k != "id"}, *everything(client)])
    for having, never in zip(*seen, strict=True):
        assert having == never
    said = json.dumps(seen[0][1:10])
    assert "Read a page of the wiki" in said, "what is in the scope must be there"
    assert "launch" not in json.dumps(seen[0][0:2]).casefold()
    assert f"ran {SECRET}" not in json.dumps(seen[0])
    ledger = place.folder / "with" / "wiki" / "ledger"
    called = [line for line in ledger.read_text(encoding="utf-8").splitlines() if '"tools/call"' in line]
    assert called and not any(tool in line for line in called for tool in HIDDEN)


@pytest.mark.parametrize("reason", REASONS)
def test_the_command_line_tells_no_more(reason: str, place: Place) -> None:
    words = ["--profile", "work"] if "by name" in reason else []
    commands = (
        ["list"], ["list", "wiki"], ["list", "other"], ["search", "launch", "codes"], ["describe", f"wiki__{SECRET}"],
        ["call", f"wiki__{SECRET}"],
    )  # fmt: skip
    outputs: list[list[tuple[int, str, str]]] = []
    for name in ("with", "without"):
        path = config(place, name, REASONS[reason], hidden=name == "with")
        done = [place.cli(*command, "--config", str(path), *words) for command in commands]
        outputs.append([(d.returncode, d.stdout, d.stderr.replace(str(path), "")) for d in done])
    assert outputs[0] == outputs[1]
    assert "read_page" in outputs[0][1][1]
