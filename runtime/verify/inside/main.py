"""Entry of the trusted parent: `python3 -I -B /grader/harness/main.py`, its programs in a folder beside it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Last, so that the image's own packages win; under -I nothing else of this kind is on the path.
    sys.path.append(str(Path(__file__).resolve().parent))
    importlib.import_module("guerdon_inside.parent").main()
