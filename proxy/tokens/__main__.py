"""The counting child: reads a JSON array of strings on stdin, writes a JSON array of token counts on stdout.

The vocabulary is loaded before anything is read, so that a child that is started early answers at once.
"""

import json
import sys

from proxy.tokens.o200k import count_all, load


def main() -> None:
    """Count what stdin holds; nothing where it ends without a request."""
    encoding = load()
    if request := sys.stdin.buffer.read():
        sys.stdout.write(json.dumps(count_all(json.loads(request), encoding)))


if __name__ == "__main__":
    main()
