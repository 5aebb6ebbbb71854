"""The checkpoints of a run: one folder a step, whole or not there; the newest is where a run goes on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from guerdon.runtime.contracts.learner import Learner

NAME = re.compile(r"step-(\d{6})")
FIRST = 0
"""The step before any update: always kept, since it is the reference policy and what a report compares with."""


def folder(out: Path, step: int) -> Path:
    """Where the checkpoint after `step` updates lies."""
    return out / "checkpoints" / f"step-{step:06d}"


def steps(out: Path) -> list[int]:
    """The steps that have a whole checkpoint; a half one is under another name."""
    found = (NAME.fullmatch(path.name) for path in (out / "checkpoints").glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


async def save(learner: Learner, out: Path, step: int, keep: int) -> None:
    """Write one, then drop all but the newest `keep` and the first. Raises LearnerFault."""
    await fresh(learner, folder(out, step))
    for old in [one for one in steps(out) if one != FIRST][: -max(1, keep)]:
        shutil.rmtree(folder(out, old), ignore_errors=True)


async def fresh(learner: Learner, target: Path) -> None:
    """Write a checkpoint in the place of one that an earlier try has left. Raises LearnerFault."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    await learner.save(target)
