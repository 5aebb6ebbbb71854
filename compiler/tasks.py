"""Tasks: what their rows share (tools, limits, rules, reward), and one resolved instance a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from guerdon.compiler.datasets import Dataset, Row
from guerdon.compiler.demonstrations import Steps
from guerdon.compiler.environments import environment_key, resolve_environment, resolve_files, with_scratch
from guerdon.compiler.kinds import read_tool
from guerdon.compiler.leaks import Leaks
from guerdon.compiler.lockfile import Lock, basis
from guerdon.compiler.plan.canonical import rational
from guerdon.compiler.plan.expr import Symbol, symbols
from guerdon.compiler.plan.schema import (
    EnvironmentPlan,
    ExploitPlan,
    ForbidPlan,
    ImagePlan,
    InstancePlan,
    LimitsPlan,
    RewardPlan,
    StepPlan,
    TaskPlan,
    ToolPlan,
    VerifierPlan,
)
from guerdon.compiler.program import Declaration, Program
from guerdon.compiler.reward.bind import Binder, BoundArgument
from guerdon.compiler.reward.context import BoundVerifier, TaskContext
from guerdon.compiler.static import Static
from guerdon.compiler.types import BROKEN, Type, decimal, read_type
from guerdon.compiler.values import NOTHING, Val, coerce
from guerdon.compiler.verifiers import Resolver, Verifier, Verifiers, bind_params
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Item, Name

DEFAULT_WALL_MS = 30 * 60_000
RUN_TOOLS = ("bash", "put", "submit")
"""The tools that this version can run."""
LIMITS: Mapping[str, Type] = {
    "turns": Type("int", Fraction(1), Fraction(10_000)),
    "tokens": Type("int", Fraction(1), Fraction(10**9)),
    "wall": Type("duration", Fraction(1000), Fraction(7 * 24 * 3_600_000)),
}


Given = tuple[EnvironmentPlan | None, tuple[tuple[str, str], ...], tuple[StepPlan, ...]]
"""What a row's verifiers see besides the artefacts: environment, files and (for the lock's basis) solution."""


Weights = Mapping[str, Mapping[str, Fraction]]
"""reward -> weight -> value, in the place of what the file says."""


@dataclass(frozen=True)
class Binding:
    """`name = verifier(args)` in a task's `verify`."""

    name: str
    verifier: Verifier
    args: tuple[tree.Arg, ...]
    at: tree.Expr


