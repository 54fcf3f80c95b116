"""The words of identifiers and prose; what is shown of upstream text is tested in test_text_shown.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.text import Tokenizer, normal_forms


def words(text: str) -> list[str]:
    return Tokenizer().words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create_issue", {"create", "issue"}),
        ("list-pull-requests", {"list", "pull", "requests"}),
        ("getUserById", {"get", "user"}),
        ("com.example.files/readFile", {"com", "example", "files", "read", "file"}),
        ("HTTPServerURLs", {"http", "server", "urls"}),
        ("s3", {"s3"}),
        ("OAuth2 flows", {"oauth2", "flows"}),
    ],
)
def test_identifiers_are_split_into_their_words(text: str, expected: set[str]) -> None:
    assert expected <= set(words(text))


def test_a_word_in_camel_case_is_also_kept_whole_because_people_write_it_so() -> None:
    assert "github" in words("GitHub")
    assert set(words("github")) <= set(words("GitHub"))


def test_digits_stay_with_their_word_and_the_word_alone_is_kept_too() -> None:
    assert {"oauth2", "oauth"} <= set(words("oauth2"))


def test_stop_words_are_left_out_but_words_that_change_a_meaning_stay() -> None:
    assert words("turn the light off for all of them") == ["turn", "light", "off", "all"]


def test_full_width_letters_and_ligatures_are_ordinary_letters() -> None:
    assert words("ｆｉｌｅ ﬁle") == ["file", "file"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("création", "creation"),
        ("creating", "creates"),
        ("organisation", "organizations"),
        ("colour", "colors"),
        ("catalogue", "catalog"),
        ("centre", "center"),
        ("analyse", "analyze"),
        ("licence", "license"),
        ("revise", "revision"),
        ("advertise", "advertisement"),
    ],
)
def test_accents_endings_and_spelling_do_not_part_words(one: str, other: str) -> None:
    assert normal_forms([one]) == normal_forms([other])


def test_accents_stay_in_the_word_as_written() -> None:
    assert words("Création") == ["création"]


def test_signs_of_indic_scripts_are_no_accents() -> None:
    assert normal_forms(["हिन्दी"]) == ["हिन्दी"]


@pytest.mark.parametrize("text", ["查询天气", "天気予報", "날씨조회", "ค้นหา"])
def test_scripts_without_spaces_are_read_by_pairs_of_characters(text: str) -> None:
    """S3: a Chinese, Japanese or Korean query gave no token at all."""
    assert words(text)
    assert set(words(text[:2])) <= set(words(text))


@pytest.mark.parametrize("text", ["A" * 200_000, "aA" * 100_000, "a1" * 100_000, "_" * 200_000, "天" * 200_000])
def test_hostile_text_costs_linear_time(text: str) -> None:
    """The limit of the test run is what would be exceeded by anything quadratic."""
    words(text)


@given(st.text())
def test_any_text_has_words_and_forms(text: str) -> None:
    found = words(text)
    assert len(normal_forms(found)) == len(found)
    assert all(found)


@given(st.text(st.characters(categories=("Lu", "Ll", "Nd", "Lo", "Po", "Zs")), max_size=60))
def test_a_tokenizer_that_has_seen_much_gives_the_same_words_as_a_new_one(text: str) -> None:
    used = Tokenizer()
    used.words(text.upper())
    used.words(text)
    assert used.words(text) == words(text)
