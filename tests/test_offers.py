"""Resources and prompts under names that a client can use, and the way back to their servers."""

import pytest

from proxy.offers import Offer, Offers, prefixed
from proxy.tool import public_name

DOCS = Offer("docs", ({"uri": "file:///a", "x": 1},), ({"uriTemplate": "note://{id}"},), ({"name": "ask", "x": 2},))
WIKI = Offer(
    "wiki",
    ({"uri": "file:///a"}, {"uri": "file:///b"}),
    ({"uriTemplate": "wiki://{+path}"},),
    ({"name": "ask"}, {"name": "sum up"}),
)


def test_a_uri_stays_as_it_is_and_only_a_later_duplicate_gets_its_servers_name() -> None:
    uris = [r["uri"] for r in Offers([WIKI, DOCS]).resources]
    assert uris == ["file:///a", prefixed("wiki", "file:///a"), "file:///b"]
    assert Offers([DOCS]).resources[0] == {"uri": "file:///a", "x": 1}


def test_every_listed_uri_leads_to_its_server_under_the_name_that_this_knows() -> None:
    offers = Offers([DOCS, WIKI])
    owners = [offers.owner(r["uri"]) for r in offers.resources]
    assert owners == [("docs", "file:///a"), ("wiki", "file:///a"), ("wiki", "file:///b")]


@pytest.mark.parametrize(
    ("uri", "owner"),
    [
        ("note://7", ("docs", "note://7")),
        ("note://7/8", None),
        ("wiki://a/b?c", ("wiki", "wiki://a/b?c")),
        ("other://x", None),
    ],
)
def test_a_uri_that_nobody_lists_goes_to_the_one_server_whose_template_matches(
    uri: str, owner: tuple[str, str] | None
) -> None:
    assert Offers([DOCS, WIKI]).owner(uri) == owner


def test_a_uri_that_two_servers_templates_match_goes_to_nobody() -> None:
    twin = Offer("twin", templates=({"uriTemplate": "note://{name}"},))
    assert Offers([DOCS, twin]).owner("note://7") is None


def test_prompts_have_public_names_and_a_bare_name_only_where_one_server_has_it() -> None:
    offers = Offers([DOCS, WIKI])
    assert [p["name"] for p in offers.prompts] == sorted(
        [public_name("docs", "ask"), public_name("wiki", "ask"), public_name("wiki", "sum up")]
    )
    assert offers.prompt("docs__ask") == ("docs", "ask") and offers.prompt("wiki.sum up") == ("wiki", "sum up")
    assert offers.prompt("sum up") == ("wiki", "sum up") and offers.prompt("ask") is None
    assert offers.prompts[0]["x"] == 2


def test_a_narrowed_view_is_as_if_there_were_no_others() -> None:
    narrowed = Offers([DOCS, WIKI]).of(lambda key: key == "wiki")
    assert narrowed.resources == Offers([WIKI]).resources and narrowed.owner("note://7") is None
