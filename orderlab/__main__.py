"""``python -m orderlab``: the command line."""

from __future__ import annotations

from orderlab.cli import main

if __name__ == "__main__":
    main()
