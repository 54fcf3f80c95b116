"""The counting child: reads a JSON array of strings on stdin, writes a JSON array of token counts on stdout."""

import json
import sys

from proxy.tokens.o200k import count_all


def main() -> None:
    """Count what stdin holds."""
    sys.stdout.write(json.dumps(count_all(json.loads(sys.stdin.buffer.read()))))


if __name__ == "__main__":
    main()
