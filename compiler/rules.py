"""What a task forbids, and its milestones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from guerdon.compiler.plan.schema import ForbidPlan
from guerdon.compiler.types import Type
from guerdon.compiler.values import coerce
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import error
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Item

if TYPE_CHECKING:
    from guerdon.compiler.tasks import Task


class Rules:
    """Reads the `forbid` and `milestone` lines of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.found = task.found

    def forbids(self) -> tuple[ForbidPlan, ...]:
        """The rules that are well formed; the others are reported."""
        return tuple(f for f in (self._forbid(i) for i in self.task.item.all("forbid")) if f is not None)

    def _forbid(self, item: Item) -> ForbidPlan | None:
        assert item.name is not None
        call = item.value
        kind = call.fn.text if isinstance(call, tree.Call) else ""
        args = [a.value for a in call.args if a.value is not None] if isinstance(call, tree.Call) else []
        static = self.task.static({})
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
        if tool.name not in {t.name for t in self.task.tools}:
            if not self.task.tools_are_known:
                return None
            self.found.append(error("T101", f"the task has no tool `{tool.name}`", tool.span,
                                    help="name one of its tools: " + ", ".join(t.name for t in self.task.tools)))
            return None
        if pattern.literal is None:
            self.found.append(error("T201", "a pattern inserts nothing", pattern.span, help="write a plain string"))
            return None
        if not self._check_pattern(pattern):
            return None
        return ForbidPlan(item.name.text, "called", tool=tool.name, pattern=pattern.literal)

    def check_milestone(self, item: Item) -> None:
        """Report a milestone that is neither a true-or-false signal nor a pattern."""
        expr = item.value
        if isinstance(expr, tree.Attr):
            verifier, _ = self.task.verifier(expr.base)
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
        try:
            re.compile(pattern.literal or "")
        except (re.error, RecursionError, OverflowError) as problem:
            self.found.append(error("T201", f"this is no regular expression: {problem}", pattern.span,
                                    help="correct the pattern"))
            return False
        return True
