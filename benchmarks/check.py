"""How long `guerdon check` takes, against a floor: an interpreter that does nothing, in the same run."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 15


def seconds(*command):
    """Wall seconds of one run of a command."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - began


def main():
    """Time pairs in turn, so that the machine's drift hits both alike."""
    floor, check = [], []
    module = [sys.executable, "-m", "guerdon.runtime.cli.main", "check", "examples/fix_bug"]
    for _ in range(RUNS):
        floor.append(seconds(sys.executable, "-c", "pass"))
        check.append(seconds(*module))
    ratio = statistics.median(c / f for c, f in zip(check, floor, strict=True))
    print(f"python -c pass        {statistics.median(floor) * 1000:7.0f} ms")
    print(f"guerdon check fix_bug {statistics.median(check) * 1000:7.0f} ms   ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
