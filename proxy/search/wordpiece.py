"""Text to the word pieces of BERT uncased, as the embedding model wants them; the vocabulary is in our own wheel.

The same pieces as the `tokenizers` package gives (whose dependencies would bring a network client along), in Python:
.04 ms a tool, where the model takes 12.
"""

import gzip
import re
import unicodedata
from importlib.resources import files

VOCABULARY = "bert_uncased_vocab.txt.gz"
_UNKNOWN, _START, _END = 100, 101, 102
_WORD_LIMIT = 100
"""BERT's own: longer words are unknown."""
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
_SPACED = re.compile(f"([{_IDEOGRAPHS}])")


class WordPiece:
    """The tokenizer; loading takes 12 ms."""

    def __init__(self) -> None:
        packed = files("proxy.data").joinpath(VOCABULARY).read_bytes()
        self._ids = {word: n for n, word in enumerate(gzip.decompress(packed).decode("utf-8").splitlines())}

    def ids(self, text: str, limit: int) -> list[int]:
        """The ids of `text`, start and end marks included, at most `limit`; reads no more of it than needed."""
        found = [_START]
        for word in _words(text[: 16 * limit]):
            found += self._pieces(word)
            if len(found) >= limit:
                break
        return [*found[: limit - 1], _END]

    def _pieces(self, word: str) -> list[int]:
        if (whole := self._ids.get(word)) is not None:
            return [whole]
        if len(word) > _WORD_LIMIT:
            return [_UNKNOWN]
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if (piece := self._ids.get(prefix + word[start:end])) is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                return [_UNKNOWN]
        return found


def _words(text: str) -> list[str]:
    """Lower case without accents; white space, punctuation and ideographs separate."""
    if not text.isascii():
        text = _SPACED.sub(r" \1 ", text)
        text = "".join(ch for ch in unicodedata.normalize("NFD", text) if unicodedata.category(ch) != "Mn")
    plain: list[str] = []
    for ch in text.lower():
        if ch.isalnum():
            plain.append(ch)
        elif ch.isspace():
            plain.append(" ")
        elif _is_punctuation(ch):
            plain.append(f" {ch} ")
        elif unicodedata.category(ch) not in ("Cc", "Cf", "Cs", "Co", "Cn") and ch != "\ufffd":
            plain.append(ch)
    return "".join(plain).split()


def _is_punctuation(ch: str) -> bool:
    """As BERT sees it: every ASCII symbol, and Unicode's punctuation."""
    return "!" <= ch <= "~" or unicodedata.category(ch).startswith("P")
