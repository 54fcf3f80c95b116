import gzip
import json
import subprocess
import sys

import pytest

from proxy import tokens
from proxy.tokens import Counts, child_argv, decode_answer, encode_request, estimate
from proxy.tokens.o200k import load

LINES = ["github 26, gitlab 262, time 2,", "*_merge_request: approve create get merge", "hello world", "", "é 你好 🙂"]


def run_child(lines: list[str]) -> list[int]:
    done = subprocess.run(child_argv(), input=encode_request(lines), capture_output=True, timeout=60, check=True)
    return decode_answer(done.stdout, lines)


def test_the_child_counts_as_tiktoken_does() -> None:
    # Known counts of o200k_base, made with tiktoken's own vocabulary.
    assert run_child(["hello world", "", "antidisestablishmentarianism"]) == [2, 0, 6]


def test_the_child_survives_special_tokens_and_lone_surrogates() -> None:
    assert all(n > 0 for n in run_child(["<|endoftext|>", "\ud800"]))


def test_the_child_loads_neither_mcp_nor_an_event_loop() -> None:
    program = (
        "import sys, runpy; sys.argv=['x']\n"
        "try: runpy.run_module('proxy.tokens', run_name='__main__')\n"
        "finally: print([m for m in ('mcp', 'anyio', 'asyncio') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"[]", capture_output=True, timeout=60, check=True)
    assert done.stderr.strip() == b"[]"
    assert done.stdout == b"[]"


def test_importing_the_counts_does_not_load_the_vocabulary_or_its_library() -> None:
    program = "import sys, proxy.tokens; print('tiktoken' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert done.stdout.strip() == b"False"


def test_a_damaged_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="sha256"):
        load(gzip.compress(b"IQ== 0\n"))


@pytest.mark.parametrize("answer", [b"", b"{}", b"[1]", b"[1, 2, 3, 4, null]", b"Traceback", b"\xff"])
def test_an_answer_that_is_not_one_count_per_line_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match="token counter"):
        decode_answer(answer, LINES)


def test_a_listing_with_one_unknown_line_is_estimated_as_a_whole() -> None:
    counts = Counts()
    counts.add(LINES[:-1], [1000, 1000, 1000, 1000])
    count, exact = counts.counter(LINES)
    assert not exact
    assert count(LINES[0]) < 100
    counts.add([LINES[-1]], [7])
    count, exact = counts.counter(LINES)
    assert exact
    assert count(LINES[0]) == 1000


def test_an_estimate_may_be_asked_for_although_all_counts_are_known() -> None:
    counts = Counts(dict.fromkeys(LINES, 1000))
    count, exact = counts.counter(LINES, exact=False)
    assert not exact
    assert count(LINES[2]) == 3  # 2 and the margin


def test_missing_lines_are_told_once_each_and_in_order() -> None:
    counts = Counts({"b": 1})
    assert counts.missing(["c", "b", "a", "c"]) == ["c", "a"]


def test_lines_that_no_catalog_uses_any_more_are_forgotten() -> None:
    counts = Counts({"a": 1, "b": 2})
    counts.keep(["b", "c"])
    assert counts.known == {"b": 2}


def test_counts_go_through_json_for_the_snapshot() -> None:
    counts = Counts({"a": 1})
    assert Counts(json.loads(json.dumps(dict(counts.known)))).count("a") == 1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello world", 2),
        ("createPullRequest", 3),
        ("internationalization", 3),
        ("github 26", 3),
        ("2747", 2),
        ("a\nb", 3),
        ("- a: b", 4),
        ("-----", 2),
        ("你好", 3),
    ],
)
def test_the_estimate_follows_its_rule(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def test_estimates_do_not_pile_up_where_nothing_is_ever_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tokenizer: estimate`, and a server that writes new descriptions with every change of its list."""
    made: list[str] = []

    def counting(text: str) -> int:
        made.append(text)
        return len(text)

    monkeypatch.setattr(tokens, "MOST_ESTIMATES", 3)
    monkeypatch.setattr(tokens, "estimate", counting)
    counts = Counts()
    lines = [f"line {number}" for number in range(9)]
    first = [counts.estimated(line) for line in lines]
    assert counts.estimated(lines[-1]) == first[-1] and len(made) == len(lines)  # the last ones are remembered
    assert counts.estimated(lines[0]) == first[0] and len(made) == len(lines) + 1  # the first ones are not


def test_estimates_of_lines_that_no_catalog_uses_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counting(text: str) -> int:
        made.append(text)
        return len(text)

    monkeypatch.setattr(tokens, "estimate", counting)
    counts = Counts()
    for _ in range(3):
        counts.estimated("stays")
        counts.aged()
    assert made == ["stays"]
    counts.estimated("goes")
    counts.aged()
    counts.aged()
    counts.estimated("goes")
    assert made == ["stays", "goes", "goes"]
