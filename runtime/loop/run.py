"""Running a plan: every selected row times samples, into one run folder that can be gone on with at any time."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.policy import MessagePolicy
from guerdon.runtime.contracts.sandbox import SandboxProvider
from guerdon.runtime.contracts.store import StoreFault
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Outcome, Sealed
from guerdon.runtime.loop.config import RunConfig, RunError, episode_seed, selected
from guerdon.runtime.loop.episode import Job, run_episode
from guerdon.runtime.loop.summary import Summary
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.schedule.executor import default_admission, run_jobs
from guerdon.runtime.schedule.retry import Breaker
from guerdon.runtime.schedule.stop import Stop
from guerdon.runtime.store.durable import write_atomically, writing
from guerdon.runtime.store.journal import FileJournal

DONE = "DONE"
SUMMARY = "summary.json"


class Watcher(Protocol):
    """Who is told how a run goes on."""

    def begin(self, title: str, total: int, sealed: int) -> None: ...

    def episode(self, sealed: Sealed) -> None: ...

    def note(self, text: str) -> None: ...


async def run(
    plan: LoadedPlan, policy: MessagePolicy, cfg: RunConfig, out: Path, provider: SandboxProvider | None,
    *, watcher: Watcher | None = None, stop: Stop | None = None, settings: Mapping[str, Any] | None = None,
) -> Summary:
    """Run what of the plan is not yet sealed in `out`, and sum up.

    Raises RunError (a selection that the plan does not have, a folder of another plan), StoreFault,
    AssetFault, HostFault, PolicyDown and Interrupted; all that was sealed before stays, and the same call goes on from
    there. `settings` are kept beside the results.
    """
    check(plan, cfg)
    began = time.monotonic()
    summary = Summary(plan.digest, policy.name, config=settings or {})
    with FileJournal(out) as journal:
        claim(out, plan)
        shop = Workshop(
            plan, policy, cfg, provider, notes=summary.notes, tell=lambda text: _note(summary, watcher, text)
        )
        for text in journal.notes:
            _note(summary, watcher, text)
        try:
            await _episodes(shop, journal, summary, watcher, stop)
            summary.complete = True
        except BaseException:
            # What stopped the run is the news; a summary that cannot be written must not hide it.
            with suppress(StoreFault, OSError):
                _finish(out, journal, summary, began)
            raise
        with writing(out):
            _finish(out, journal, summary, began)
    return summary


def check(plan: LoadedPlan, cfg: RunConfig) -> None:
    """Refuse what the plan does not have, before anything starts. Raises RunError."""
    tasks = plan.plan.tasks
    for name in cfg.tasks:
        if name not in tasks:
            raise RunError(f"the pack {plan.plan.pack} has no task {name!r}; it has {', '.join(tasks)}")
    splits = {split for task in tasks.values() for split in task.splits}
    if cfg.split and cfg.split not in splits:
        raise RunError(
            f"the pack {plan.plan.pack} has no split {cfg.split!r}; it has {', '.join(sorted(splits)) or 'none'}"
        )
    for task in tasks.values():
        needs = task.not_yet or (("milestones",) if task.milestones else ())
        if needs and (not cfg.tasks or task.name in cfg.tasks):
            raise RunError(
                f"the task {task.name} needs {', '.join(needs)}, which this version cannot run yet; "
                "choose other tasks with tasks=[…]"
            )
    _refuse_unknown_rows(plan, cfg)


def _refuse_unknown_rows(plan: LoadedPlan, cfg: RunConfig) -> None:
    if not cfg.rows:
        return
    known = {instance.row for instance in plan.instances()}
    unknown = [row for row in cfg.rows if row not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(known), 1)
        hint = f"did you mean {near[0]!r}?" if near else "its rows begin with " + ", ".join(sorted(known)[:5])
        raise RunError(f"the pack {plan.plan.pack} has no row {unknown[0]!r}; {hint}")


def jobs(shop: Workshop) -> Iterator[Job]:
    """The episodes of a run, always in the same order: rows, then variants, then samples.

    Raises RunError at a row that is not locked yet.
    """
    for instance in selected(shop.plan.instances(), shop.cfg):
        refuse_unlocked(shop.plan.plan.pack, instance)
        for variant in shop.policy.variants(shop.occasion(instance)):
            for sample in range(shop.cfg.samples):
                seed = episode_seed(shop.cfg.seed, instance.task, instance.row, sample)
                spec = EpisodeSpec(shop.plan.digest, instance.task, instance.row, sample, seed, variant)
                yield Job(spec, instance)


async def _episodes(
    shop: Workshop, journal: FileJournal, summary: Summary, watcher: Watcher | None, stop: Stop | None
) -> None:
    keys = [job.spec for job in jobs(shop)]
    sealed = sum(journal.is_sealed(spec) for spec in keys)
    if not keys:
        _note(summary, watcher, _nothing(shop))
    if watcher:
        watcher.begin(f"{shop.plan.plan.pack} · {shop.policy.name}", len(keys), sealed)
    breaker = Breaker(shop.cfg.give_up_after)

    async def work(job: Job) -> None:
        done = await run_episode(shop, job)
        journal.seal(done)
        summary.ran += 1
        if watcher:
            watcher.episode(done)
        if done.outcome is Outcome.INVALID and ("infrastructure:" in done.reason or done.reason.startswith("policy:")):
            breaker.fault(done.reason)
        else:
            breaker.fine()

    todo = (job for job in jobs(shop) if not journal.is_sealed(job.spec))
    await run_jobs(todo, work, shop.cfg.concurrency or default_admission(), stop)


def refuse_unlocked(pack: str, instance: InstancePlan) -> None:
    """Raise RunError for a row whose expected tests are not known yet."""
    unlocked = [v.name for v in instance.verify if v.settings.get("expect") == "locked"]
    if unlocked:
        raise RunError(
            f"{instance.task}/{instance.row} is not locked: which tests of `{unlocked[0]}` must pass is not known "
            f"yet; run `guerdon lock` on the pack {pack}"
        )


def _nothing(shop: Workshop) -> str:
    rows = sum(1 for _ in selected(shop.plan.instances(), shop.cfg))
    if not rows:
        return "no row is selected: look at tasks, rows, split and first"
    return f"the policy {shop.policy.name} has nothing to do on any of the {rows} selected row(s)"


def claim(out: Path, plan: LoadedPlan) -> None:
    """Bind a run folder to its plan; results of two plans in one folder could never be told apart."""
    mark = out / "plan.digest"
    with writing(out):
        if mark.exists() and (found := mark.read_text(errors="replace").strip()) != plan.digest:
            raise RunError(f"the run folder {out} belongs to the plan {found}, this one is {plan.digest}; use another")
        write_atomically(mark, [plan.digest.encode() + b"\n"])
        if plan.document and not (out / "plan.json").exists():
            write_atomically(out / "plan.json", [plan.document])


def _finish(out: Path, journal: FileJournal, summary: Summary, began: float) -> None:
    summary.seconds = time.monotonic() - began
    summary.tally(journal.latest())
    text = json.dumps(summary.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(out / SUMMARY, [text.encode(errors="replace") + b"\n"])
    if summary.complete and not summary.total.invalid:
        write_atomically(out / DONE, [b""])


def _note(summary: Summary, watcher: Watcher | None, text: str) -> None:
    summary.notes.append(text)
    if watcher:
        watcher.note(text)


