"""How names are folded: lossless whatever they are, in the forms that real servers get."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listing_reader import count, read, real_servers, server

from proxy.catalog import Catalog
from proxy.listing import render
from proxy.listing.families import areas, fold, folded_block, size
from proxy.listing.names import groups, shared_prefix, shown, words
from proxy.listing.texts import server_texts

PARTS = st.sampled_from(
    [
        "get",
        "list",
        "Issue",
        "issues",
        "HTTP2",
        "v1",
        "a",
        "_",
        "__",
        "-",
        ".",
        "/",
        "x9",
        "9",
        "É",
        "数",
        " ",
        "*",
        ":",
    ]
)
NAMES = st.lists(st.lists(PARTS, min_size=1, max_size=6).map("".join), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("create_pull_request", ["create", "pull", "request"]),
        ("createPullRequest", ["create", "Pull", "Request"]),
        ("HTMLParser", ["HTML", "Parser"]),
        ("listV2Items", ["list", "V2", "Items"]),
        ("TwilioApiV2010--CreateCall", ["Twilio", "Api", "V2010", "Create", "Call"]),
        ("dns.records/42-list", ["dns", "records", "42", "list"]),
        ("größe_lesen", ["gr", "öß", "e", "lesen"]),
        ("__", []),
    ],
)
def test_a_name_has_these_words(name: str, expected: list[str]) -> None:
    assert words(name) == expected


@settings(max_examples=300, deadline=None)
@given(names=NAMES)
def test_any_names_in_any_form_are_accepted_for_a_call_as_printed(names: list[str]) -> None:
    catalog = Catalog([server("some", [{"name": name, "description": "Does it."} for name in names])])
    for budget in (200, 400, 60_000):
        made = render(catalog, budget=budget, slots=[None], mode="auto", count=count)
        if made.forms["some"] not in ("names", "families", "full"):
            continue
        printed = read(made.slots).names
        assert {catalog.resolve(name).name for name in printed} == set(names)
        assert len(printed) == len(set(names))


@settings(max_examples=300, deadline=None)
@given(names=NAMES)
def test_folded_names_unfold_to_exactly_themselves(names: list[str]) -> None:
    families, rest = fold(names)
    unfolded = [f.before + member + f.after for f in families for member in f.members] + rest
    assert sorted(unfolded) == sorted(set(names))


@settings(max_examples=100, deadline=None)
@given(names=st.lists(st.lists(PARTS, min_size=1, max_size=4).map("".join), min_size=1, max_size=400))
def test_areas_part_the_names_and_lose_none(names: list[str]) -> None:
    parts = areas("s__", sorted(set(names)))
    assert sorted(chain.from_iterable([a.prefix + n for n in a.names] for a in parts)) == sorted(
        "s__" + name for name in set(names)
    )
    assert len({a.prefix for a in parts}) == len(parts)


def test_a_family_needs_three_members_and_stands_where_most_characters_are_saved() -> None:
    families, rest = fold(["create_issue", "delete_issue", "update_issue", "create_label", "delete_label"])
    assert [(f.before, f.after, f.members) for f in families] == [("", "_issue", ("create", "delete", "update"))]
    assert rest == ["create_label", "delete_label"]


def test_names_in_the_middle_fold_too() -> None:
    families, _ = fold([f"actions-{verb}-org-variable" for verb in ("create", "delete", "get", "update")])
    assert [(f.before, f.after) for f in families] == [("actions-", "-org-variable")]


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("gitlab", "*_merge_request: approve create get merge unapprove update"),
        ("gitlab", "*_pipeline_schedule: create delete get play update"),
        ("linear", "*Initiative: archive create delete unarchive update"),
        ("twilio", "*CallRecording: Create Delete Fetch List Update"),
        ("aws-iam", "create_*: access_key group role user"),
        ("kubernetes", "*_helm_chart: install uninstall upgrade"),
    ],
)
def test_real_names_fold_as_a_person_would(key: str, line: str) -> None:
    one = next(one for one in real_servers() if one.key == key)
    texts = server_texts(one)
    assert texts is not None
    assert line in texts.names


def test_families_take_half_of_the_characters_of_all_names_at_most() -> None:
    folded = plain = 0
    for one in real_servers():
        texts = server_texts(one)
        assert texts is not None
        folded += size(texts.names)
        plain += sum(len(tool.public_name) + 2 for tool in one.tools)
    assert folded < 0.5 * plain


def test_names_stay_on_the_headings_line_where_folding_saves_little() -> None:
    texts = server_texts(server("one", ["alpha", "beta", "gamma"]))
    assert texts is not None
    assert texts.names == ("one__* (3): alpha beta gamma",)


def test_a_prefix_that_most_names_share_is_said_once_and_the_others_get_a_second_heading() -> None:
    names = [f"jira_{word}" for word in "one two three four five six seven eight nine ten".split()]
    texts = server_texts(server("jira", [*names, "help"]))
    assert texts is not None
    assert [line.split(":")[0] for line in texts.names] == ["jira__jira_* (10)", "jira__* (1)"]


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["a_b", "a_c", "a_d"], ""),
        (["a_b", "a_c", "a_d", "a_e"], "a_"),
        (["addOne", "addTwo", "addThree", "addFour"], "add"),
        (["address", "addOne", "addTwo", "addThree"], ""),
        (["get", "get_a", "get_b", "get_c"], ""),
    ],
)
def test_the_shared_prefix_is_of_whole_words_and_of_nine_names_in_ten(names: list[str], prefix: str) -> None:
    assert shared_prefix(names) == prefix


def test_a_giant_has_areas_and_their_blocks_are_smaller_than_one_block() -> None:
    for key, least in (("github-openapi", 50), ("lark-all", 40)):
        one = next(one for one in real_servers() if one.key == key)
        texts = server_texts(one)
        assert texts is not None
        assert len(texts.areas) >= least
        whole = sum(size(folded_block(group.prefix, group.entries)) for group in groups(shown(one)))
        assert size(texts.names) < whole


# Odd names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["with space", "star*", "colon:x", "näme", "", "_private", "line\nbreak", "a" * 200, "a.b/c", "a__b", "-", "*"],
)
@pytest.mark.parametrize(
    "key", ["plain", "with.dot", "double__under", "ends_", "with space", "k" * 70, "ключ", "a:b", "_x"]
)
def test_odd_names_and_odd_servers_are_printed_as_something_that_can_be_called(key: str, name: str) -> None:
    catalog = Catalog([server(key, [name, "list_things", "get_things", "drop_things"]), server("other", ["a"])])
    made = render(catalog, budget=10_000, slots=[None], mode="auto", count=count)
    assert made.forms[key] in ("full", "names", "families")
    names = [line for line in made.slots[0].split("\n") if not line.startswith(("Names", "- ", "Servers", "Listed"))]
    found = read(["\n".join(names)]).names
    mine = [catalog.resolve(printed).name for printed in found if catalog.resolve(printed).server == key]
    assert sorted(mine) == sorted({name, "list_things", "get_things", "drop_things"})


@pytest.mark.parametrize(
    "tools",
    [
        {"a": ["b__c", "x"], "a__b": ["c", "y"]},  # both would be a__b__c
        {"a": ["_b", "x"], "a_": ["b", "y"]},  # both would be a___b
    ],
)
def test_servers_that_could_be_confused_are_printed_unambiguously(tools: dict[str, list[str]]) -> None:
    catalog = Catalog([server(key, names) for key, names in tools.items()])
    made = render(catalog, budget=10_000, slots=[None], mode="auto", count=count)
    found = [catalog.resolve(name) for name in read(made.slots).names]
    assert sorted((tool.server, tool.name) for tool in found) == sorted(
        (key, name) for key, names in tools.items() for name in names
    )


def test_a_name_too_long_for_a_public_name_is_printed_whole_and_accepted() -> None:
    name = "actions-" + "very-" * 14 + "long"
    catalog = Catalog([server("github-openapi", [name])])
    made = render(catalog, budget=10_000, slots=[None], mode="auto", count=count)
    assert read(made.slots).names == [f"github-openapi__{name}"]
    assert catalog.resolve(f"github-openapi__{name}").name == name
