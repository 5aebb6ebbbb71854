"""Writes trl_advantages.json: what TRL's own code makes of groups of rewards, some of them missing.

TRL is too heavy for the test run, so its values are kept. Once, where trl is installed:

    python tests/runtime/credit/trl_advantages.py

TRL has no function for it: the statements from the rewards to the advantages are taken out of the trainers'
`_generate_and_score_completions` as they stand and run. A completion that no reward function could score is TRL's
word for an invalid episode.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import torch
import trl
from trl import GRPOTrainer, RLOOTrainer

OUT = Path(__file__).with_suffix(".json")
SIZE = 5
REWARDS = [
    [1.0, 0.0, 0.0, 1.0, 0.25],
    [0.9, None, 0.3, 0.45, None],
    [0.5, 0.5, 0.5, 0.5, 0.5],
    [None, None, 0.7, None, None],
    [None, None, None, None, None],
    [-1.0, 3.0, None, -1.0, 0.125],
    [1.0, 1.0, None, 1.0, 1.0],
]
CASES = {
    "normalised": (GRPOTrainer, {"scale_rewards": "group"}),
    "centred": (GRPOTrainer, {"scale_rewards": "none"}),
    "leave_one_out": (RLOOTrainer, {"normalize_advantages": False}),
}


def statements(kind):
    """From the mask of what could not be scored to the advantages that are used."""
    method = ast.parse(textwrap.dedent(inspect.getsource(kind._generate_and_score_completions))).body[0]
    named = [
        target.id if isinstance(one, ast.Assign) and isinstance(target := one.targets[0], ast.Name) else ""
        for one in method.body
    ]
    first = named.index("unscorable_mask")
    last = max(i for i, (name, one) in enumerate(zip(named, method.body, strict=True))
               if name == "advantages" and "nan_to_num" in ast.unparse(one))
    return compile(ast.Module(method.body[first : last + 1], []), kind.__name__, "exec")


def valued(kind, options):
    flat = [float("nan") if one is None else one for group in REWARDS for one in group]
    this = SimpleNamespace(
        reward_weights=torch.tensor([1.0]), multi_objective_aggregation="sum_then_normalize", beta=0.0,
        reward_clip_range=None, **options,
    )
    names = {**vars(sys.modules[kind.__module__]), "self": this, "num_generations": SIZE, "device": "cpu",
             "rewards_per_func": torch.tensor(flat, dtype=torch.float64)[:, None]}
    exec(statements(kind), names)
    return names["advantages"].view(-1, SIZE).tolist()


def main():
    found = {name: valued(kind, options) for name, (kind, options) in CASES.items()}
    OUT.write_text(json.dumps({"trl": trl.__version__, "rewards": REWARDS, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
