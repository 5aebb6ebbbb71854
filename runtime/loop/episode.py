"""One episode from a fresh sandbox to a sealed result: rollout, freeze, verify, score."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from guerdon.compiler.plan.schema import EnvironmentPlan, InstancePlan, TaskPlan, VerifierPlan
from guerdon.runtime.agent.rollout import Rollout, SandboxLost, rollout
from guerdon.runtime.agent.setup import fill, initial_files
from guerdon.runtime.contracts.assets import expand
from guerdon.runtime.contracts.policy import PolicyDown, PolicyFault
from guerdon.runtime.contracts.sandbox import Artefacts, PutFile, Sandbox, SandboxFault
from guerdon.runtime.contracts.trajectory import (
    Counters,
    EpisodeSpec,
    Message,
    Outcome,
    Reward,
    Sealed,
    Trajectory,
    Verdict,
)
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.score import Defect, score
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.policy.table import make
from guerdon.runtime.schedule.retry import with_retries
from guerdon.runtime.verify import verify

SUSPECT = frozenset({"sandbox-oom", "sandbox-died", "exec-lost", "kill-failed"})
"""Faults that an agent may have brought about from inside; every other one is beyond its reach."""


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to run."""

    spec: EpisodeSpec
    instance: InstancePlan


@dataclass(frozen=True, slots=True)
class Scene:
    """One episode with all that it begins with."""

    job: Job
    task: TaskPlan
    environment: EnvironmentPlan | None
    files: tuple[PutFile, ...]


async def run_episode(shop: Workshop, job: Job) -> Sealed:
    """Run, verify and score one episode.

    Whatever the agent did is a pass or a fail; what our side did wrong is an invalid one. Raises HostFault,
    AssetFault, PolicyDown and RunError, which concern the whole run.
    """
    instance = job.instance
    environment = shop.environment(instance)
    files = initial_files(environment, instance, shop.plan.assets) if environment else ()
    scene = Scene(job, shop.plan.plan.tasks[instance.task], environment, files)
    began = time.monotonic()
    try:
        done = await _acted(shop, scene)
    except SandboxFault as fault:
        return _invalid(job, f"infrastructure: {fault}", time.monotonic() - began)
    except PolicyDown:
        raise
    except PolicyFault as fault:
        return _invalid(job, f"policy: {fault}", time.monotonic() - began)
    frozen = time.monotonic()
    verdicts = {plan.name: await _verdict(shop, scene, plan, done) for plan in instance.verify}
    seconds = {**done.seconds, "verify": time.monotonic() - frozen, "all": time.monotonic() - began}
    reward, outcome, reason = _scored(scene, done.trajectory, verdicts)
    return Sealed(done.trajectory, outcome, verdicts, reward, reason, seconds)


async def _acted(shop: Workshop, scene: Scene) -> Rollout:
    """The agent's half. An agent that lost its sandbox in every try, where a control keeps its own, lost it by its
    own doing: it has handed nothing in, which fails. Raises SandboxFault where that is not shown, HostFault."""
    lost: list[SandboxFault] = []

    def again(fault: SandboxFault) -> None:
        lost.append(fault)
        shop.tell(f"{scene.job.spec.key}: tried again in another sandbox: {fault.message} ({fault.kind})")

    try:
        return await with_retries(lambda: _act(shop, scene), max(1, shop.cfg.retries), again)
    except SandboxLost as last:
        tries = [*lost, last]
        if not all(isinstance(one, SandboxLost) and one.kind in SUSPECT for one in tries):
            raise
        # A control that is lost as well raises here, and the episode is invalid.
        await with_retries(lambda: _act(*_control(shop, scene)), 0)
        return last.so_far


def _control(shop: Workshop, scene: Scene) -> tuple[Workshop, Scene]:
    """The same episode played by the solution, or by nobody where there is none."""
    name = "oracle" if scene.job.instance.solution else "idle"
    job = Job(replace(scene.job.spec, policy=name), scene.job.instance)
    return replace(shop, policy=make(name)), replace(scene, job=job)


