"""A reward bound to a task: its parameters, weights, terms and total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from guerdon.compiler.plan.canonical import rational
from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol
from guerdon.compiler.plan.schema import RewardPlan, TermPlan
from guerdon.compiler.program import Declaration
from guerdon.compiler.reward.context import TaskContext, base_names, signal_group
from guerdon.compiler.reward.decide import Decider
from guerdon.compiler.reward.domain import Span
from guerdon.compiler.reward.typing import BROKEN, Namespace, Typed, Typer
from guerdon.compiler.types import BOOL, Type, constant, decimal, read_range, read_type
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.source import Span as SourceSpan
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Item

ZERO = Fraction(0)


@dataclass
class Weight:
    """A weight: its value, the range it may be swept in, and (annealed) the range it moves in."""

    value: Fraction
    low: Fraction
    high: Fraction
    moves: Span | None = None


@dataclass
class Binder:
    """Binds one reward to one task; the result is None if the reward has errors."""

    declared: Declaration
    context: TaskContext
    arguments: Mapping[str, BoundArgument]
    overrides: Mapping[str, Fraction]
    found: list[Diagnostic]
    names: Namespace = field(default_factory=Namespace)
    weights: dict[str, Weight] = field(default_factory=dict)
    broken: bool = False
    """Something it uses was reported elsewhere, so that nothing can be decided."""

    def bind(self) -> RewardPlan | None:
        """Type everything, then decide every claim."""
        before = sum(d.severity.value == "error" for d in self.found)
        self.names = base_names(self.context)
        self._parameters()
        for item in self.declared.item.all("weight"):
            self._shared_weight(item)
        solved = self._solved()
        terms = [t for t in (self._term(i) for i in self.declared.item.all("term")) if t is not None]
        self._check_overrides()
        total = self._total(terms)
        if sum(d.severity.value == "error" for d in self.found) > before or solved is None or self.broken:
            return None
        # What did not parse may have been a term: a proof without it would only add wrong errors.
        if not self.context.limits_are_known or self.declared.scope.is_partial:
            return None
        return Decider(self, solved, terms, total).plan()

    def _parameters(self) -> None:
        for arg in self.declared.item.args or ():
            if arg.name is None or arg.type is None:
                self.found.append(error("T106", "a reward's parameter is written `name: type`", arg.span,
                                        help="name a verifier kind, a verifier, or bool, int, real"))
                continue
            bound = self.arguments.get(arg.name.text)
            if bound is None:
                continue  # the task's call was already reported
            if isinstance(bound.value, Symbol):
                self.names.values[arg.name.text] = self.names.symbol(bound.value.space, bound.value.path, bound.type)
            else:
                group = signal_group(self.context.verifiers[bound.value], self.names)
                self.names.groups[arg.name.text] = group

    def _shared_weight(self, item: Item) -> None:
        assert item.name is not None
        declared = read_type(item.type, self.found) if item.type is not None else Type("real")
        if isinstance(item.value, tree.Call) and item.value.fn.text == "anneal":
            self._anneal(item, item.value, declared)
            return
        value = constant(item.value) if item.value is not None else None
        if value is None or value[0]:
            self.found.append(error("T106", "a weight is written `weight name: real in a..b = number`", item.span,
                                    help="give it a literal number or `anneal(from, to, over = steps)`"))
            return
        self._add_weight(item.name, value[1], declared.low, declared.high, item)

    def _anneal(self, item: Item, call: tree.Call, declared: Type) -> None:
        assert item.name is not None
        plain = [constant(a.value) for a in call.args if a.name is None and a.value is not None]
        steps = [constant(a.value) for a in call.args if a.name is not None and a.name.text == "over" and a.value]
        if len(plain) != 2 or len(steps) != 1 or None in (*plain, *steps):
            self.found.append(error("T205", "`anneal` takes two numbers and the steps it moves over", call.span,
                                    help="write `anneal(0.05, 0, over = 1000)`"))
            return
        (_, first), (_, last) = (p for p in plain if p is not None)
        first = self.overrides.get(item.name.text, first)
        self._add_weight(item.name, first, declared.low, declared.high, item)
        if item.name.text in self.weights:
            self.weights[item.name.text].moves = Span(min(first, last), max(first, last))
        self._inside(last, declared.low, declared.high, call.span)

    def _add_weight(self, name: tree.Name, value: Fraction, low: Fraction | None, high: Fraction | None,
                    item: Item) -> None:
        if name.text in self.weights:
            self.found.append(error("T104", f"there are two weights `{name.text}`", name.span,
                                    help="a term's own weight carries the term's name: rename one"))
            return
        value = self.overrides.get(name.text, value)
        # Undeclared, a weight keeps its sign and stays within one (or its own value, if that is larger).
        low = low if low is not None else (ZERO if value >= 0 else min(Fraction(-1), value))
        high = high if high is not None else (max(Fraction(1), value) if value >= 0 else ZERO)
        self._inside(value, low, high, item.span)
        self.weights[name.text] = Weight(value, low, high)
        symbol = self.names.symbol("weight", (name.text,), Type("real", low, high))
        if item.word.text == "weight":
            self.names.values[name.text] = symbol

    def _inside(self, value: Fraction, low: Fraction | None, high: Fraction | None, span: SourceSpan) -> None:
        if (low is not None and value < low) or (high is not None and value > high):
            self.found.append(error("T203", f"the weight {decimal(value)} is outside of its range "
                                    f"{decimal(low or ZERO)}..{decimal(high or ZERO)}", span,
                                    help="change the weight or its range"))

    def _check_overrides(self) -> None:
        for name in self.overrides:
            if name not in self.weights:
                guess = did_you_mean(name, tuple(self.weights))
                self.found.append(error("T101", f"the reward has no weight `{name}`", self.declared.item.span,
                                        help=f"did you mean `{guess}`?" if guess else
                                        "its weights are " + ", ".join(self.weights)))

    def _solved(self) -> Expr | None:
        item = self.declared.item.find("solved")
        if item is None or item.value is None:
            self.found.append(error("T300", f"the reward `{self.declared.name}` does not say what `solved` is",
                                    self.declared.item.word.span,
                                    help="add `solved = …`: it alone decides pass or fail"))
            self.names.values["solved"] = BROKEN
            return None
        result = Typer(self.names, self.found).boolean(item.value, "`solved`")
        self.broken |= result.kind == "?"
        self.names.values["solved"] = result
        return result.expr

    def _term(self, item: Item) -> TermPlan | None:
        assert item.name is not None
        if item.weight is None or item.value is None:
            self.found.append(error("T106", "a term is written `term name WEIGHT = expression`", item.span,
                                    help="give it a weight: `term outcome 1.0 = solved`"))
            return None
        weight = self._weight_of(item)
        value = Typer(self.names, self.found).number(item.value, "a term")
        self.broken |= value.kind == "?"
        if weight is None:
            return None
        used = self.weights[weight]
        return TermPlan(item.name.text, Symbol("weight", (weight,)), rational(used.value), rational(used.low),
                        rational(used.high), value.expr)

    def _weight_of(self, item: Item) -> str | None:
        assert item.name is not None and item.weight is not None
        if isinstance(item.weight, tree.Ref):
            if item.weight.name not in self.weights:
                guess = did_you_mean(item.weight.name, tuple(self.weights))
                self.found.append(error("T101", f"there is no weight `{item.weight.name}`", item.weight.span,
                                        help=f"did you mean `{guess}`?" if guess else
                                        "declare it: `weight name: real in 0..1 = 0.3`"))
                return None
            return item.weight.name
        value = constant(item.weight)
        if value is None or value[0]:
            self.found.append(error("T201", "a weight is a plain number or the name of a weight", item.weight.span,
                                    help="write for example `0.5`"))
            return None
        low, high = read_range(item.range, self.found) if item.range is not None else (None, None)
        self._add_weight(item.name, value[1], low, high, item)
        return item.name.text

    def _total(self, terms: list[TermPlan]) -> Expr:
        weighted: dict[str, Expr] = {t.name: Apply("*", (t.weight, t.expr)) for t in terms}
        item = self.declared.item.find("total")
        if item is None or item.value is None:
            return Apply("sum", tuple(weighted.values())) if weighted else Const(ZERO)
        inner = Namespace({**self.names.values, **{n: Typed(e, "number") for n, e in weighted.items()}},
                          self.names.groups, self.names.box)
        result = Typer(inner, self.found).number(item.value, "`total`")
        self.broken |= result.kind == "?"
        return result.expr


@dataclass(frozen=True)
class BoundArgument:
    """What a task hands a reward for one parameter: the name of a bound verifier, or a value."""

    value: str | Symbol
    type: Type = BOOL
    """What a value may be."""
