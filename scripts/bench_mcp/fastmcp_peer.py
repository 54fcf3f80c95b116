"""FastMCP's proxy over an mcpServers config, as a target: [--bm25] [--http PORT]. Run by an interpreter that has it."""

import argparse
import json
from pathlib import Path

from fastmcp.server import create_proxy  # pyright: ignore


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--bm25", action="store_true")
    parser.add_argument("--http", type=int, default=0)
    given = parser.parse_args()
    app = create_proxy(json.loads(given.config.read_text(encoding="utf-8")), name="bench-proxy")
    if given.bm25:
        from fastmcp.server.transforms.search import BM25SearchTransform  # pyright: ignore

        app.add_transform(BM25SearchTransform())
    if given.http:
        app.run(transport="http", host="127.0.0.1", port=given.http, show_banner=False, log_level="error")
    else:
        app.run(transport="stdio", show_banner=False, log_level="error")


if __name__ == "__main__":
    main()
