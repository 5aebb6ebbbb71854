"""`guerdon train` as a command: a pack, a configuration, a run folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from guerdon.conf.train import GROUPS, TrainConf
from guerdon.runtime.agent.table import make_renderer
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.loop.closing import close
from guerdon.runtime.loop.command import Job, Stage
from guerdon.runtime.loop.config import RunConfig, RunError
from guerdon.runtime.loop.run import SUMMARY, check, refuse_unlocked
from guerdon.runtime.loop.settings import reward_defaults
from guerdon.runtime.loop.training.settle import SettledTraining, folder_name, settle_train
from guerdon.runtime.loop.training.train import Place, rows_of, train
from guerdon.runtime.report.progress import Reporter
from guerdon.runtime.report.trackers import make_trackers
from guerdon.runtime.schedule.stop import stop_on_signals


class Train:
    """`guerdon train`: a policy gets better on a pack."""

    name = "train"
    groups = GROUPS
    stand_in = ()

    def root(self, plan: LoadedPlan) -> object:
        return TrainConf(reward=reward_defaults(plan.plan))

    def settle(self, document: Mapping[str, Any], plan: LoadedPlan) -> SettledTraining:
        return settle_train(document, plan.plan)

    def check(self, settled: SettledTraining, plan: LoadedPlan) -> None:
        cfg = settled.cfg
        check(plan, RunConfig(tasks=cfg.tasks, split=cfg.split))
        learnt = rows_of(plan, cfg, cfg.split)
        held_out = rows_of(plan, cfg, cfg.eval_split) if cfg.evaluate.rows else []
        for instance in (*learnt, *held_out):
            refuse_unlocked(plan.plan.pack, instance)
        for task in cfg.tasks or plan.plan.tasks:
            if all(instance.task != task for instance in learnt):
                raise RunError(f"the task {task} has no row in the split {cfg.split!r} to learn from; "
                               "leave it out with tasks=[…], or choose another split")
        _renderer(settled)

    def folder(self, settled: SettledTraining, plan: LoadedPlan) -> str:
        return folder_name(plan.plan.pack, plan.digest, settled.cfg)

    def work(self, job: Job, stage: Stage) -> bool:
        summary = asyncio.run(self._train(job, stage))
        stage.console.print(table(summary))
        return True

    async def _train(self, job: Job, stage: Stage) -> Mapping[str, Any]:
        settled: SettledTraining = job.settled
        with Reporter(stage.console) as reporter, stop_on_signals(reporter.note) as stop:
            trackers = make_trackers(settled.cfg.tracker, job.out, job.document, reporter.note)
            provider = await stage.provider() if job.plan.plan.environments else None
            try:
                return await train(Place(
                    job.plan, settled.cfg, job.out, provider, _renderer(settled), trackers, reporter, stop, stage.base,
                    stage.side_by_side,
                ))
            finally:
                for tracker in trackers:
                    tracker.close()
                await close(provider, reporter.note)

    def recall(self, out: Path, console: Console) -> None:
        with suppress(OSError, ValueError, KeyError):
            console.print(table(json.loads((out / SUMMARY).read_text())))


def _renderer(settled: SettledTraining) -> Any:
    try:
        return make_renderer(settled.cfg.renderer, settled.cfg.learner.weights)
    except ValueError as wrong:
        raise RunError(f"learner.renderer: {wrong}") from wrong


def table(summary: Mapping[str, Any]) -> Table:
    """The table of a training run, from its summary.json."""
    made = Table("algorithm", "seed", "steps", "solve rate, held out", "seconds")
    rates = [rate for rate in summary["solve_rate"].values() if rate is not None]
    shown = f"{rates[0]:.3f} -> {rates[-1]:.3f}" if rates else "not looked at"
    made.add_row(summary["algorithm"], str(summary["seed"]), str(summary["steps"]), shown, f"{summary['seconds']:.0f}")
    return made


TRAIN = Train()
