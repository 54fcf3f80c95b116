"""The ranking. What it is worth on labelled queries is measured by scripts/eval_search.py."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.catalog import Catalog, NotFound, make_server
from proxy.config import ServerConfig
from proxy.search import Index, near_names, unknown_name

CATALOGS = Path(__file__).parent / "catalogs"

Raw = dict[str, Any]


def tool(name: str, description: str = "", **parameters: str) -> Raw:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}


def catalog(servers: dict[str, list[Raw]], topics: dict[str, str] | None = None) -> Catalog:
    topics = topics or {}
    return Catalog(
        make_server(ServerConfig(key, "stdio", description=topics.get(key)), tools) for key, tools in servers.items()
    )


def real(*names: str) -> dict[str, list[Raw]]:
    return {name: json.loads((CATALOGS / f"{name}.json").read_text(encoding="utf-8"))["tools"] for name in names}


def names(index: Index, query: str, limit: int = 5, server: str | None = None) -> list[str]:
    return [t.public_name for t, _ in index.search(query, limit, server).matches]


@pytest.fixture(scope="module")
def several() -> Catalog:
    return catalog(real("github", "filesystem", "memory", "time", "git"))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_smallest_catalogs_work(count: int) -> None:
    """S2: rank-bm25 divides by zero, or scores 0 and below, for 0, 1 and 2 tools."""
    tools = [tool("create_issue", "Create a GitHub issue"), tool("create_page", "Create a GitHub page")][:count]
    index = Index(catalog({"github": tools}))
    hits = index.search("create github", 5)
    assert len(hits.matches) == count
    assert all(score > 0 for _, score in hits.matches)


def test_a_word_that_every_tool_has_still_finds_them() -> None:
    index = Index(catalog({"github": [tool(f"github_{n}", "github") for n in range(20)]}))
    assert len(names(index, "github")) == 5


def test_a_single_letter_of_a_written_word_finds_nothing() -> None:
    """The s of k8s stands in every "user's": five tools that have nothing to do with it were an answer."""
    index = Index(catalog({"a": [tool("read_user", "Reads the user's name."), tool("send", "Sends somebody's mail.")]}))
    assert index.search("k8s", 5).matches == ()
    assert names(Index(catalog({"a": [tool("plan_b"), tool("plan_c")]})), "plan b", 1) == ["a__plan_b"]


def test_tools_without_any_word_are_found_by_what_stands_there() -> None:
    index = Index(catalog({"odd": [tool("+++"), tool("→"), tool("plain", "cost in €")]}))
    assert names(index, "→") == [t.public_name for t in index.tools if t.name == "→"]
    assert names(index, "+++")
    assert names(index, "€") == ["odd__plain"]


def test_every_name_in_a_list_of_names_comes_first_and_survives_the_limit(several: Catalog) -> None:
    """S1: a query of several exact names missed one of them."""
    wanted = ["search_code", "create_entities", "git_log", "read_file", "convert_time", "list_issues"]
    hits = Index(several).search(" ".join(wanted), 3)
    assert hits.exact == len(wanted)
    assert [t.name for t, _ in hits.matches] == wanted


@pytest.mark.parametrize(
    "spelling",
    [
        "git_log",
        "GIT_LOG",
        "git__git_log",
        "git.git_log",
        "git/git_log",
        "git:git_log",
        "mcp__git__git_log",
        "mcp_git_git_log",
    ],
)
def test_a_tool_is_found_first_by_any_spelling_of_its_name(several: Catalog, spelling: str) -> None:
    """S4: the bare name of a tool indexed with a prefix found nothing."""
    index = Index(several)
    assert names(index, spelling, 1) == ["git__git_log"]
    assert index.search(spelling, 1).exact == 1


@pytest.mark.parametrize("spelling", ["git-log", "gitLog", "git log", "GitLog"])
def test_a_name_with_other_separators_is_found(several: Catalog, spelling: str) -> None:
    assert names(Index(several), spelling, 1) == ["git__git_log"]


def test_a_name_in_a_sentence_comes_first(several: Catalog) -> None:
    assert names(Index(several), "please call git_log, then list the issues", 5)[0] == "git__git_log"


def test_a_plain_word_of_a_sentence_is_not_taken_for_a_name() -> None:
    index = Index(
        catalog({"a": [tool("search", "Search the web")], "b": [tool("search_service_list", "List services")]})
    )
    assert names(index, "Search services list", 1) == ["b__search_service_list"]
    assert names(index, "search", 1) == ["a__search"]


def test_a_word_that_nothing_has_is_ignored_and_reported(several: Catalog) -> None:
    index = Index(several)
    with_noise = index.search("create blorptastic issue", 5)
    assert with_noise.matches[0][0] is index.search("create issue", 5).matches[0][0]
    assert with_noise.unmatched == ("blorptastic",)


def test_a_query_of_unknown_words_finds_nothing_and_says_which() -> None:
    hits = Index(catalog({"a": [tool("create_issue")]})).search("blorp quux", 5)
    assert hits.matches == ()
    assert hits.unmatched == ("blorp", "quux")


@pytest.mark.parametrize("query", ["take a note", "a", "the", "is it", "re", "What is a ?", "zzz ?"])
def test_stop_words_and_one_or_two_letters_do_not_select_by_what_stands_inside_other_words(query: str) -> None:
    """`take a note` answered with four unrelated tools, because nearly every text has an `a`."""
    index = Index(catalog({"a": [tool("echo", "Repeats what is said?"), tool("read_file", "Reads their orbits")]}))
    hits = index.search(query, 5)
    assert (hits.matches, hits.matched) == ((), 0)


@pytest.mark.parametrize("query", ["eci", "a eci zzz", "%", "文"])
def test_three_letters_and_signs_are_found_inside_words(query: str) -> None:
    index = Index(catalog({"a": [tool("recipe", "Cooks at 80 %, 中文字"), tool("other", "Echo")]}))
    assert names(index, query) == ["a__recipe"]


def test_chinese_and_accented_queries_find_their_tools() -> None:
    """S3: only ASCII was searched."""
    index = Index(
        catalog({"a": [tool("weather", "查询天气预报"), tool("créer_ticket", "Créer un ticket")], "b": [tool("x")]})
    )
    assert names(index, "天气") == ["a__weather"]
    assert names(index, "creer ticket")[0].startswith("a__cr")


def test_joined_and_split_words_and_beginnings_find_each_other() -> None:
    index = Index(
        catalog({"a": [tool("create_workflow"), tool("list_time_zones"), tool("get_repo"), tool("kubernetes_scale")]})
    )
    assert names(index, "work flow", 1) == ["a__create_workflow"]
    assert names(index, "timezones", 1) == ["a__list_time_zones"]
    assert names(index, "repository", 1) == ["a__get_repo"]
    assert names(index, "kube", 1) == ["a__kubernetes_scale"]
    assert index.search("kube repository timezones", 5).unmatched == ()


def test_a_stop_word_may_be_half_of_a_word_written_apart() -> None:
    index = Index(catalog({"a": [tool("list_oncalls"), tool("list_teams"), tool("list_users")]}))
    hits = index.search("who is on call", 1)
    assert [t.name for t, _ in hits.matches] == ["list_oncalls"]
    assert Index(catalog({"a": [tool("list_oncalls")]})).search("who is on call", 1).unmatched == ()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("creat calender event", "a__manage_calendar_event"),
        ("serach reposotories", "a__search_repositories"),
        ("downlaod", "a__download_report"),
        ("screnshot", "a__take_screenshot"),
    ],
)
def test_a_word_with_one_slip_of_spelling_finds_its_tool(query: str, first: str) -> None:
    """Held-out queries: `screnshot of page` answered with five tools about pages."""
    tools = ["manage_calendar_event", "search_repositories", "download_report", "take_screenshot", "get_page"]
    index = Index(catalog({"a": [tool(name) for name in tools]}))
    assert names(index, query, 1) == [first]


def test_a_misspelt_word_is_reported_so_that_a_wrong_reading_shows() -> None:
    index = Index(catalog({"a": [tool("create_issue"), tool("create_page")]}))
    assert names(index, "create isssue")[0] == "a__create_issue"
    assert index.search("create isssue", 5).unmatched == ("isssue",)


@pytest.mark.parametrize("query", ["aloud", "grab", "thier", "blorptastic", "f1le"])
def test_other_words_are_not_taken_for_misspelt_ones(query: str) -> None:
    """Another first letter, four letters, a slip of a stop word, and nothing near."""
    index = Index(catalog({"a": [tool("cloud"), tool("gray"), tool("tier"), tool("file")]}))
    assert names(index, query) == []


def test_a_known_word_and_the_beginning_of_one_keep_their_meaning() -> None:
    index = Index(catalog({"a": [tool("get_state"), tool("get_stage"), tool("transcribe"), tool("trains")]}))
    assert names(index, "state") == ["a__get_state"]
    assert names(index, "trans") == ["a__transcribe"]


def test_of_several_words_one_slip_away_the_one_of_most_tools_is_meant() -> None:
    index = Index(catalog({"a": [tool("play_tabla"), tool("get_table"), tool("list_tables"), tool("drop_table")]}))
    assert set(names(index, "tablo")) == {"a__get_table", "a__list_tables", "a__drop_table"}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("open a PR", "a__create_pull_request"),
        ("list MRs", "a__list_merge_requests"),
        ("k8s ns", "a__get_kubernetes_namespaces"),
        ("TTS", "a__text_to_speech"),
        ("svc", "a__get_service"),
    ],
)
def test_an_abbreviation_finds_what_it_is_short_for(query: str, first: str) -> None:
    """Held-out queries: `open a PR` answered with settings of forks."""
    index = Index(catalog({"a": [tool(name) for name in (first.removeprefix("a__"), "list_files", "get_image")]}))
    assert names(index, query, 1) == [first]
    assert not {"PR", "MRs", "ns", "TTS", "svc"} & set(index.search(query, 5).unmatched)


def test_a_tool_that_has_the_abbreviation_itself_comes_first() -> None:
    index = Index(catalog({"a": [tool("create_pull_request"), tool("create_pr")]}))
    assert names(index, "pr", 2) == ["a__create_pr", "a__create_pull_request"]


def test_a_server_that_is_named_comes_before_others_with_the_same_tool() -> None:
    index = Index(catalog({key: [tool("create_issue", "Create an issue")] for key in ("github", "gitlab", "jira")}))
    assert names(index, "gitlab create issue", 1) == ["gitlab__create_issue"]
    assert names(index, "create issue in jira", 1) == ["jira__create_issue"]


def test_parameters_nested_ones_and_enum_values_are_searched() -> None:
    nested = {
        "type": "object",
        "properties": {"filter": {"type": "object", "properties": {"severity": {"enum": ["fatal"]}}}},
    }
    index = Index(catalog({"a": [{"name": "query", "inputSchema": nested}, tool("other")]}))
    assert names(index, "severity") == ["a__query"]
    assert names(index, "fatal") == ["a__query"]


def test_the_topic_of_a_server_finds_its_tools_but_weighs_little() -> None:
    found = catalog({"a": [tool("list_things")], "b": [tool("list_invoices")]}, {"a": "invoices and billing"})
    index = Index(found)
    assert names(index, "invoices") == ["b__list_invoices", "a__list_things"]
    assert names(index, "billing") == ["a__list_things"]


def test_a_search_within_one_server_finds_and_reports_only_that_server(several: Catalog) -> None:
    index = Index(several)
    found = index.search("create issue", 20, "git").matches
    assert found and all(t.server == "git" for t, _ in found)
    assert index.search("entities", 5, "git").unmatched == ("entities",)
    assert index.search("create issue", 5, "nowhere").matches == ()


def test_a_narrower_view_gives_matches_and_hints_of_that_view_only(several: Catalog) -> None:
    view = Catalog([several.servers["time"], several.servers["git"]])
    index = Index(view, Index(several).words)
    hits = index.search("create entities timezone", 20)
    assert {t.server for t, _ in hits.matches} <= {"time", "git"}
    assert "entities" in hits.unmatched
    assert not any(name.startswith("github") for name in near_names(view, "github__create_issue"))


def test_what_a_view_leaves_out_changes_nothing_in_its_answers(several: Catalog) -> None:
    """A masked index: scores, unknown words and near names are as if nothing else were there."""
    view = Catalog([several.servers["time"], several.servers["git"]])
    apart = catalog(real("time", "git"))
    masked, alone = Index(view, Index(several).words), Index(apart)
    for query in [
        "create entities timezone",
        "github create_issue",
        "commit",
        "search_code git_log",
        "read file",
        "zzz",
    ]:
        one, other = masked.search(query, 50), alone.search(query, 50)
        assert [(t.public_name, s) for t, s in one.matches] == [(t.public_name, s) for t, s in other.matches]
        assert (one.matched, one.exact, one.unmatched) == (other.matched, other.exact, other.unmatched)
        assert near_names(view, query) == near_names(apart, query)


def test_a_tool_that_a_view_leaves_out_is_not_found_by_its_name(several: Catalog) -> None:
    whole = several.servers["git"]
    narrowed = make_server(ServerConfig("git", "stdio", deny=("git_log",)), [t.raw for t in whole.tools])
    index = Index(Catalog([narrowed]), Index(several).words)
    assert index.search("git_log", 20).exact == 0
    assert "git__git_log" not in names(index, "git_log", 20)


def test_aliases_and_keywords_and_instructions_find_the_tools_of_their_server() -> None:
    said = ServerConfig("pm", "stdio", aliases=("linear",), keywords=("sprint",))
    found = Catalog(
        [
            make_server(said, [tool("list_things")], None, "Ask me about roadmaps."),
            make_server(ServerConfig("other", "stdio"), [tool("list_things"), tool("list_sprints"), tool("roadmaps")]),
        ]
    )
    index = Index(found)
    assert names(index, "linear list things", 1) == ["pm__list_things"]
    assert names(index, "sprint") == ["other__list_sprints", "pm__list_things"]
    assert names(index, "roadmaps") == ["other__roadmaps", "pm__list_things"]
    assert index.search("linear sprint roadmaps", 5).unmatched == ()


def test_a_change_of_what_is_said_of_a_server_is_a_change_of_the_catalog() -> None:
    plain = ServerConfig("a", "stdio")
    hashes = {
        make_server(config, [tool("x")], None, text).hash
        for config, text in (
            (plain, None),
            (plain, "Do this."),
            (ServerConfig("a", "stdio", aliases=("b",)), None),
            (ServerConfig("a", "stdio", keywords=("b",)), None),
        )
    }
    assert len(hashes) == 4


def test_only_tools_that_are_new_are_counted_again(several: Catalog) -> None:
    first = Index(several)
    changed = make_server(ServerConfig("time", "stdio"), [tool("tell_time", "Tell the time")])
    second = Index(Catalog([*(s for k, s in several.servers.items() if k != "time"), changed]), first.words)
    kept = [t for t in second.tools if t.server != "time"]
    assert all(second.words[t] is first.words[t] for t in kept)
    assert names(second, "tell time", 1) == ["time__tell_time"]
    assert len(second.words) == len(second.tools)


def test_a_changed_list_is_found_at_once() -> None:
    """S6: an index was stale for minutes."""
    before = catalog({"a": [tool("one")]})
    after = catalog({"a": [tool("one"), tool("zebra")]})
    assert names(Index(after, Index(before).words), "zebra") == ["a__zebra"]


def test_the_parts_of_an_explanation_make_up_the_score(several: Catalog) -> None:
    index = Index(several)
    for found, score in index.search("create new GitHub issue in repository", 5).matches:
        explained = index.explain("create new GitHub issue in repository", found)
        assert explained.score == pytest.approx(score, rel=1e-4)
        assert explained.coverage > 1


def test_equal_tools_come_in_catalog_order() -> None:
    index = Index(catalog({key: [tool("same", "text")] for key in "dbca"}))
    assert names(index, "text") == ["a__same", "b__same", "c__same", "d__same"]


QUERIES = ["create issue", "list files", "time zone", "git_log read_file", "查询", "", "a", "repository branch commit"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_catalog_in_any_order_gives_the_same_answers(seed: int) -> None:
    parts = real("github", "filesystem", "git", "time")
    shuffled = list(parts.items())
    rng = random.Random(seed)
    rng.shuffle(shuffled)
    for _, tools in shuffled:
        rng.shuffle(tools)
    one, other = Index(catalog(real("github", "filesystem", "git", "time"))), Index(catalog(dict(shuffled)))
    for query in QUERIES:
        assert [(t.public_name, s) for t, s in one.search(query, 10).matches] == [
            (t.public_name, s) for t, s in other.search(query, 10).matches
        ]


raw_tools = st.builds(
    lambda name, description, schema: {"name": name, "description": description, "inputSchema": schema},
    st.text(min_size=1, max_size=20),
    st.one_of(st.none(), st.text(max_size=60), st.integers()),
    st.recursive(
        st.one_of(st.none(), st.text(max_size=5), st.booleans()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["type", "properties", "items", "description", "enum", "x"]), inner, max_size=4
            ),
        ),
        max_leaves=8,
    ),
)
server_maps = st.dictionaries(
    st.sampled_from(["a", "b", "git hub", "x__y"]), st.lists(raw_tools, max_size=5), max_size=3
)


@settings(max_examples=150, deadline=None)
@given(server_maps, st.text(max_size=60), st.integers(0, 30))
def test_no_query_and_no_catalog_raises(servers: dict[str, list[Raw]], query: str, limit: int) -> None:
    found = catalog(servers)
    index = Index(found)
    hits = index.search(query, limit)
    assert len(hits.matches) <= max(limit, hits.exact)
    assert len({t for t, _ in hits.matches}) == len(hits.matches)
    for each in found.tools:
        assert index.explain(query, each).score >= 0
    near_names(found, query)


@settings(max_examples=100, deadline=None)
@example({"a": [{"name": "\r"}]}, [{"name": "x"}], None)
@given(server_maps, st.lists(raw_tools, min_size=1, max_size=4), st.data())
def test_adding_a_server_never_removes_an_exact_match(
    servers: dict[str, list[Raw]], more: list[Raw], data: st.DataObject | None
) -> None:
    before = catalog(servers)
    if not before.tools:
        return
    wanted = data.draw(st.sampled_from(before.tools)) if data is not None else before.tools[0]
    after = Index(catalog({**servers, "new": more}))
    assert wanted.public_name in names(after, wanted.public_name, 1)
    assert wanted.public_name in [t.public_name for t, _ in after.search(wanted.name, 1).matches]


@settings(max_examples=75, deadline=None)
@given(server_maps, st.text(max_size=30), st.randoms(use_true_random=False))
def test_any_catalog_in_any_order_gives_the_same_answers(
    servers: dict[str, list[Raw]], query: str, rng: random.Random
) -> None:
    unique = {key: list({raw["name"]: raw for raw in tools}.values()) for key, tools in servers.items()}
    shuffled = list(unique.items())
    rng.shuffle(shuffled)
    one = Index(catalog(unique))
    other = Index(catalog({key: rng.sample(tools, len(tools)) for key, tools in shuffled}))
    for text in (query, *(t.name for t in one.tools[:2])):
        assert [(t.public_name, s) for t, s in one.search(text, 10).matches] == [
            (t.public_name, s) for t, s in other.search(text, 10).matches
        ]


def test_near_names_are_the_nearest_by_spelling(several: Catalog) -> None:
    assert near_names(several, "creat_isue")[0] == "github__create_issue"
    assert near_names(several, "github__list_pull_request")[0] == "github__list_pull_requests"
    assert near_names(several, "qqqqqqqq") == ()
    assert near_names(several, "") == ()


def test_a_name_with_the_hosts_name_for_this_proxy_in_front_is_near_however_short_it_is() -> None:
    tools = [tool("ls"), *(tool(f"mcp_narrow_waist_{n}") for n in range(50))]
    assert near_names(catalog({"fs": tools}), "mcp__narrow-waist__fs__ls")[0] == "fs__ls"


def test_what_is_told_about_an_unknown_name_is_accepted_as_printed(several: Catalog) -> None:
    with pytest.raises(NotFound) as miss:
        several.resolve("creat_issue")
    text = unknown_name(several, miss.value, "tool_search")
    assert "github__create_issue" in text and "tool_search" in text
    assert several.resolve("github__create_issue")


@pytest.mark.parametrize("name", ["creat_issue", "qqqqqqqq"])
def test_where_there_is_no_search_tool_none_is_recommended(name: str, several: Catalog) -> None:
    with pytest.raises(NotFound) as miss:
        several.resolve(name)
    text = unknown_name(several, miss.value, None)
    assert text.startswith(f"There is no tool '{name}'. ") and "find it with" not in text.lower()


def test_several_tools_of_one_name_are_all_told() -> None:
    both = catalog({"a": [tool("search")], "b": [tool("search")]})
    with pytest.raises(NotFound) as miss:
        both.resolve("search")
    assert "a__search, b__search" in unknown_name(both, miss.value, "tool_search")
