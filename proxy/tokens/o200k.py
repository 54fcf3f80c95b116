"""The o200k vocabulary from our own wheel, as a tiktoken encoding. Never touches the network.

`tiktoken.get_encoding` downloads (without a time limit), so it is never used. Loaded only by the counting child.
"""

import base64
import gzip
import hashlib
from importlib.resources import files

import tiktoken

FILE = "o200k_base.tiktoken.gz"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the unpacked file; the value tiktoken itself expects."""

PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""How o200k splits text before merging (tiktoken_ext.openai_public)."""
SPECIAL = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}


def load(packed: bytes | None = None) -> tiktoken.Encoding:
    """The encoding, from `packed` (gzip) or else from our own data.

    Raises:
        ValueError: the vocabulary is not the one we know.
    """
    data = gzip.decompress(packed if packed is not None else files("proxy.data").joinpath(FILE).read_bytes())
    if (found := hashlib.sha256(data).hexdigest()) != SHA256:
        raise ValueError(f"the o200k vocabulary is damaged: sha256 {found}, expected {SHA256}")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines() if line)}
    return tiktoken.Encoding("o200k_base", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL)


def count_all(lines: list[str], encoding: tiktoken.Encoding | None = None) -> list[int]:
    """Tokens of each line; special tokens are ordinary text, lone surrogates count as U+FFFD."""
    encoding = encoding or load()
    return [len(encoding.encode_ordinary(line)) for line in lines]
