"""`python -m klamm` is the command `klamm`."""

from __future__ import annotations

import sys

from klamm.broker.cli import main

if __name__ == "__main__":
    sys.exit(main())
