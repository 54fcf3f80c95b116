"""Search by meaning. The model is an optional extra, so most tests bring vectors of their own."""

import json
import logging
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import catalog, names, tool

from proxy.app import App
from proxy.caller import Caller
from proxy.config import ServerConfig, Settings, ToolSearchConfig
from proxy.search import Index
from proxy.search.encoder import DIMENSION, Encoder, Floats, decode_answer, installed
from proxy.search.semantic import Meaning, Vectors, text_of
from proxy.search.wordpiece import WordPiece
from proxy.semantics import Semantics
from proxy.tool import Tool
from proxy.upstream.snapshot import Snapshot

TOPICS = (("money", "invoice", "bill"), ("weather", "forecast", "rain"), ("ticket", "issue", "bug"))


def embed(texts: Sequence[str]) -> Floats:
    """A model that knows three topics."""
    rows = np.zeros((len(texts), DIMENSION), np.float32)
    for number, text in enumerate(texts):
        for topic, words in enumerate(TOPICS):
            rows[number, topic] = any(word in text.lower() for word in words)
        rows[number, 3] = 0.1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def vectors_of(tools: Sequence[Tool]) -> Vectors:
    texts = Vectors().missing(tools)
    return Vectors().plus(texts, embed(texts).astype(np.float16))


TOOLS = [tool("send_invoice", "Send an invoice"), tool("get_forecast", "The forecast"), tool("open_issue", "Open one")]


def meaningful(tools: list[dict[str, Any]] = TOOLS) -> Index:
    index = Index(catalog({"a": tools}))
    return index.with_meaning(Meaning(vectors_of(index.tools), index.tools, embed))


def test_a_tool_without_any_word_of_the_query_is_found_by_its_meaning() -> None:
    assert names(Index(catalog({"a": TOOLS})), "rain") == []
    index = meaningful()
    assert names(index, "rain", 1) == ["a__get_forecast"]
    assert names(index, "money bill", 1) == ["a__send_invoice"]
    assert index.search("rain", 5).unmatched == ("rain",)


def test_what_means_nothing_here_still_finds_nothing() -> None:
    assert meaningful().search("zebra", 5).matches == ()


def test_an_exact_name_still_comes_first() -> None:
    assert names(meaningful(), "open_issue money bill rain", 1) == ["a__open_issue"]
    assert meaningful().search("open_issue", 5).exact == 1


def test_the_parts_of_an_explanation_make_up_the_score() -> None:
    index = meaningful()
    for found, score in index.search("open a bug", 5).matches:
        explained = index.explain("open a bug", found)
        assert explained.score == pytest.approx(score, rel=1e-4)
    assert index.explain("open a bug", index.search("open a bug", 1).matches[0][0]).meaning > 0


def test_a_tool_without_a_vector_is_ranked_by_its_words() -> None:
    index = Index(catalog({"a": [*TOOLS, tool("new_thing", "Rain gauge")]}))
    partly = index.with_meaning(Meaning(vectors_of(index.tools[:3]), index.tools, embed))
    assert set(names(partly, "rain gauge")) >= {"a__new_thing"}
    assert names(partly, "new_thing", 1) == ["a__new_thing"]


def test_a_search_within_one_server_stays_there() -> None:
    index = Index(catalog({"a": TOOLS, "b": [tool("rain_alarm", "Forecast")]}))
    index = index.with_meaning(Meaning(vectors_of(index.tools), index.tools, embed))
    assert all(name.startswith("a__") for name in names(index, "rain forecast money", 20, "a"))


def test_the_same_tools_in_any_order_give_the_same_answers() -> None:
    shuffled = list(TOOLS)
    random.Random(1).shuffle(shuffled)
    for query in ("rain", "open money", ""):
        assert names(meaningful(), query) == names(meaningful(shuffled), query)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.integers(0, 5))
def test_no_query_raises(query: str, limit: int) -> None:
    index = meaningful()
    assert len(index.search(query, limit).matches) <= max(limit, index.search(query, limit).exact)
    empty = Index(catalog({}))
    assert empty.with_meaning(Meaning(Vectors(), (), embed)).search(query, limit).matches == ()


def test_a_model_that_fails_leaves_the_words_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(texts: Sequence[str]) -> Floats:
        raise RuntimeError("out of memory")

    index = Index(catalog({"a": TOOLS}))
    index = index.with_meaning(Meaning(vectors_of(index.tools), index.tools, broken))
    assert names(index, "open issue", 1) == names(index, "issue open", 1) == ["a__open_issue"]
    assert len(caplog.records) == 1


def test_vectors_that_were_packed_are_unpacked_and_damaged_ones_are_as_never_seen() -> None:
    tools = Index(catalog({"a": TOOLS})).tools
    vectors = vectors_of(tools)
    packed = vectors.pack()
    assert Vectors.unpack(packed).missing(tools) == []
    assert np.array_equal(Vectors.unpack(packed).matrix(tools), vectors.matrix(tools))
    other = packed.replace(b"MiniLM", b"LiniMM")
    for damaged in (b"", b"\n", b"{}", packed[:-1], packed[5:], packed + b"x", other):
        assert len(Vectors.unpack(damaged)) == 0
    assert len(Vectors.unpack(Vectors().pack())) == 0


