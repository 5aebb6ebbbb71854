"""Writes trl_values.json: what TRL's own loss code makes of small tensors, with its gradients.

TRL is too heavy for the test run, so its values are kept. Once, where trl is installed:

    python tests/runtime/learner/trl_values.py

The trainers' `_compute_loss` runs as it is, on a trainer without a model: the one method that would ask a model for
log-probabilities and entropies hands out those of the file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
import trl
from trl import GRPOTrainer, RLOOTrainer

OUT = Path(__file__).with_suffix(".json")
MASK = [[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1], [1, 0, 0, 0, 0, 0]]
"""The third row has an observation in its middle."""
ADVANTAGES = [1.2, -0.7, -1.1, 0.6]
LONGEST = 8
CASES = {
    "grpo": {"loss_type": "grpo"},
    "grpo with kl": {"loss_type": "grpo", "beta": 0.05},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dr_grpo with kl": {"loss_type": "dr_grpo", "beta": 0.1},
    "bnpo": {"loss_type": "bnpo", "epsilon_high": 0.28},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dapo with entropy": {"loss_type": "dapo", "epsilon_high": 0.28, "entropy_coef": 0.03},
    "gspo": {
        "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4,
    },
    "gspo, wide clip": {
        "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.2, "epsilon_high": 0.2,
    },
}


class Accelerator:
    """One process."""

    num_processes = 1

    @staticmethod
    def gather(value):
        return value

    @staticmethod
    def reduce(value, reduction):
        return value


def tensors():
    """Inputs with four decimals, so that the file holds them exactly as they were used."""
    torch.manual_seed(187)  # clips two tokens on either side, and one row of two whose advantage lets it
    shape = (len(MASK), len(MASK[0]))
    policy = -torch.rand(shape) * 2 - 0.05
    made = {
        "logprobs": policy,
        "old": policy + 0.35 * torch.randn(shape),
        "reference": policy + 0.5 * torch.randn(shape),
        "entropy": torch.rand(shape) * 2,
    }
    return {name: [[round(x, 4) for x in row] for row in value.tolist()] for name, value in made.items()}


def trainer(kind, given, **options):
    """A trainer without a model, in evaluation: one batch is the whole batch."""
    made = object.__new__(kind)
    defaults = {
        "model": SimpleNamespace(training=False), "accelerator": Accelerator(), "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "importance_sampling_level": "token",
        "beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.2, "use_vllm": False, "max_completion_length": LONGEST,
        "_metrics": {"eval": defaultdict(list)}, "use_adaptive_entropy": False, "entropy_coef": 0.0,
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False),
    }
    for name, value in {**defaults, **options}.items():
        setattr(made, name, value)
    made._entropy_bonus_enabled = made.entropy_coef != 0.0
    made._get_per_token_logps_and_entropies = lambda *a, **k: (given["logprobs"], given["entropy"], None)
    return made


def batch(given, mask):
    ids = torch.zeros(mask.shape, dtype=torch.long)
    return {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids, "completion_mask": mask,
        "advantages": torch.tensor(ADVANTAGES), "old_per_token_logps": given["old"],
        "ref_per_token_logps": given["reference"], "num_items_in_batch": mask.sum(),
        "old_logps": (given["old"] * mask).sum(1),
    }


def valued(kind, numbers, **options):
    given = {name: torch.tensor(value) for name, value in numbers.items()}
    given["logprobs"].requires_grad_()
    mask = torch.tensor(MASK)
    made = trainer(kind, given, **options)
    loss = made._compute_loss(made.model, batch(given, mask))
    loss.backward()
    clipped = made._metrics["eval"].get("clip_ratio/region_mean", [None])[0]
    return {"loss": loss.item(), "gradient": given["logprobs"].grad.tolist(), "clipped": clipped}


def main():
    numbers = tensors()
    found = {name: valued(GRPOTrainer, numbers, **options) for name, options in CASES.items()}
    on_policy = {**numbers, "old": numbers["logprobs"]}
    found["rloo on policy"] = valued(RLOOTrainer, on_policy)
    document = {
        "trl": trl.__version__, "torch": torch.__version__, "mask": MASK, "advantages": ADVANTAGES, "longest": LONGEST,
        **numbers, "options": CASES, "found": found,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
