"""Upstream text made safe to show, and the words of identifiers and prose (one tokenizer for index and query)."""

import re
import unicodedata
from collections.abc import Sequence
from typing import cast

import Stemmer

_SENTENCE_END = re.compile(r"[.!?](?=\s+[^\s\d]|\s*$)|[。！？]")
_ABBREVIATION = re.compile(r"(?:^\d+|\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no)|\b[A-Z])\.$", re.IGNORECASE)
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^)\s]*\)")
_LEAD = re.compile(r"^(?:(?:\[deprecated\][.:]?|deprecated[.:!]) ?)?(?:this tool (?:will |can )?)?", re.IGNORECASE)
_JOINERS = frozenset("\u200c\u200d")
"""ZWNJ and ZWJ stay: Persian, Indic scripts and emoji need them."""
_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible letters and marks that Unicode does not call format characters: fillers, and variation selectors (which
can carry hidden text), the two that choose text or emoji style excepted."""


class _Shown(dict[int, int | None]):
    """For `str.translate`: what is shown of a character. Filled as characters come; asking Unicode for each one of a
    long text took 1 s per MB.
    """

    def __missing__(self, code: int) -> int | None:
        ch = chr(code)
        hidden = _HIDDEN.match(ch) or unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Co", "Cn")
        shown = ord(" ") if ch.isspace() else code if ch in _JOINERS or not hidden else None
        self[code] = shown
        return shown


_SHOWN = _Shown()


def one_line(text: str) -> str:
    """`text` as one line: white space collapsed; control, format (bidi, zero width, tag), surrogate characters gone."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    return " ".join(text.translate(_SHOWN).split())


def shorten(text: str, limit: int) -> str:
    """`text` cut on a word to at most `limit` characters, ending in `…` where something was cut."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ")
    if space > limit // 2:
        cut = cut[:space]
    return cut.rstrip(" ,;:-") + "…"


def units(text: str) -> int:
    """UTF-16 units of `text`, as JavaScript hosts count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a description, as one line of at most `limit` characters.

    Markdown links become their text; a leading "This tool (will)" or "Deprecated." is dropped.
    """
    line = _LEAD.sub("", _LINK.sub(r"\1", one_line(text[: 40 * limit])))
    for match in _SENTENCE_END.finditer(line):
        if not _ABBREVIATION.search(line[: match.end()]):
            line = line[: match.end()].rstrip(".。")
            break
    return shorten(line, limit)


_CHUNK = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]{2,}+s(?![a-z])|[A-Z]+(?![a-z])[0-9]*+|[A-Z]?[a-z]++[0-9]*+|[0-9]++")
"""Parts of an ASCII chunk: plural acronym (`URLs`), acronym (`HTTP2`), word (`Issue`, `oauth2`), digits."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts that are searched by pairs of characters: Thai, Lao, Burmese, Khmer, Kana, Han, Hangul."""
_HEAD = re.compile(r"([a-z]{3,})[0-9]+$")
_WORD_LIMIT = 64
"""Longer runs (base64, hashes) are cut: nobody searches for their end."""

STOP_WORDS = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have how i if in into is it its"
    " just let like lets me my need of on or our please shall should so some than that the their them then there these"
    " they this those to us use used using via want was we were what when where which who will with would you"
    " your".split()
)
"""Words that say nothing about a tool. "all", "not", "off", "up" and the verbs of names (get, list) do."""

_SPELLING = {
    "cheque": "check", "grey": "gray", "licence": "license", "defence": "defense", "offence": "offense",
    "programme": "program", "programmes": "programs", "artefact": "artifact", "artefacts": "artifacts",
    "enrol": "enroll", "fulfil": "fulfill", "instalment": "installment", "judgement": "judgment",
}  # fmt: skip
_SPELLING_RULES = tuple(
    (re.compile(pattern), to)
    for pattern, to in (
        (r"(?<![vc])(?<!advert)is(e[drs]?|ing|ations?|ers?)$", r"iz\1"),
        (r"ys(e[drs]?|ing|ers?)$", r"yz\1"),
        (r"our(s?|ed|ing|ites?|al)$", r"or\1"),
        (r"([bt])re(s?)$", r"\1er\2"),
        (r"ogue(s?)$", r"og\1"),
    )
)
"""British to American, on words of 6 letters or more. A word that only looks British (`exercise`, `contour`) is
changed on both sides alike, so it still finds itself."""


class Tokenizer:
    """Words of identifiers and prose, the same for index and query.

    It remembers the chunks it has seen (most words of a catalog repeat), so use one per build and let it go.
    Linear in the text.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, ...]] = {}

    def words(self, text: str) -> list[str]:
        """The case-folded words of `text` in order, without stop words; see `chunks`."""
        return [word for _, words in self.chunks(text) for word in words]

    def chunks(self, text: str) -> list[tuple[str, tuple[str, ...]]]:
        """Each run of letters and digits of `text` with the words it stands for; runs of stop words alone are left out.

        `createIssue` stands for create, issue and createissue; `oauth2` for oauth2 and oauth; a run of Chinese,
        Japanese, Korean or Thai for its pairs of characters.
        """
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        found: list[tuple[str, tuple[str, ...]]] = []
        for chunk in _CHUNK.findall(text):
            words = self._seen.get(chunk)
            if words is None:
                words = self._seen[chunk] = _split(chunk[:_WORD_LIMIT])
            if words:
                found.append((chunk, words))
        return found


def _split(chunk: str) -> tuple[str, ...]:
    if not chunk.isascii():
        return _split_unicode(chunk)
    if chunk.islower() and chunk.isalpha():
        return () if chunk in STOP_WORDS else (chunk,)
    parts = [part.lower() for part in _PART.findall(chunk)]
    words = [part for part in parts if part not in STOP_WORDS]
    # GitHub, OpenAPI, S3Bucket: people write these as one word too
    if 1 < len(parts) <= 3:
        words.append(chunk.lower())
    return (*words, *(head[1] for word in words if (head := _HEAD.match(word))))


def _split_unicode(chunk: str) -> tuple[str, ...]:
    words: list[str] = []
    end = 0
    for run in _UNSPACED.finditer(chunk):
        words += _other(chunk[end : run.start()])
        end = run.end()
        characters = run[0]
        words += [characters[i : i + 2] for i in range(max(1, len(characters) - 1))]
    return (*words, *_other(chunk[end:]))


def _other(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    return _split(text) if text.isascii() else (text.casefold(),)


def normal_forms(words: Sequence[str]) -> list[str]:
    """What each of `words` is indexed under: accents off, American spelling, Snowball stem."""
    plain = [_american(_without_accents(word)) for word in words]
    # PyStemmer has no type information, and a stemmer is cheap but not to be shared between threads
    return cast(list[str], Stemmer.Stemmer("english").stemWords(plain))  # pyright: ignore[reportUnknownMemberType]


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    plain = "".join(ch for ch in unicodedata.normalize("NFD", word) if not "\u0300" <= ch <= "\u036f")
    return unicodedata.normalize("NFC", plain)


def _american(word: str) -> str:
    if (to := _SPELLING.get(word)) is not None:
        return to
    if len(word) < 6:
        return word
    for pattern, to in _SPELLING_RULES:
        changed, count = pattern.subn(to, word)
        if count:
            return changed
    return word
