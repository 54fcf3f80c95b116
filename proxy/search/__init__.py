"""Ranking over a catalog: fielded BM25 over two forms of each word, then a soft re-rank by how much of a tool's name
the query covers. Pure; `Index` is built from a view, used by `bridge`, and swapped whole.

Why not `rank-bm25` alone: on the labelled queries of `scripts/retrieval` (R@1/R@5/R@10, `eval_search.py --baseline`)

    rank-bm25, same tokenizer, name x3  .686/.867/.919 (656 MCP tools)  .684/.894/.941 (4,247 API operations)
    this package                        .779/.925/.940                  .822/.952/.975

and on queries that it was not tuned on (heldout, 4,465 tools) .458/.588/.638 against .548/.638/.678: at 5 nearly all of
that is misspelt and abbreviated words. Besides, rank-bm25 is linear in the tools (3.7 ms a query for the API; here
.4 ms at 9,500 tools), gives zero or negative scores in catalogs of one or two tools, and divides by zero in an empty
one. An index of 9,500 tools takes 1.9 s CPU to build, .4 s when one server of 100 tools changed, and 25 MB.

There is no gate: a word that no tool has is ignored and reported. Tried and left out: synonyms (see `wording`),
feedback, squared or unweighted coverage, coverage over words as written, other field weights (all within .5 points of
R@5 around these).
"""

from proxy.search.index import Explanation, Hits, Index
from proxy.search.near import near_names, unknown_name

__all__ = ["Explanation", "Hits", "Index", "near_names", "unknown_name"]
