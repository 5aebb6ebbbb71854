"""`guerdon train PACK [overrides]`: see runtime/loop/training/."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

USAGE = """usage: guerdon train PACK [key=value …] [-m]

Trains a policy on a pack: warm start, rollouts in sandboxes, verified rewards, updates. Some keys: seed=1
algorithm=grpo|dr_grpo|dapo|gspo|rloo|reinforce_pp algorithm.steps=30 algorithm.lr=3e-4 learner=small|tiny|hf
learner.ranks=2 learner.tensor=2 warm_start=none|oracle|habits evaluate.every=10 tracker=[tensorboard]
reward.TERM=0.5 store.runs=DIR. With -m, commas sweep: seed=1,2. The same command resumes; see docs/training.md."""


def main(argv: Sequence[str]) -> int:
    """Train a policy on a pack."""
    if not argv or argv[0].startswith("-") or "=" in argv[0]:
        print(USAGE, file=sys.stderr if not argv or argv[0] not in ("-h", "--help") else sys.stdout)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    missing = [name for name in ("torch", "megatron", "psutil") if find_spec(name) is None]
    if missing:
        print(f"error: training needs {', '.join(missing)}; pip install 'guerdon[learn]'", file=sys.stderr)
        return 1
    from guerdon.runtime.cli.loading import load
    from guerdon.runtime.cli.trouble import Problems, provider, report
    from guerdon.runtime.loop.app import run_app
    from guerdon.runtime.loop.training.command import TRAIN

    try:
        return run_app(argv[0], list(argv[1:]), load, provider, command=TRAIN)
    except Problems as problem:
        return report(problem)
