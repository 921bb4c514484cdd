"""Command line: `python -m backops`, also installed as `backops`."""

from __future__ import annotations

import sys

from backops._cli import main

if __name__ == "__main__":
    sys.exit(main())
