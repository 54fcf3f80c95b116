"""`python -m proxy`: the same as `narrow-waist`."""

import sys

from proxy.cli import main

sys.exit(main())
