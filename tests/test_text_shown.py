"""Upstream text as it is shown: one line, shortened, without what cannot be seen."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.text import first_sentence, one_line, shorten


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("List issues. Supports paging.", "List issues"),
        ("  List\n\n  issues  ", "List issues"),
        ("This tool will list issues.", "list issues"),
        ("This tool lists issues", "lists issues"),
        ("Deprecated. This tool can list issues. Use x.", "list issues"),
        ("[DEPRECATED] List issues", "List issues"),
        ("Deprecated issues are listed too.", "Deprecated issues are listed too"),
        ("List things, e.g. issues. More.", "List things, e.g. issues"),
        ("List issues vs. labels. More.", "List issues vs. labels"),
        ("See [the docs](https://example.com/a.b) first. More.", "See the docs first"),
        ("Uses v1.2.3 of the API. More.", "Uses v1.2.3 of the API"),
        ("1. First do this. Then that.", "1. First do this"),
        ("Is it up? Tells.", "Is it up?"),
        ("列出问题。更多。", "列出问题"),
        ("", ""),
        ("\u200b\n", ""),
    ],
)
def test_the_first_sentence_of_a_description(description: str, expected: str) -> None:
    assert first_sentence(description, 75) == expected


@given(text=st.text(), limit=st.integers(2, 80))
def test_a_first_sentence_is_one_visible_line_within_its_limit(text: str, limit: int) -> None:
    found = first_sentence(text, limit)
    assert len(found) <= limit
    assert found == found.strip()
    assert all(ch in "\u200c\u200d" or unicodedata.category(ch)[0] != "C" for ch in found)
    assert len(found.splitlines()) <= 1


@given(text=st.text())
def test_one_line_changes_nothing_the_second_time(text: str) -> None:
    assert one_line(one_line(text)) == one_line(text)


def test_a_cut_is_on_a_word_and_says_so() -> None:
    assert shorten("one two three", 13) == "one two three"
    assert shorten("one two three", 12) == "one two…"
    assert shorten("x" * 50, 10) == "x" * 9 + "…"


def test_hidden_text_is_gone_and_emoji_and_joiners_stay() -> None:
    # Tag characters and variation selectors can carry whole sentences that only a model reads.
    assert one_line("a\U000e0041\U000e0042b\U000e0100c\ufe01d\u202ee\u3164f") == "abcdef"
    assert one_line("❤\ufe0f 👩\u200d🚀 می\u200cخواهم") == "❤\ufe0f 👩\u200d🚀 می\u200cخواهم"
