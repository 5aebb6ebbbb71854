"""The rows of a task, each resolved into what the runtime needs and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from guerdon.compiler.build import Binding, Given, called
from guerdon.compiler.datasets import Row
from guerdon.compiler.demonstrations import Steps
from guerdon.compiler.environments import environment_key, resolve_environment, resolve_files, with_scratch
from guerdon.compiler.lockfile import basis
from guerdon.compiler.plan.canonical import rational
from guerdon.compiler.plan.expr import symbols
from guerdon.compiler.plan.schema import EnvironmentPlan, ExploitPlan, InstancePlan, RewardPlan, VerifierPlan
from guerdon.compiler.static import Static
from guerdon.compiler.types import Type, decimal
from guerdon.compiler.values import NOTHING, Val, coerce
from guerdon.compiler.verifiers import Resolver, bind_params
from guerdon.dsl.diagnostic import error

if TYPE_CHECKING:
    from guerdon.compiler.tasks import Task


class Instances:
    """Resolves the rows of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.found = task.found

    def instances(self, reward: RewardPlan | None) -> Iterator[InstancePlan]:
        """Every row, resolved; rows with errors are left out (and reported)."""
        if self.task.loop is None:
            rows: tuple[Row, ...] = (Row("-", "", {}),)
        else:
            rows = self.task.dataset.rows if self.task.dataset is not None else ()
        for row in rows:
            instance = self._instance(row, reward)
            if instance is not None:
                yield instance

    def _instance(self, row: Row, reward: RewardPlan | None) -> InstancePlan | None:
        before = len(self.found)
        bound = {self.task.loop.row.text: Val(Type("row"), dict(row.fields))} if self.task.loop is not None else {}
        static = self.task.static(bound)
        prompt = self._prompt(static)
        environment = self._environment(static)
        files = resolve_files(self.task.item.find("files"), static)
        steps = Steps(static, self.task.tools, self.task.tools_are_known)
        solution = steps.read(self.task.item.find("solution"))
        exploits = tuple(ExploitPlan(i.label.literal or "", steps.read(i))
                         for i in self.task.item.all("exploit") if i.label is not None)
        difficulty = self._difficulty(static)
        if len(self.found) > before or prompt is None:
            return None
        key = self._keep(environment, [*(p for p, _ in files), *steps.written])
        given = (self.task.build.environments.get(key or ""), files, solution)
        verify = tuple(self._verify(b, static, row, given) for b in self.task.bindings)
        self._check_hidden(verify, given)
        values = self._row_values(row, reward)
        if len(self.found) > before:
            return None
        return InstancePlan(self.task.name, row.key, row.split, prompt, key, files, verify, solution, exploits, values,
                            difficulty)

    def _verify(self, binding: Binding, static: Static, row: Row, given: Given) -> VerifierPlan:
        verifier = binding.verifier
        args = bind_params(verifier.params, binding.args, binding.at, f"the verifier `{verifier.name}`", static)
        bound = {n: args.get(n, NOTHING) for n in verifier.params}
        inner = Static(static.pack, verifier.declared.scope, bound, static.found)
        resolver = Resolver(verifier, inner)
        plain = resolver.plan(binding.name, {})
        self._check_submit(binding, plain)
        if plain.settings.get("expect") != "locked":
            return plain
        mark = basis(plain, *given)
        self.task.build.bases[self.task.name, row.key, binding.name] = mark
        entry = self.task.build.lock.tests(self.task.name, row.key, binding.name, mark)
        if entry is None:
            stale = self.task.build.lock.knows(self.task.name, row.key, binding.name)
            self.task.build.unlocked.add(f"expected test ids of {self.task.name}/{binding.name}"
                                    + (" (what they were learned from has changed)" if stale else ""))
            return plain
        return replace(plain, settings={**plain.settings, **entry})

    def _check_submit(self, binding: Binding, plan: VerifierPlan) -> None:
        """A verifier of what `submit` hands in can never pass where the agent has no `submit`."""
        reads = not binding.verifier.kind.sandbox and plan.settings.get("from") == "submit"
        if reads and self.task.tools_are_known and "submit" not in {t.name for t in self.task.tools}:
            self.found.append(error("T105", f"the verifier `{binding.name}` reads what `submit` hands in, and the task "
                                    "has no tool `submit`", binding.at.span,
                                    help="add `submit` to `tools`, or write `from = final` to read the last message"))

    def _check_hidden(self, verify: tuple[VerifierPlan, ...], given: Given) -> None:
        environment, files, _ = given
        visible = [a for _, a in (*(environment.files if environment is not None else ()), *files)]
        for binding, plan in zip(self.task.bindings, verify, strict=True):
            if self.task.build.leaks.all_visible([a for _, a in plan.hidden], visible):
                item = binding.verifier.item.find("hidden")
                self.found.append(error("T404", f"all that the verifier `{binding.verifier.name}` hides lies in the "
                                        "agent's sandbox as well", (item or binding.verifier.item).word.span,
                                        help="take these files out of `files { … }`; where that is a whole folder, "
                                        "move them out of it"))

    def _prompt(self, static: Static) -> str | None:
        item = self.task.item.find("prompt")
        if item is None or item.value is None:
            return None
        value = coerce(static.value(item.value), Type("string"), item.value.span, "`prompt`", self.found)
        if value.secret:
            static.fail("T401", "the prompt shows a secret value to the agent", item.value,
                        "insert only fields that are not `secret`")
        return None if value.broken else str(value.data)

    def _environment(self, static: Static) -> tuple[str, EnvironmentPlan] | None:
        item = self.task.item.find("environment")
        if item is None or item.value is None:
            needing = [b for b in self.task.bindings if b.verifier.kind.sandbox]
            if needing:
                self.found.append(error("T105", f"the task `{self.task.name}` lacks `environment`: the verifier "
                                        f"`{needing[0].name}` runs in a sandbox", self.task.item.word.span,
                                        help="add `environment = …`"))
            return None
        name, args = called(item.value)
        if name is None:
            self.found.append(error("T106", "a task names one environment, with its arguments", item.span,
                                    help="write `environment = box`"))
            return None
        declared = self.task.declared.scope.find(name, ("environment",), self.found)
        if declared is None:
            return None
        return resolve_environment(declared, args, item.value, static, self.task.build.images)

    def _keep(self, environment: tuple[str, EnvironmentPlan] | None, paths: list[str]) -> str | None:
        if environment is None:
            return None
        name, plan = environment
        plan = with_scratch(plan, paths)
        key = environment_key(name, plan, self.task.build.environments)
        self.task.build.environments[key] = plan
        return key

    def _difficulty(self, static: Static) -> str | None:
        item = self.task.item.find("difficulty")
        if item is None or item.value is None:
            return None
        value = coerce(static.value(item.value), Type("real"), item.value.span, "`difficulty`", self.found)
        return None if value.broken else decimal(value.data)

    def _row_values(self, row: Row, reward: RewardPlan | None) -> dict[str, str]:
        if reward is None:
            return {}
        exprs = (reward.solved, reward.total, *(t.expr for t in reward.terms))
        names = {s.path[0] for e in exprs for s in symbols(e) if s.space == "row"}
        return {n: rational(row.fields[n].data) for n in sorted(names)}
