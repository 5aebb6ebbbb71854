"""What all episodes of a run share: the plan, who acts, and sandboxes of images that are made ready once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from guerdon.compiler.plan.schema import EnvironmentPlan, ImagePlan, InstancePlan
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.policy import MessagePolicy, Occasion
from guerdon.runtime.contracts.sandbox import (
    ImageRecipe,
    Resources,
    Role,
    Sandbox,
    SandboxFault,
    SandboxProvider,
    SandboxSpec,
)
from guerdon.runtime.loop.config import RunConfig, RunError


@dataclass(slots=True)
class Workshop:
    """What all episodes of a run share: plan, policy, provider, images made ready once."""

    plan: LoadedPlan
    policy: MessagePolicy
    cfg: RunConfig
    provider: SandboxProvider | None
    notes: list[str] = field(default_factory=list)
    tell: Callable[[str], None] = lambda text: None
    """Called with what befell an episode and was mended."""
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
