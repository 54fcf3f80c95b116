"""The runner of scripts/conformance shares the harness of the end-to-end tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "e2e"))