def test_only_texts_that_changed_are_missing_and_old_ones_are_forgotten() -> None:
    before = Index(catalog({"a": TOOLS})).tools
    after = Index(catalog({"a": [*TOOLS[:2], tool("open_issue", "Open another one")]})).tools
    vectors = vectors_of(before)
    assert vectors.missing(after) == [text_of(t) for t in after if t.name == "open_issue"]
    assert len(vectors.only(after)) == 2


def test_an_answer_that_is_cut_or_no_number_is_refused() -> None:
    rows = np.ones((2, DIMENSION), np.float16)
    assert decode_answer(rows.tobytes(), 2).shape == rows.shape
    rows[0, 0] = np.nan
    for answer in (b"", rows.tobytes()[:-2], rows.tobytes()):
        with pytest.raises(ValueError):
            decode_answer(answer, 2)


def test_the_word_pieces_are_those_of_bert() -> None:
    """Expected ids are those that the `tokenizers` package gives."""
    pieces = WordPiece()
    assert pieces.ids("Create a GitHub issue!", 64) == [101, 3443, 1037, 21025, 2705, 12083, 3277, 999, 102]
    assert pieces.ids("créer 天气", 64) == pieces.ids("creer 天 气", 64)
    assert pieces.ids("", 64) == [101, 102]
    assert len(pieces.ids("word " * 500, 64)) == 64
    assert pieces.ids("x" * 101, 64) == [101, 100, 102]


CHILD = """
import json, sys
import numpy as np
sys.path.insert(0, {tests!r})
from test_semantic import embed
sys.stdout.buffer.write(embed(json.load(sys.stdin)).astype(np.float16).tobytes())
"""


def semantics(
    tools: Sequence[Tool], snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, child: str | None = None
) -> Semantics:
    monkeypatch.setattr("proxy.semantics.installed", lambda: True)
    monkeypatch.setattr("proxy.semantics.Encoder", lambda: type("Fake", (), {"embed": staticmethod(embed)})())
    text = child if child is not None else CHILD.format(tests=str(Path(__file__).parent))
    return Semantics(lambda: tools, snapshot.load_vectors, snapshot.save_vectors, [sys.executable, "-c", text])


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def learn(what: Semantics, index: Index) -> Index:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(what.run)
        await what.learned()
        found = await what.enrich(index)
        tasks.cancel_scope.cancel()
    return found


async def test_vectors_are_made_in_batches_kept_on_disk_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.semantics.BATCH", 2)
    index, snapshot = Index(catalog({"a": TOOLS})), Snapshot(tmp_path)
    found = await learn(semantics(index.tools, snapshot, monkeypatch), index)
    assert names(found, "rain", 1) == ["a__get_forecast"]
    assert await anyio.to_thread.run_sync(modes, tmp_path) == {0o600}
    again = await learn(semantics(index.tools, snapshot, monkeypatch, child="raise SystemExit(1)"), index)
    assert names(again, "rain", 1) == ["a__get_forecast"]


@pytest.mark.parametrize("child", ["raise SystemExit(3)", "print('nothing')", "import os; os.abort()"])
async def test_a_child_that_fails_costs_one_line_in_the_log_and_search_goes_on(
    child: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index = Index(catalog({"a": TOOLS}))
    found = await learn(semantics(index.tools, Snapshot(tmp_path), monkeypatch, child), index)
    assert found is index and names(found, "open issue", 1) == ["a__open_issue"]
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


async def test_where_the_extra_is_not_installed_search_goes_by_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.semantics.installed", lambda: False)
    search = ToolSearchConfig(semantic="on", tokenizer="estimate")
    server = ServerConfig("broken", "stdio", command=str(tmp_path / "nothing"))
    app = App(Settings((server,), search), {**os.environ, "NARROW_WAIST_CACHE": str(tmp_path)})
    assert app.semantics is not None
    async with app.running():
        await app.semantics.learned()
        answer = await app.call("tool_search", {"query": "anything"}, {}, Caller(client="test"))
    assert "isError" not in answer and "semantic" not in json.dumps(answer)
    assert len([r for r in caplog.records if "narrow-waist[semantic]" in r.getMessage()]) == 1


def test_semantic_search_is_off_by_default() -> None:
    assert App(Settings(), {"NARROW_WAIST_CACHE": "unused"}).semantics is None


@pytest.mark.skipif(not installed(), reason="the extra narrow-waist[semantic] is not installed")
def test_the_real_model_puts_alike_texts_together() -> None:
    rain, forecast, invoice = Encoder().embed(["will it rain tomorrow", "get the weather forecast", "send an invoice"])
    assert rain @ forecast > 0.5 > rain @ invoice
    assert np.linalg.norm(rain) == pytest.approx(1, abs=1e-3)
