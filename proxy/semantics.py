"""Semantics: gives the search index its meaning, in the background. Made by `app` where `tool_search.semantic` is on.

The vectors of a catalog are made by short-lived children of the lowest priority, one after the other, a batch each;
what is done is used and kept on disk at once. Until then, and wherever anything fails, search goes by words alone: a
line in the log says so, and no answer does.
"""

import logging
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from proxy.search import Index
from proxy.search.encoder import Encoder, Floats, child_argv, decode_answer, encode_request, installed
from proxy.search.semantic import Meaning, Vectors
from proxy.tool import Tool

log = logging.getLogger(__name__)

BATCH = 512
"""Texts for one child: about 6 s of CPU, of which .3 s to load the model."""


class Semantics:
    """The vectors that are known, and the work of making those that are not."""

    def __init__(
        self,
        tools: Callable[[], Sequence[Tool]],
        load: Callable[[], bytes],
        save: Callable[[bytes], None],
        argv: Sequence[str] | None = None,
    ) -> None:
        """`tools` are those of the current catalog; `load` and `save` keep packed vectors on disk."""
        self._tools, self._load, self._save = tools, load, save
        self._argv = list(argv) if argv is not None else child_argv()
        self._encoder = _Lazy()
        self._vectors = Vectors()
        self._ready = False
        self._dirty = anyio.Event()
        self._dirty.set()
        self._learned = anyio.Event()
        self._indexes: WeakKeyDictionary[Index, tuple[Vectors, Index]] = WeakKeyDictionary()

    def changed(self) -> None:
        """The catalog has changed."""
        self._learned = anyio.Event()
        self._dirty.set()

    async def learned(self) -> None:
        """Wait until every tool of the current catalog has its vector, or never will."""
        await self._learned.wait()

    async def run(self) -> None:
        """Keep the vectors up with the catalog until cancelled; ends where that cannot be done."""
        try:
            if not installed():
                raise OSError("it is not installed; pip install 'narrow-waist[semantic]'")
            self._vectors = await anyio.to_thread.run_sync(lambda: Vectors.unpack(self._load()))
            while True:
                await self._dirty.wait()
                self._dirty, learned = anyio.Event(), self._learned
                await self._learn(self._tools())
                learned.set()
        except Exception as error:
            # What a broken installation of a native package raises, nobody knows; it must never end the proxy.
            log.warning("search goes by words alone: the embedding model cannot be used (%s)", error)
            self._ready = False
            self._learned.set()

    async def _learn(self, tools: Sequence[Tool]) -> None:
        missing = await anyio.to_thread.run_sync(self._vectors.missing, tools)
        for start in range(0, len(missing), BATCH):
            texts = missing[start : start + BATCH]
            try:
                done = await anyio.run_process(self._argv, input=encode_request(texts), stderr=subprocess.DEVNULL)
            except subprocess.CalledProcessError as error:
                raise OSError(f"its process ended with code {error.returncode}") from None
            self._vectors = self._vectors.plus(texts, decode_answer(done.stdout, len(texts)))
            if start + BATCH >= len(missing):
                self._vectors = await anyio.to_thread.run_sync(self._vectors.only, tools)
            await anyio.to_thread.run_sync(lambda: self._save(self._vectors.pack()))
            await self._warm()
        if len(self._vectors):
            await self._warm()

    async def _warm(self) -> None:
        """Load the model for queries before the first one needs it."""
        if not self._ready:
            await anyio.to_thread.run_sync(self._encoder, ["a"])
            self._ready = True

    async def enrich(self, index: Index) -> Index:
        """`index` with the meaning that is known by now. Its searches take 5 ms and belong into a thread."""
        if not self._ready:
            return index
        vectors = self._vectors
        known = self._indexes.get(index)
        if known is None or known[0] is not vectors:
            meaning = await anyio.to_thread.run_sync(partial(Meaning, vectors, index.tools, self._encoder))
            known = self._indexes[index] = vectors, index.with_meaning(meaning)
        return known[1]


class _Lazy:
    """The encoder of queries, made at the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None

    def __call__(self, texts: Sequence[str]) -> Floats:
        with self._lock:
            if self._encoder is None:
                self._encoder = Encoder()
        return self._encoder.embed(texts)
