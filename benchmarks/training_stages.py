"""Where the seconds of a training step go: `python benchmarks/training_stages.py RUN_FOLDER` (of `guerdon train`).

Prints the mean of each stage over the run's steps, its share, episodes a second, and what the episodes themselves
spent (summed over those that ran side by side).
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path


def rows(path: Path) -> list[dict[str, float]]:
    """The lines of training steps."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in found if row["kind"] == "train"]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 0
    folder = Path(sys.argv[1])
    times, metrics = rows(folder / "times.jsonl"), rows(folder / "metrics.jsonl")
    total: dict[str, float] = defaultdict(float)
    for row in times:
        for key, value in row.items():
            if key.startswith(("seconds/", "episode_seconds/")):
                total[key] += value
    wall = sum(value for key, value in total.items() if key.startswith("seconds/"))
    episodes = sum(row["episodes"] for row in metrics)
    print(f"{len(times)} steps, {episodes:.0f} episodes, {wall / len(times):.2f} s a step")
    for key in sorted(total, key=lambda k: -total[k]):
        if key.startswith("seconds/"):
            print(f"  {key.partition('/')[2]:12} {total[key] / len(times):8.2f} s a step  {total[key] / wall:6.1%}")
    print(f"  {episodes / total['seconds/rollout']:.2f} episodes a second in rollouts; of an episode's own time:")
    own = sum(value for key, value in total.items() if key.startswith("episode_"))
    for key in sorted(total, key=lambda k: -total[k]):
        if key.startswith("episode_"):
            print(f"  {key.partition('/')[2]:12} {total[key] / own:6.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
