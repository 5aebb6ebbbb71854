"""Entry of the trusted parent: `python3 -I -B /grader/harness/main.py`, its programs in a folder beside it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # On the path for this one import only: left there, this file would be what hidden tests get for `import main`.
    sys.path.append(str(Path(__file__).resolve().parent))
    parent = importlib.import_module("guerdon_inside.parent")
    sys.path.pop()
    parent.main()
