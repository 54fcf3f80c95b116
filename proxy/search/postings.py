"""Fielded BM25 as arrays: what each term adds to each document's score, worked out when the index is built.

A query is then a handful of vector additions. One saturation over all fields (Robertson's BM25F): the counts of a term
in the fields are weighted, divided by the field's length norm and added up before they are saturated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

K1 = 1.2
"""Saturation: how soon a further occurrence stops counting. .9 to 1.6 move recall@5 by .2 points."""
_PIECE = 16_384
"""Pairs added up at once: numpy keeps the interpreter meanwhile, and calls wait (all 400,000 took 40 to 90 ms)."""


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Which term stands how often in which field of which document, sorted by term, then document; each pair once."""

    terms: Ints
    documents: Ints
    counts: Floats
    """One row of fields per pair."""


def merge(terms: Ints, documents: Ints, counts: npt.NDArray[np.generic], size: int) -> Occurrences:
    """Sort pairs in any order and add up what occurs twice. `size` is the number of documents."""
    if not len(terms):
        return Occurrences(terms, documents, counts.astype(np.float32))
    key = terms * size + documents
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    summed = np.empty((len(first), counts.shape[1]), np.float32)
    for start in range(0, len(first), _PIECE):
        piece = first[start : start + _PIECE]
        end = first[start + _PIECE] if start + _PIECE < len(first) else len(order)
        rows = counts[order[piece[0] : end]].astype(np.float32)
        summed[start : start + _PIECE] = np.add.reduceat(rows, piece - piece[0], dtype=np.float32)
    return Occurrences(key[first] // size, key[first] % size, summed)


def rarity(occurrences: Occurrences, terms: int, size: int) -> Floats:
    """Idf of each of `terms` terms; never negative, so that one or two documents work too."""
    frequency = np.bincount(occurrences.terms, minlength=terms)
    return np.log1p((size - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)


class Postings:
    """Per term the documents that hold it, ascending, each with the term's share of its score."""

    __slots__ = ("_documents", "_ids", "_shares", "_start")

    def __init__(self, ids: Mapping[str, int], terms: Ints, documents: Ints, shares: Floats) -> None:
        self._ids = ids
        self._start = np.searchsorted(terms, np.arange(len(ids) + 1))
        self._documents = documents.astype(np.int32)
        self._shares = shares.astype(np.float32)

    def __contains__(self, term: str) -> bool:
        return term in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def of(self, term: str) -> tuple[npt.NDArray[np.int32], Floats] | None:
        """The documents of `term` and its share in each; None for an unknown term."""
        if (number := self._ids.get(term)) is None:
            return None
        span = slice(self._start[number], self._start[number + 1])
        return self._documents[span], self._shares[span]

    def documents(self, term: str) -> int:
        """How many documents hold `term`."""
        return 0 if (found := self.of(term)) is None else len(found[0])

    def share(self, term: str, document: int) -> float:
        """What `term` adds to `document`."""
        if (found := self.of(term)) is None:
            return 0.0
        position = int(np.searchsorted(found[0], document))
        return float(found[1][position]) if position < len(found[0]) and found[0][position] == document else 0.0

    def occurs(self, term: str, span: range) -> bool:
        """Whether a document of `span` holds `term`."""
        if (found := self.of(term)) is None:
            return False
        position = int(np.searchsorted(found[0], span.start))
        return position < len(found[0]) and bool(found[0][position] < span.stop)


def bm25f(ids: Mapping[str, int], occurrences: Occurrences, norm: Floats) -> Postings:
    """The postings of a fielded BM25. `norm` is weight / length norm of each field of each document."""
    # the logarithm damps a word repeated within one field (counts 1, 2, 4 -> 1, 1.6, 2.3) before fields add up
    damped = np.log2(1 + occurrences.counts)
    frequency = np.einsum("ij,ij->i", damped, norm[occurrences.documents])
    idf = rarity(occurrences, len(ids), len(norm))[occurrences.terms]
    return Postings(ids, occurrences.terms, occurrences.documents, idf * frequency / (K1 + frequency))


def length_norm(occurrences: Occurrences, size: int, weights: Floats, slope: Floats) -> Floats:
    """Weight / length norm of each field of `size` documents; `slope` is BM25's b of each field."""
    lengths = np.zeros((size, len(weights)), dtype=np.float32)
    for field in range(len(weights)):
        lengths[:, field] = np.bincount(occurrences.documents, occurrences.counts[:, field], minlength=size)
    mean = lengths.mean(axis=0) if size else np.ones(len(weights), dtype=np.float32)
    mean[mean == 0] = 1
    return (weights / (1 - slope + slope * lengths / mean)).astype(np.float32)


def coverage(ids: Mapping[str, int], occurrences: Occurrences, field: int, size: int) -> Postings:
    """For each term its idf-weighted share of all the terms that a document has in `field`."""
    idf = rarity(occurrences, len(ids), size)
    there = occurrences.counts[:, field] > 0
    terms, documents = occurrences.terms[there], occurrences.documents[there]
    total = np.bincount(documents, idf[terms], minlength=size)
    used: Ints = np.unique(terms)
    names = list(ids)
    own = {names[int(term)]: number for number, term in enumerate(used)}
    return Postings(own, np.searchsorted(used, terms), documents, (idf[terms] / total[documents]).astype(np.float32))