@dataclass
class Build:
    """What compiling the tasks of one program shares."""

    program: Program
    verifiers: Verifiers
    datasets: Mapping[str, Dataset]
    lock: Lock
    weights: Weights
    found: list[Diagnostic]
    images: dict[str, ImagePlan] = field(default_factory=dict)
    environments: dict[str, EnvironmentPlan] = field(default_factory=dict)
    unlocked: set[str] = field(default_factory=set)
    leaks: Leaks = field(init=False)
    bases: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(task, row, verifier) -> what a lock entry for it must be based on."""

    def __post_init__(self) -> None:
        self.leaks = Leaks(self.program.pack)


class Task:
    """One task under compilation."""

    def __init__(self, declared: Declaration, build: Build) -> None:
        self.declared = declared
        self.item = declared.item
        self.build = build
        self.found = build.found
        self.loop = declared.item.loop
        self.dataset = self._dataset()
        self.limits_are_known = True
        self.limits = self._limits()
        self.tools_are_known = True
        self.tools = self._tools()
        self.bindings = self._bindings()
        self.milestones = tuple(i.name.text for i in self.item.all("milestone") if i.name is not None)

    @property
    def name(self) -> str:
        return self.declared.name

    def _static(self, bound: Mapping[str, Val]) -> Static:
        return Static(self.build.program.pack, self.declared.scope, bound, self.found)

    def _dataset(self) -> Dataset | None:
        if self.loop is None:
            return None
        declared = self.declared.scope.find(self.loop.dataset, ("dataset",), self.found)
        return self.build.datasets.get(declared.name) if declared is not None else None

    def _limits(self) -> LimitsPlan:
        block = self.item.find("limits")
        values: dict[str, int] = {}
        for key, kind in LIMITS.items():
            item = block.find(key) if block else None
            if item is not None and item.value is not None:
                value = coerce(self._static({}).value(item.value), kind, item.value.span, f"`{key}`", self.found)
                self.limits_are_known &= not value.broken
                values[key] = 1 if value.broken else int(value.data)
        self.limits_are_known &= "turns" in values
        return LimitsPlan(values.get("turns", 1), values.get("tokens"), values.get("wall", DEFAULT_WALL_MS))

    def _tools(self) -> tuple[ToolPlan, ...]:
        item = self.item.find("tools")
        if item is None:
            self.tools_are_known = not self.declared.scope.is_partial
            return ()
        before = len(self.found)
        tools = tuple(self._listed_tools(item))
        self.tools_are_known = len(self.found) == before and len(tools) == len(getattr(item.value, "items", ()))
        return tools

    def _listed_tools(self, item: Item) -> Iterator[ToolPlan]:
        if not isinstance(item.value, tree.ListLit):
            self.found.append(error("T106", "`tools` is a list of names", item.span,
                                    help="write `tools = [bash, submit]`"))
            return
        for entry in item.value.items:
            if not isinstance(entry, tree.Ref):
                self.found.append(error("T106", "a tool is a plain name", entry.span, help="write `bash`"))
                continue
            declared = self.declared.scope.find(Name(entry.span, entry.name), ("tool",), self.found)
            if declared is not None:
                yield read_tool(declared, self.found)

    def _bindings(self) -> tuple[Binding, ...]:
        block = self.item.find("verify")
        result = []
        for entry in (block.body or ()) if block else ():
            assert entry.value is not None
            verifier, args = self._verifier(entry.value)
            if verifier is not None:
                result.append(Binding(entry.word.text, verifier, args, entry.value))
        if block is not None and not block.body:
            self.found.append(error("T105", "`verify` binds no verifier", block.span,
                                    help="write `verify { tests = hidden }`"))
        return tuple(result)

    def _verifier(self, expr: tree.Expr) -> tuple[Verifier | None, tuple[tree.Arg, ...]]:
        name, args = _called(expr)
        if name is None:
            self.found.append(error("T106", "a verifier is named, with its arguments", expr.span,
                                    help="write `tests = hidden(row.id)`"))
            return None, ()
        declared = self.declared.scope.find(name, ("verifier",), self.found)
        return (self.build.verifiers.get(declared) if declared is not None else None), args

    # What the rows share ------------------------------------------------------------------------

    def plan(self) -> TaskPlan | None:
        """The shared part; None after errors in it."""
        for item in self.item.all("milestone"):
            self._check_milestone(item)
        reward = self._reward()
        forbids = self._forbids()
        rows = self.dataset.rows if self.dataset is not None else ()
        splits: dict[str, int] = {}
        for row in rows:
            splits[row.split] = splits.get(row.split, 0) + 1
        if reward is None:
            return None
        return TaskPlan(self.name, self.tools, self.limits, forbids, self.milestones, reward,
                        len(rows) if self.loop is not None else 1, splits if self.loop is not None else {"": 1},
                        tuple(self._not_yet()))

    def _not_yet(self) -> Iterator[str]:
        for kind in sorted({b.verifier.kind.name for b in self.bindings if not b.verifier.kind.runs}):
            yield f"verifier kind `{kind}`"
        if self.milestones:
            yield "milestones"
        for name in sorted({t.name for t in self.tools} - set(RUN_TOOLS)):
            yield f"the tool `{name}`"
        environment = self._environment_declaration()
        if environment is not None and any(environment.item.all("service")):
            yield "services"
        if environment is not None and environment.item.find("git") is not None:
            yield "`git` of an environment"

    def _forbids(self) -> tuple[ForbidPlan, ...]:
        return tuple(f for f in (self._forbid(i) for i in self.item.all("forbid")) if f is not None)

    def _forbid(self, item: Item) -> ForbidPlan | None:
        assert item.name is not None
        call = item.value
        kind = call.fn.text if isinstance(call, tree.Call) else ""
        args = [a.value for a in call.args if a.value is not None] if isinstance(call, tree.Call) else []
        static = self._static({})
        if kind == "network" and not args:
            return ForbidPlan(item.name.text, "network")
        if kind == "changed" and len(args) == 1:
            wanted = Type("list", element=Type("string"))
            value = coerce(static.value(args[0]), wanted, args[0].span, "`changed`", self.found)
            return None if value.broken else ForbidPlan(item.name.text, "changed", tuple(v.data for v in value.data))
        if kind == "called" and len(args) == 2 and isinstance(args[0], tree.Ref) and isinstance(args[1], tree.Str):
            return self._called_rule(item, args[0], args[1])
        self.found.append(error("T106", "a rule is `changed([\"glob\"])`, `called(tool, \"pattern\")` or `network()`",
                                item.span, help='write `forbid name = changed(["/workspace/tests/**"])`'))
        return None

    def _called_rule(self, item: Item, tool: tree.Ref, pattern: tree.Str) -> ForbidPlan | None:
        assert item.name is not None
        if tool.name not in {t.name for t in self.tools}:
            if not self.tools_are_known:
                return None
            self.found.append(error("T101", f"the task has no tool `{tool.name}`", tool.span,
                                    help="name one of its tools: " + ", ".join(t.name for t in self.tools)))
            return None
        if pattern.literal is None:
            self.found.append(error("T201", "a pattern inserts nothing", pattern.span, help="write a plain string"))
            return None
        if not self._check_pattern(pattern):
            return None
        return ForbidPlan(item.name.text, "called", tool=tool.name, pattern=pattern.literal)

    # The reward ---------------------------------------------------------------------------------

    def _reward(self) -> RewardPlan | None:
        item = self.item.find("reward")
        if item is None or item.value is None:
            return None
        name, args = _called(item.value)
        if name is None:
            self.found.append(error("T106", "a task names one reward, with its arguments", item.span,
                                    help="write `reward = shaped(tests)`"))
            return None
        declared = self.declared.scope.find(name, ("reward",), self.found)
        if declared is None:
            return None
        arguments = self._arguments(declared, args, item.value)
        context = self._context()
        if arguments is None:
            return None
        return Binder(declared, context, arguments, self.build.weights.get(declared.name, {}), self.found).bind()

    def _context(self) -> TaskContext:
        bound = {b.name: BoundVerifier(b.name, b.verifier.kind.name, b.verifier.name, b.verifier.signals,
                                       b.verifier.facts, b.verifier.kind.start,
                                       reads_text=not b.verifier.kind.sandbox) for b in self.bindings}
        at_start = frozenset(i.name.text for i in self.item.all("milestone")
                             if i.name is not None and self._false_at_start(i.value))
        return TaskContext(self.limits, sum(1 for _ in self.item.all("forbid")), bound, self.milestones, at_start,
                           self.limits_are_known)

    def _false_at_start(self, expr: tree.Expr | None) -> bool:
        """A milestone that needs words of a tool, or a signal that its kind says is false at the start."""
        if isinstance(expr, tree.Call):
            return expr.fn.text == "said"
        if isinstance(expr, tree.Attr):
            verifier, _ = self._verifier(expr.base)
            start = verifier.kind.start.get(expr.name.text) if verifier is not None else None
            return isinstance(start, tree.Bool) and not start.value
        return False

    def _check_milestone(self, item: Item) -> None:
        expr = item.value
        if isinstance(expr, tree.Attr):
            verifier, _ = self._verifier(expr.base)
            signal = verifier.signals.get(expr.name.text) if verifier is not None else None
            if verifier is not None and (signal is None or signal.name != "bool"):
                truths = tuple(n for n, t in verifier.signals.items() if t.name == "bool")
                guess = did_you_mean(expr.name.text, truths)
                self.found.append(error("T101", f"`{verifier.name}` has no true-or-false signal `{expr.name.text}`",
                                        expr.name.span, help=f"did you mean `{guess}`?" if guess else
                                        "it has " + (", ".join(truths) or "none")))
            return
        if isinstance(expr, tree.Call) and expr.fn.text == "said" and len(expr.args) == 1:
            pattern = expr.args[0].value
            if isinstance(pattern, tree.Str) and pattern.literal is not None:
                self._check_pattern(pattern)
                return
        self.found.append(error("T106", "a milestone is `verifier.signal` or `said(\"pattern\")`", item.span,
                                help="write `milestone built = builds.passed`"))

    def _check_pattern(self, pattern: tree.Str) -> bool:
        import re

        try:
            re.compile(pattern.literal or "")
        except (re.error, RecursionError, OverflowError) as problem:
            self.found.append(error("T201", f"this is no regular expression: {problem}", pattern.span,
                                    help="correct the pattern"))
            return False
        return True

    def _arguments(self, declared: Declaration, args: tuple[tree.Arg, ...],
                   at: tree.Expr) -> dict[str, BoundArgument] | None:
        params = [a for a in declared.item.args or () if a.name is not None and a.type is not None]
        result: dict[str, BoundArgument] = {}
        ok = True
        if len(args) != len(params):
            names = ", ".join(a.name.text for a in params if a.name is not None)
            self.found.append(error("T205", f"the reward `{declared.name}` takes {len(params)} arguments ({names}), "
                                    f"here are {len(args)}", at.span, help="give one for each"))
            return None
        for param, arg in zip(params, args, strict=True):
            bound = self._argument(param, arg)
            ok &= bound is not None
            if bound is not None and param.name is not None:
                result[param.name.text] = bound
        return result if ok else None

    def _argument(self, param: tree.Arg, arg: tree.Arg) -> BoundArgument | None:
        assert param.name is not None and param.type is not None
        wanted, expr = param.type.name.text, arg.value
        if wanted in ("bool", "int", "real"):
            return self._value_argument(param, expr) if expr is not None else None
        binding = next((b for b in self.bindings if isinstance(expr, tree.Ref) and b.name == expr.name), None)
        if binding is None:
            names = tuple(b.name for b in self.bindings)
            guess = did_you_mean(expr.name, names) if isinstance(expr, tree.Ref) else None
            block = self.item.find("verify")
            if block is not None and len(self.bindings) == len(block.body or ()):  # else it was reported there
                self.found.append(error("T101", "this names no verifier of the task's `verify`", arg.span,
                                        help=f"did you mean `{guess}`?" if guess else "it binds " + ", ".join(names)))
            return None
        if wanted not in (binding.verifier.kind.name, binding.verifier.name):
            self.found.append(error("T205", f"`{param.name.text}` is a {wanted}, `{binding.name}` is a "
                                    f"{binding.verifier.kind.name}", arg.span,
                                    help=f"pass a {wanted}, or declare the parameter as {binding.verifier.kind.name}"))
            return None
        return BoundArgument(binding.name)

    def _value_argument(self, param: tree.Arg, expr: tree.Expr) -> BoundArgument | None:
        assert param.type is not None
        if isinstance(expr, tree.Attr) and isinstance(expr.base, tree.Ref):
            space, name = expr.base.name, expr.name.text
            if space == "milestone" and name in self.milestones and param.type.name.text == "bool":
                return BoundArgument(Symbol("milestone", (name,)))
            if self.loop is not None and space == self.loop.row.text:
                if self.dataset is None:
                    return None  # reported with the dataset
                have = self.dataset.types.get(name, Type("missing"))
                if have is BROKEN:
                    return None
                if have.name in {"int": ("int",), "real": ("int", "real")}.get(param.type.name.text, ()):
                    return self._row_argument(param.type, expr, Symbol("row", (name,)), have)
        self.found.append(error("T205", f"this is no {param.type.name.text} that a reward can take", expr.span,
                                help="pass `milestone.name` or a number of the row"))
        return None

    def _row_argument(self, wanted: tree.TypeExpr, expr: tree.Expr, symbol: Symbol, have: Type) -> BoundArgument | None:
        """A number of the row: its range (which every row keeps) must lie in the one that the reward asks for."""
        asked = read_type(wanted, self.found)
        below = asked.low is not None and (have.low is None or have.low < asked.low)
        above = asked.high is not None and (have.high is None or have.high > asked.high)
        if not below and not above:
            return BoundArgument(symbol, have)
        self.found.append(error("T203", f"the reward takes an {asked}, `{expr.span.text}` is an {have}", expr.span,
                                help="narrow the field's range in the schema, or widen the reward's parameter"))
        return None

    # One row ------------------------------------------------------------------------------------

    def instances(self, reward: RewardPlan | None) -> Iterator[InstancePlan]:
        """Every row, resolved; rows with errors are left out (and reported)."""
        if self.loop is None:
            rows: tuple[Row, ...] = (Row("-", "", {}),)
        else:
            rows = self.dataset.rows if self.dataset is not None else ()
        for row in rows:
            instance = self._instance(row, reward)
            if instance is not None:
                yield instance

    def _instance(self, row: Row, reward: RewardPlan | None) -> InstancePlan | None:
        before = len(self.found)
        bound = {self.loop.row.text: Val(Type("row"), dict(row.fields))} if self.loop is not None else {}
        static = self._static(bound)
        prompt = self._prompt(static)
        environment = self._environment(static)
        files = resolve_files(self.item.find("files"), static)
        steps = Steps(static, self.tools, self.tools_are_known)
        solution = steps.read(self.item.find("solution"))
        exploits = tuple(ExploitPlan(i.label.literal or "", steps.read(i))
                         for i in self.item.all("exploit") if i.label is not None)
        difficulty = self._difficulty(static)
        if len(self.found) > before or prompt is None:
            return None
        key = self._keep(environment, [*(p for p, _ in files), *steps.written])
        given = (self.build.environments.get(key or ""), files, solution)
        verify = tuple(self._verify(b, static, row, given) for b in self.bindings)
        self._check_hidden(verify, given)
        values = self._row_values(row, reward)
        if len(self.found) > before:
            return None
        return InstancePlan(self.name, row.key, row.split, prompt, key, files, verify, solution, exploits, values,
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
        self.build.bases[self.name, row.key, binding.name] = mark
        entry = self.build.lock.tests(self.name, row.key, binding.name, mark)
        if entry is None:
            stale = self.build.lock.knows(self.name, row.key, binding.name)
            self.build.unlocked.add(f"expected test ids of {self.name}/{binding.name}"
                                    + (" (what they were learned from has changed)" if stale else ""))
            return plain
        return replace(plain, settings={**plain.settings, **entry})

    def _check_submit(self, binding: Binding, plan: VerifierPlan) -> None:
        """A verifier of what `submit` hands in can never pass where the agent has no `submit`."""
        reads = not binding.verifier.kind.sandbox and plan.settings.get("from") == "submit"
        if reads and self.tools_are_known and "submit" not in {t.name for t in self.tools}:
            self.found.append(error("T105", f"the verifier `{binding.name}` reads what `submit` hands in, and the task "
                                    "has no tool `submit`", binding.at.span,
                                    help="add `submit` to `tools`, or write `from = final` to read the last message"))

    def _check_hidden(self, verify: tuple[VerifierPlan, ...], given: Given) -> None:
        environment, files, _ = given
        visible = [a for _, a in (*(environment.files if environment is not None else ()), *files)]
        for binding, plan in zip(self.bindings, verify, strict=True):
            if self.build.leaks.all_visible([a for _, a in plan.hidden], visible):
                item = binding.verifier.item.find("hidden")
                self.found.append(error("T404", f"all that the verifier `{binding.verifier.name}` hides lies in the "
                                        "agent's sandbox as well", (item or binding.verifier.item).word.span,
                                        help="take these files out of `files { … }`; where that is a whole folder, "
                                        "move them out of it"))

    def _prompt(self, static: Static) -> str | None:
        item = self.item.find("prompt")
        if item is None or item.value is None:
            return None
        value = coerce(static.value(item.value), Type("string"), item.value.span, "`prompt`", self.found)
        if value.secret:
            static.fail("T401", "the prompt shows a secret value to the agent", item.value,
                        "insert only fields that are not `secret`")
        return None if value.broken else str(value.data)

    def _environment_declaration(self) -> Declaration | None:
        item = self.item.find("environment")
        name = _called(item.value)[0] if item is not None and item.value is not None else None
        return self.declared.scope.find(name, ("environment",), []) if name is not None else None

    def _environment(self, static: Static) -> tuple[str, EnvironmentPlan] | None:
        item = self.item.find("environment")
        if item is None or item.value is None:
            needing = [b for b in self.bindings if b.verifier.kind.sandbox]
            if needing:
                self.found.append(error("T105", f"the task `{self.name}` lacks `environment`: the verifier "
                                        f"`{needing[0].name}` runs in a sandbox", self.item.word.span,
                                        help="add `environment = …`"))
            return None
        name, args = _called(item.value)
        if name is None:
            self.found.append(error("T106", "a task names one environment, with its arguments", item.span,
                                    help="write `environment = box`"))
            return None
        declared = self.declared.scope.find(name, ("environment",), self.found)
        if declared is None:
            return None
        return resolve_environment(declared, args, item.value, static, self.build.images)

    def _keep(self, environment: tuple[str, EnvironmentPlan] | None, paths: list[str]) -> str | None:
        if environment is None:
            return None
        name, plan = environment
        plan = with_scratch(plan, paths)
        key = environment_key(name, plan, self.build.environments)
        self.build.environments[key] = plan
        return key

    def _difficulty(self, static: Static) -> str | None:
        item = self.item.find("difficulty")
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


def _called(expr: tree.Expr) -> tuple[Name | None, tuple[tree.Arg, ...]]:
    """`name` or `name(args)`."""
    if isinstance(expr, tree.Ref):
        return Name(expr.span, expr.name), ()
    if isinstance(expr, tree.Call):
        return expr.fn, expr.args
    return None, ()
