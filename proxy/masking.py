"""Keeps secrets out of what we print: a leaf that logs, status and error texts share."""

import json
import re
from collections.abc import Iterable
from itertools import chain
from urllib.parse import quote, quote_plus

MASK = "***"
_HEX = re.compile("%[0-9A-F]{2}")
SHORTEST = 8
"""Shorter values are words such as `true` or `info`; masking them would spoil lines and protect nothing."""

_LEARNED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
"""Owner -> what it has to have masked now, and what it had before."""


def learn(owner: str, values: Iterable[str]) -> None:
    """Have `values` masked too, wherever we print: secrets that come while we run, as tokens do.

    Of each owner what it had before stays masked, and nothing older: a daemon renews its tokens for months.
    """
    parts = secret_parts(values)
    now, _ = _LEARNED.get(owner, ((), ()))
    if parts != now:
        _LEARNED[owner] = (parts, now)


def secret_parts(values: Iterable[str]) -> tuple[str, ...]:
    """What of `values` has to be masked, without duplicates, longest first.

    A value over several lines counts line by line too, because logs come in lines; of a header such as
    `Bearer abc…` the part after the scheme counts too. Each counts as it stands in an address, in JSON and in
    Python's own texts too.
    """
    found: set[str] = set()
    for value in values:
        stripped = value.strip()
        candidates = {stripped, *(line.strip() for line in stripped.splitlines()), stripped.rpartition(" ")[2]}
        found |= {form for part in candidates if len(part) >= SHORTEST for form in _forms(part)}
    return tuple(sorted(found, key=lambda s: (-len(s), s)))


def _forms(part: str) -> set[str]:
    """How a secret can be spelled."""
    if part.isalnum() and part.isascii():
        return {part}
    addresses = {form(part, safe=safe, errors="replace") for form in (quote, quote_plus) for safe in ("", "/")}
    lower = {_HEX.sub(lambda match: match[0].lower(), form) for form in addresses}
    texts = {json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1]}
    return {part, *addresses, *lower, *texts}


def mask(text: str, secrets: Iterable[str]) -> str:
    """`text` with every occurrence of a secret (of `secrets`, or learned) replaced by `***`.

    Occurrences that touch or overlap become one.
    """
    spans: list[tuple[int, int]] = []
    learned = (secret for both in _LEARNED.values() for parts in both for secret in parts)
    for secret in chain(secrets, learned):
        start = text.find(secret) if secret else -1
        while start >= 0:
            spans.append((start, start + len(secret)))
            start = text.find(secret, start + 1)
    if not spans:
        return text
    parts: list[str] = []
    end = 0
    last = -1
    for start, stop in sorted(spans):
        if start > end or last < 0:
            parts += [text[end:start], MASK]
        end = max(end, stop)
        last = stop
    parts.append(text[end:])
    return "".join(parts)
