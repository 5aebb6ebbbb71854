"""Tasks: what their rows share: data set, tools, limits, verifiers, rules, reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from guerdon.compiler.build import Binding, Build, called
from guerdon.compiler.datasets import Dataset
from guerdon.compiler.kinds import read_tool
from guerdon.compiler.plan.schema import LimitsPlan, TaskPlan, ToolPlan
from guerdon.compiler.program import Declaration
from guerdon.compiler.rewards import TaskReward
from guerdon.compiler.rules import Rules
from guerdon.compiler.static import Static
from guerdon.compiler.types import Type
from guerdon.compiler.values import Val, coerce
from guerdon.compiler.verifiers import Verifier
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import error
from guerdon.dsl.tree import Item, Name

DEFAULT_WALL_MS = 30 * 60_000
RUN_TOOLS = ("bash", "put", "submit")
"""The tools that this version can run."""
LIMITS: Mapping[str, Type] = {
    "turns": Type("int", Fraction(1), Fraction(10_000)),
    "tokens": Type("int", Fraction(1), Fraction(10**9)),
    "wall": Type("duration", Fraction(1000), Fraction(7 * 24 * 3_600_000)),
}


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

    def static(self, bound: Mapping[str, Val]) -> Static:
        """An evaluation in the task's scope, with values bound to names."""
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
                value = coerce(self.static({}).value(item.value), kind, item.value.span, f"`{key}`", self.found)
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
            verifier, args = self.verifier(entry.value)
            if verifier is not None:
                result.append(Binding(entry.word.text, verifier, args, entry.value))
        if block is not None and not block.body:
            self.found.append(error("T105", "`verify` binds no verifier", block.span,
                                    help="write `verify { tests = hidden }`"))
        return tuple(result)

    def verifier(self, expr: tree.Expr) -> tuple[Verifier | None, tuple[tree.Arg, ...]]:
        """The verifier that an expression names, and its arguments; reports what is none."""
        name, args = called(expr)
        if name is None:
            self.found.append(error("T106", "a verifier is named, with its arguments", expr.span,
                                    help="write `tests = hidden(row.id)`"))
            return None, ()
        declared = self.declared.scope.find(name, ("verifier",), self.found)
        return (self.build.verifiers.get(declared) if declared is not None else None), args

    # What the rows share ------------------------------------------------------------------------

    def plan(self) -> TaskPlan | None:
        """The shared part; None after errors in it."""
        rules = Rules(self)
        for item in self.item.all("milestone"):
            rules.check_milestone(item)
        reward = TaskReward(self).plan()
        forbids = rules.forbids()
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



    def _environment_declaration(self) -> Declaration | None:
        item = self.item.find("environment")
        name = called(item.value)[0] if item is not None and item.value is not None else None
        return self.declared.scope.find(name, ("environment",), []) if name is not None else None