async def _act(shop: Workshop, scene: Scene) -> Rollout:
    """One try of the agent's half, in a sandbox of its own."""
    job = scene.job
    episode = shop.policy.start(shop.occasion(job.instance), job.spec.policy, job.spec.seed)
    if scene.environment is None:
        return await rollout(job.spec, scene.task, job.instance, episode, None)
    began = time.monotonic()
    sandbox = await shop.open(scene.environment, "agent", _labels(job, "agent"))
    try:
        await fill(sandbox, scene.files)
        ready = time.monotonic()
        done = await rollout(job.spec, scene.task, job.instance, episode, sandbox)
    finally:
        await _remove(sandbox)
    return Rollout(done.trajectory, done.artefacts, {"setup": ready - began, **done.seconds})


async def _verdict(shop: Workshop, scene: Scene, plan: VerifierPlan, done: Rollout) -> Verdict:
    """One verifier's verdict; its artefacts are frozen, so a lost sandbox costs a second look and no more."""
    try:
        return await with_retries(lambda: _look(shop, scene, plan, done), shop.cfg.retries)
    except SandboxFault as fault:
        return Verdict(Outcome.INVALID, {}, reason=f"infrastructure: {fault}")


async def _look(shop: Workshop, scene: Scene, plan: VerifierPlan, done: Rollout) -> Verdict:
    environment = scene.environment
    opened: list[Sandbox] = []

    async def open_sandbox() -> Sandbox:
        if environment is None:
            raise RunError(f"the verifier {plan.name} needs a sandbox, the task {scene.task.name} has none")
        opened.append(await shop.open(environment, "verify", _labels(scene.job, "verify")))
        return opened[-1]

    hidden = tuple(f for path, digest in plan.hidden for f in expand(shop.plan.assets, path, digest))
    given = VerifyInput(
        plan=plan, workdir=environment.workdir if environment else "/", artefacts=done.artefacts[plan.collect],
        environment=scene.files, hidden=hidden, answer=done.trajectory.answer,
        submitted=done.trajectory.counters.submitted, open_sandbox=open_sandbox,
        control=lambda: _solved(shop, scene, plan),
    )
    try:
        return await verify(given)
    except BaseException:
        for sandbox in opened:
            await _remove(sandbox)
        raise


async def _solved(shop: Workshop, scene: Scene, plan: VerifierPlan) -> Artefacts | None:
    """What the solution leaves behind: made only where a verification ended unclearly. Raises SandboxFault."""
    if not scene.job.instance.solution:
        return None
    return (await _act(*_control(shop, scene))).artefacts[plan.collect]


def _scored(
    scene: Scene, trajectory: Trajectory, verdicts: Mapping[str, Verdict]
) -> tuple[Reward | None, Outcome, str]:
    """The reward, the outcome, and the reason where that is not a pass."""
    bad = [f"{name}: {v.reason}" for name, v in verdicts.items() if v.outcome is Outcome.INVALID]
    if bad:
        return None, Outcome.INVALID, "; ".join(bad)
    try:
        reward = score(scene.task, scene.job.instance, trajectory.counters, verdicts)
    except Defect as defect:
        return None, Outcome.INVALID, f"defect: {defect}"
    if reward.solved:
        return reward, Outcome.PASS, ""
    reasons = [f"{name}: {v.reason}" for name, v in verdicts.items() if v.outcome is not Outcome.PASS]
    reasons += [f"broke `forbid {name}`" for name in trajectory.violations]
    if trajectory.counters.truncated:
        reasons.append("met a limit of the episode")
    return reward, Outcome.FAIL, "; ".join(reasons)


def _invalid(job: Job, reason: str, seconds: float) -> Sealed:
    """An episode that never came to a verdict; it is kept for people to see, and runs again on resume."""
    prompt = (Message("user", job.instance.prompt),)
    trajectory = Trajectory(job.spec, prompt, (), Counters(), None, "")
    return Sealed(trajectory, Outcome.INVALID, {}, None, reason, {"all": seconds})


async def _remove(sandbox: Sandbox) -> None:
    # What a failed removal leaves behind, the provider sweeps up; it must not cost the episode its verdict.
    with contextlib.suppress(SandboxFault):
        await sandbox.remove()


def _labels(job: Job, role: str) -> dict[str, str]:
    return {"guerdon.task": job.instance.task, "guerdon.row": job.instance.row[:200], "guerdon.role": role}
