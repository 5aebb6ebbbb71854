"""`guerdon doctor`: what works on this machine, what does not, and the one line that mends it."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict


def main(argv: Sequence[str]) -> int:
    """Examine the machine; 1 if something that sandboxes need does not work."""
    parser = argparse.ArgumentParser("guerdon doctor", description="Examine this machine.")
    parser.add_argument("--json", action="store_true", help="findings as JSON")
    options = parser.parse_args(argv)
    from guerdon.runtime.sandbox.doctor import examine

    findings = asyncio.run(examine())
    if options.json:
        print(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'FAIL'} {finding.name}: {finding.detail}")
            if finding.remedy and not finding.ok:
                print(f"     mend it: {finding.remedy}")
    return int(not all(f.ok for f in findings))
