"""`narrow-waist eval` and `search --explain`, and the queries that eval makes."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from test_search import catalog, server_maps, tool

from proxy.cli import main
from proxy.cli.evaluate import explained, read_queries
from proxy.errors import NarrowWaistError
from proxy.search import Explanation
from proxy.search.probing import probes


def made(kind: str, *tools: dict[str, object]) -> list[str]:
    found = catalog({"git hub": list(tools)})
    return [probe.query for probe in probes(found, found.tools) if probe.kind == kind]


def test_a_name_becomes_its_words() -> None:
    assert made("name", tool("createPullRequest")) == ["create pull request"]


def test_a_paraphrase_has_another_verb_of_the_same_meaning() -> None:
    assert made("paraphrase", tool("x", "Create a new issue. It costs nothing.")) == ["add a new issue"]
    assert made("paraphrase", tool("x", "Deletes the branch")) == ["remove the branch"]
    assert made("paraphrase", tool("list_branches")) == ["show branches in git hub"]
    assert made("paraphrase", tool("x", "Nothing that is known")) == []


def test_a_query_led_by_parameters_names_the_thing_and_what_it_takes() -> None:
    assert made("parameters", tool("create_issue", repoName="", title="")) == ["issue by repo name and title"]
    assert made("parameters", tool("create_issue")) == []


def test_one_query_for_several_tools_is_one_probe_that_any_of_them_answers() -> None:
    found = catalog({"a": [tool("search")], "b": [tool("search")]})
    (probe,) = [p for p in probes(found, found.tools) if p.kind == "name"]
    assert {t.server for t in probe.gold} == {"a", "b"} and not probe.every


@settings(max_examples=60, deadline=None)
@given(server_maps)
def test_queries_can_be_made_from_any_catalog(servers: dict[str, list[dict[str, object]]]) -> None:
    found = catalog(servers)
    assert all(probe.query and probe.gold for probe in probes(found, found.tools))


def test_labelled_queries_take_every_accepted_name_and_tell_the_unknown_ones(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    lines = [
        {"query": "one", "gold": ["a/x"], "id": 1},
        {"query": "both", "gold": ["a__x", "y"], "match": "all"},
        {"query": "none", "gold": "a.gone"},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    found, problems = read_queries(file, catalog({"a": [tool("x")], "b": [tool("y")]}))
    assert [(p.query, [t.name for t in p.gold], p.every) for p in found] == [
        ("one", ["x"], False),
        ("both", ["x", "y"], True),
    ]
    assert len(problems) == 1 and "a.gone" in problems[0]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"query": "x"}', '{"gold": ["x"]}', '{"query": "x", "gold": [1]}'])
def test_a_line_that_is_no_query_is_told_with_its_number(line: str, tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text("\n" + line, encoding="utf-8")
    with pytest.raises(NarrowWaistError, match=r"queries\.jsonl:2: expected"):
        read_queries(file, catalog({}))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NarrowWaistError, match="cannot be read"):
        read_queries(tmp_path / "none.jsonl", catalog({}))


def test_an_explanation_is_one_line_of_parts() -> None:
    line = explained(Explanation({"issu": 2.0, "creat": 1.0}, {"issue": 0.5}, 1.5, 0.25))
    assert line == "5.50 = (issu 2.00 + creat 1.00 + as written 0.50) x name 1.50 + meaning 0.25"
    assert explained(Explanation()) == "0.00 = no word in common"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with a cache of its own, and without the command line's logging left behind."""
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("proxy.cli.tools.set_up_logging", lambda *_, **__: None)


@pytest.mark.usefixtures("demo")
def test_eval_measures_the_queries_of_a_file_and_explains_what_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queries.jsonl"
    lines = [
        {"query": "create dns record", "gold": ["cloudflare/dns_records_create"]},
        {"query": "frobnicate", "gold": ["cloudflare/dns_records_create"]},
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert main(["--demo", "eval", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "0.500" in shown and "'frobnicate'" in shown and "no tool has: frobnicate" in shown
    assert main(["--demo", "eval", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["recall@5"] == 0.5 and [miss["query"] for miss in answer["misses"]] == ["frobnicate"]
    assert main(["--demo", "eval", "--sample", "20", "--misses", "1"]) == 0
    assert re.search(r"^all +\d+", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.usefixtures("demo")
def test_search_explains_its_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--demo", "search", "create", "dns", "blorp", "--explain", "--limit", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len([line for line in shown if " = (" in line]) == 2
    assert "no tool has: blorp" in shown
