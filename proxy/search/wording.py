"""Other ways to write a word of a query: what developers shorten, and one slip of the finger.

Both stand for a word of the tools; neither guesses at meaning. Families of synonyms were tried: made for the misses of
one half of the held-out queries they gained 6 points of R@5 there and less than one on the other half.
"""

from string import ascii_lowercase

_SHORT = {
    "a11y": "accessibility", "calc": "calculate", "cfg": "config", "cmd": "command", "creds": "credentials",
    "crd": "custom resource definition", "db": "database", "deps": "dependencies", "dir": "directory",
    "dm": "direct message", "env": "environment", "i18n": "internationalization", "img": "image",
    "k8s": "kubernetes", "kb": "knowledge base", "l10n": "localization", "lb": "load balancer",
    "mr": "merge request", "msg": "message", "ns": "namespace", "ocr": "optical character recognition",
    "perf": "performance", "pr": "pull request", "pwd": "password", "rca": "root cause analysis",
    "stt": "speech text", "svc": "service", "tts": "text speech", "tz": "timezone", "vm": "virtual machine",
}  # fmt: skip
_PLURALS = {f"{short}s": _SHORT[short] for short in ("crd", "db", "dir", "mr", "pr", "vm")}
SHORT_FOR = {short: tuple(words.split()) for short, words in (_SHORT | _PLURALS).items()}
"""What an abbreviation is short for. Only such as have one meaning among developers."""

SHORTEST, LONGEST = 5, 24
"""Letters of a word that may hold a slip: of shorter ones nearly every neighbour is a word of its own."""


def slips(word: str) -> set[str]:
    """Every string that is `word` with one ASCII letter too many, missing, wrong, or two neighbours swapped."""
    cuts = [(word[:n], word[n:]) for n in range(len(word) + 1)]
    found = {head + tail[1:] for head, tail in cuts if tail}
    found |= {head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1}
    found |= {head + letter + tail[1:] for head, tail in cuts if tail for letter in ascii_lowercase}
    return found | {head + letter + tail for head, tail in cuts for letter in ascii_lowercase}
