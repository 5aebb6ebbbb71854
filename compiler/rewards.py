"""The reward that a task names: its arguments checked, and bound to the task's verifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon.compiler.build import called
from guerdon.compiler.plan.expr import Symbol
from guerdon.compiler.plan.schema import RewardPlan
from guerdon.compiler.program import Declaration
from guerdon.compiler.reward.bind import Binder, BoundArgument
from guerdon.compiler.reward.context import BoundVerifier, TaskContext
from guerdon.compiler.types import BROKEN, Type, read_type
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import error
from guerdon.dsl.suggest import did_you_mean

if TYPE_CHECKING:
    from guerdon.compiler.tasks import Task


class TaskReward:
    """Binds the reward of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.found = task.found

    def plan(self) -> RewardPlan | None:
        """The bound reward with its proofs; None (reported) where there is none."""
        item = self.task.item.find("reward")
        if item is None or item.value is None:
            return None
        name, args = called(item.value)
        if name is None:
            self.found.append(error("T106", "a task names one reward, with its arguments", item.span,
                                    help="write `reward = shaped(tests)`"))
            return None
        declared = self.task.declared.scope.find(name, ("reward",), self.found)
        if declared is None:
            return None
        arguments = self._arguments(declared, args, item.value)
        context = self._context()
        if arguments is None:
            return None
        weights = self.task.build.weights.get(declared.name, {})
        return Binder(declared, context, arguments, weights, self.found).bind()

    def _context(self) -> TaskContext:
        bound = {b.name: BoundVerifier(b.name, b.verifier.kind.name, b.verifier.name, b.verifier.signals,
                                       b.verifier.facts, b.verifier.kind.start,
                                       reads_text=not b.verifier.kind.sandbox) for b in self.task.bindings}
        at_start = frozenset(i.name.text for i in self.task.item.all("milestone")
                             if i.name is not None and self._false_at_start(i.value))
        forbids = sum(1 for _ in self.task.item.all("forbid"))
        return TaskContext(self.task.limits, forbids, bound, self.task.milestones, at_start,
                           self.task.limits_are_known)

    def _false_at_start(self, expr: tree.Expr | None) -> bool:
        """A milestone that needs words of a tool, or a signal that its kind says is false at the start."""
        if isinstance(expr, tree.Call):
            return expr.fn.text == "said"
        if isinstance(expr, tree.Attr):
            verifier, _ = self.task.verifier(expr.base)
            start = verifier.kind.start.get(expr.name.text) if verifier is not None else None
            return isinstance(start, tree.Bool) and not start.value
        return False

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
        binding = next((b for b in self.task.bindings if isinstance(expr, tree.Ref) and b.name == expr.name), None)
        if binding is None:
            names = tuple(b.name for b in self.task.bindings)
            guess = did_you_mean(expr.name, names) if isinstance(expr, tree.Ref) else None
            block = self.task.item.find("verify")
            if block is not None and len(self.task.bindings) == len(block.body or ()):  # else it was reported there
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
            if space == "milestone" and name in self.task.milestones and param.type.name.text == "bool":
                return BoundArgument(Symbol("milestone", (name,)))
            if self.task.loop is not None and space == self.task.loop.row.text:
                if self.task.dataset is None:
                    return None  # reported with the dataset
                have = self.task.dataset.types.get(name, Type("missing"))
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
