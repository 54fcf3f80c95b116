"""Ranking over a catalog: fielded BM25 over two forms of each word, then a soft re-rank by how much of a tool's name
the query covers. Pure; `Index` is built from a view, used by `bridge`, and swapped
whole.

Why not `rank-bm25` alone: on the labelled queries of `scripts/retrieval` (R@1/R@5/R@10)

    rank-bm25, identifiers split, stems, name x3        .688/.864/.913 (MCP tools)   .687/.897/.947 (API operations)
    this module                                         .776/.929/.938               .818/.951/.975

because it has no fields, is linear in the documents (10 ms a query at 9,000 tools; here 0.3 ms), gives zero or negative
scores in catalogs of one or two tools, and divides by zero in an empty one. `scripts/eval_search.py --baseline`
measures it again.

What carries the ranking, each measured on both files (R@5 without it): name coverage (-1.2/-2.5), words as written
beside stems (-1.0/-0.4), parameter texts (-.9/-.2), enum values (-.4/-.3), stop words (-.9/-.5). There is no gate: a
word that no tool has is ignored and reported. What was tried and left out: synonyms, feedback, squared or unweighted
coverage, other field weights (all within .3 points of R@5 around these).
"""

from proxy.search.index import Explanation, Hits, Index
from proxy.search.near import near_names, unknown_name

__all__ = ["Explanation", "Hits", "Index", "near_names", "unknown_name"]
