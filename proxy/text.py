"""Upstream text made safe to show, and the words of identifiers and prose (one tokenizer for index and query)."""

import re
import unicodedata

_SENTENCE_END = re.compile(r"[.!?](?=\s+[^\s\d]|\s*$)")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no)|\b[A-Z])\.$", re.IGNORECASE)
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^)\s]*\)")
_LEAD = re.compile(r"^(?:\[?deprecated\]?[.:]?\s+|this tool (?:will |can )?)", re.IGNORECASE)
_JOINERS = frozenset("\u200c\u200d")
"""ZWNJ and ZWJ stay: Persian, Indic scripts and emoji need them."""


def one_line(text: str) -> str:
    """`text` as one line: white space collapsed, control, format (bidi, zero width, tag) and surrogate characters gone."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    kept = (
        " " if ch.isspace() else ch
        for ch in text
        if ch.isspace() or ch in _JOINERS or unicodedata.category(ch) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )
    return " ".join("".join(kept).split())


def shorten(text: str, limit: int) -> str:
    """`text` cut on a word to at most `limit` characters, ending in `…` where something was cut."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ")
    if space > limit // 2:
        cut = cut[:space]
    return cut.rstrip(" ,;:-") + "…"


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a description, as one line of at most `limit` characters.

    Markdown links become their text; a leading "This tool (will)" or "Deprecated." is dropped
    (`listing-and-signatures` rules, section 1.3).
    """
    line = _LEAD.sub("", _LINK.sub(r"\1", one_line(text[: 40 * limit])))
    for match in _SENTENCE_END.finditer(line):
        if not _ABBREVIATION.search(line[: match.end()]):
            line = line[: match.end()].rstrip(".")
            break
    return shorten(line, limit)
