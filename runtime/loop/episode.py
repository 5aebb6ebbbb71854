"""One episode from a fresh sandbox to a sealed result: rollout, freeze, verify, score."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from guerdon.compiler.plan.schema import EnvironmentPlan, ImagePlan, InstancePlan, TaskPlan, VerifierPlan
from guerdon.runtime.agent.rollout import Rollout, rollout
from guerdon.runtime.agent.setup import fill, initial_files
from guerdon.runtime.contracts.assets import expand
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.policy import MessagePolicy, Occasion, PolicyFault
from guerdon.runtime.contracts.sandbox import (
    Artefacts,
    ImageRecipe,
    PutFile,
    Resources,
    Role,
    Sandbox,
    SandboxFault,
    SandboxProvider,
    SandboxSpec,
)
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
from guerdon.runtime.loop.config import RunConfig, RunError
from guerdon.runtime.loop.score import Defect, check_verdict, score
from guerdon.runtime.policy.table import make
from guerdon.runtime.schedule.retry import with_retries
from guerdon.runtime.verify import verify

Verify = Callable[[VerifyInput], Awaitable[Verdict]]


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


@dataclass(slots=True)
class Workshop:
    """What all episodes of a run share: plan, policy, provider, images made ready once."""

    plan: LoadedPlan
    policy: MessagePolicy
    cfg: RunConfig
    provider: SandboxProvider | None
    notes: list[str] = field(default_factory=list)
    _images: dict[str, asyncio.Task[str]] = field(default_factory=dict)

    def occasion(self, instance: InstancePlan) -> Occasion:
        """What the policy is told of a row."""
        task = self.plan.plan.tasks[instance.task]
        return Occasion(instance, task.tools, self.environment(instance), self.plan.assets)

    def environment(self, instance: InstancePlan) -> EnvironmentPlan | None:
        """Where a row's agent works, if anywhere."""
        return None if instance.environment is None else self.plan.plan.environments[instance.environment]

    async def image(self, name: str) -> str:
        """The id of an image, made ready on first use and then remembered. Raises SandboxFault."""
        if name not in self._images:
            self._images[name] = asyncio.create_task(self._ensure(name, self.plan.plan.images[name]))
        task = self._images[name]
        try:
            # Shielded: one episode's end must not stop the build that the others wait for.
            return await asyncio.shield(task)
        except SandboxFault:
            self._images.pop(name, None)
            raise

    async def _ensure(self, name: str, image: ImagePlan) -> str:
        made = await self._sandboxes().ensure_image(ImageRecipe(image.kind, image.packages, image.reference))
        if image.digest and image.digest.removeprefix("sha256:") != made.removeprefix("sha256:"):
            self.notes.append(
                f"the image {name} is {made[:19]} here, guerdon.lock was written with {image.digest[:19]}; "
                "results may differ: run `guerdon lock` to pin this one"
            )
        return made

    async def open(self, environment: EnvironmentPlan, role: Role, labels: Mapping[str, str]) -> Sandbox:
        """A fresh sandbox of an environment. Raises SandboxFault."""
        spec = SandboxSpec(
            image=await self.image(environment.image), workdir=environment.workdir,
            scratch=environment.scratch, env=environment.env, role=role,
            resources=Resources(
                environment.cpu_milli, environment.memory, environment.disk, environment.pids
            ),
        )
        return await self._sandboxes().create(spec, labels)

    def _sandboxes(self) -> SandboxProvider:
        if self.provider is None:
            raise RunError("this pack needs sandboxes, and none were set up; see `guerdon doctor`")
        return self.provider


async def run_episode(shop: Workshop, job: Job) -> Sealed:
    """Run, verify and score one episode.

    Whatever the agent did is a pass or a fail; what our side did wrong is an invalid one. Raises HostFault,
    AssetFault and RunError, which concern the whole run.
    """
    instance = job.instance
    environment = shop.environment(instance)
    files = initial_files(environment, instance, shop.plan.assets) if environment else ()
    scene = Scene(job, shop.plan.plan.tasks[instance.task], environment, files)
    began = time.monotonic()
    try:
        done = await with_retries(lambda: _act(shop, scene), shop.cfg.retries)
    except SandboxFault as fault:
        return _invalid(job, f"infrastructure: {fault}", time.monotonic() - began)
    except PolicyFault as fault:
        return _invalid(job, f"policy: {fault}", time.monotonic() - began)
    frozen = time.monotonic()
    verdicts = {plan.name: await _verdict(shop, scene, plan, done) for plan in instance.verify}
    seconds = {**done.seconds, "verify": time.monotonic() - frozen, "all": time.monotonic() - began}
    reward, outcome, reason = _scored(scene, done.trajectory, verdicts)
    return Sealed(done.trajectory, outcome, verdicts, reward, reason, seconds)


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
        verdict = await with_retries(lambda: _look(shop, scene, plan, done), shop.cfg.retries)
        check_verdict(plan, verdict)
    except SandboxFault as fault:
        return Verdict(Outcome.INVALID, {}, reason=f"infrastructure: {fault}")
    except Defect as defect:
        return Verdict(Outcome.INVALID, {}, reason=f"defect: {defect}")
    return verdict


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
        control=lambda: _control(shop, scene, plan),
    )
    try:
        return await verify(given)
    except BaseException:
        for sandbox in opened:
            await _remove(sandbox)
        raise


async def _control(shop: Workshop, scene: Scene, plan: VerifierPlan) -> Artefacts | None:
    """What the solution leaves behind: made only where a verification ended unclearly. Raises SandboxFault."""
    instance = scene.job.instance
    if not instance.solution:
        return None
    spec = replace(scene.job.spec, policy="oracle")
    oracle = replace(shop, policy=make("oracle"))
    done = await _act(oracle, replace(scene, job=Job(spec, instance)))
    return done.artefacts[plan.collect]


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
