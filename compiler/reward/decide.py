"""Decides the range of a bound reward, its default ordering and each of its claims (T30x)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from guerdon.compiler.plan.canonical import rational
from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, substitute
from guerdon.compiler.plan.schema import ClaimPlan, RewardPlan, TermPlan
from guerdon.compiler.reward import claims
from guerdon.compiler.reward.claims import ENGINE, Side, Verdict
from guerdon.compiler.reward.context import (
    NAMED_TRAJECTORIES,
    counter_facts,
    facts,
    initial_box,
    named_trajectory,
)
from guerdon.compiler.reward.domain import Span, Unsupported, truth
from guerdon.compiler.reward.extreme import Extreme, Worlds
from guerdon.compiler.reward.typing import Namespace, Typed, Typer
from guerdon.compiler.types import constant, decimal, read_range
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Label, error, warning
from guerdon.dsl.source import Span as SourceSpan
from guerdon.dsl.tree import Item

if TYPE_CHECKING:
    from guerdon.compiler.reward.bind import Binder

ZERO = Fraction(0)
LARGEST = Fraction(10**30)
"""Rewards beyond this are refused: a learner computes in single precision, which ends at 3e38."""


class Decider:
    """Decides the range and the claims of a reward that has no type errors."""

    def __init__(self, binder: Binder, solved: Expr, terms: list[TermPlan], total: Expr) -> None:
        self.binder = binder
        self.found = binder.found
        self.solved = solved
        self.terms = terms
        self.total = total
        moving = {Symbol("weight", (n,)): w.moves for n, w in binder.weights.items() if w.moves is not None}
        self.shared: Mapping[Symbol, Span] = moving
        fixed: dict[Symbol, Expr] = {Symbol("weight", (n,)): Const(w.value) for n, w in binder.weights.items()
                                     if w.moves is None}
        self.score = substitute(total, fixed)
        harness = facts(binder.context, binder.names, binder.found)
        box = {**initial_box(binder.names, binder.context), **moving}
        self.worlds = Worlds(box, (*harness, *counter_facts()))
        self.allowed = {i.name.text for i in binder.declared.item.all("allow") if i.name is not None}

    def plan(self) -> RewardPlan | None:
        if self._contradicts():
            return None
        low, high = self._range()
        if low is None or high is None:
            return None
        decided = [self._default_ordering(), *(self._claim(i) for i in self.binder.declared.item.all("ensure"))]
        self._violations_without_rules()
        weights = {n: (rational(w.value), rational(w.low), rational(w.high))
                   for n, w in self.binder.weights.items()}
        return RewardPlan(self.binder.declared.name, self.solved, tuple(self.terms), self.total, weights,
                          rational(low), rational(high), tuple(c for c in decided if c is not None))

    def _contradicts(self) -> bool:
        """Facts that exclude each other, or a `solved` that cannot be true or cannot be false."""
        item = self.binder.declared.item.find("solved")
        assert item is not None
        if claims.impossible(self.worlds):
            self.found.append(error("T306", "the facts of the verifiers exclude each other: no trajectory is possible",
                                    self.binder.declared.item.word.span, help="correct the `fact` lines"))
            return True
        for expr, never in ((self.solved, "true"), (Apply("not", (self.solved,)), "false")):
            if claims.impossible(self.worlds.given(self._fixed(expr))):
                self.found.append(error("T307", f"`solved` can never be {never}: it decides nothing", item.span,
                                        help="let `solved` depend on what a verifier finds"))
                return True
        return False

    def _range(self) -> tuple[Fraction | None, Fraction | None]:
        ends: list[Fraction | None] = []
        for highest in (False, True):
            end = claims.bound(self.score, self.worlds, highest=highest)
            if end is None or isinstance(end, str) or end.value is None or abs(end.value) > LARGEST:
                what = "upper" if highest else "lower"
                why = end if isinstance(end, str) else "an unbounded counter or signal is used"
                if isinstance(end, Extreme) and end.value is not None:
                    why = f"it lies beyond {decimal(LARGEST)}, where a learner's numbers end"
                self.found.append(error("T305", f"the reward `{self.binder.declared.name}` has no {what} bound: {why}",
                                        self.binder.declared.item.word.span,
                                        help="give every signal a range and the task a limit for what is counted"))
                ends.append(None)
            else:
                ends.append(end.value)
        return ends[0], ends[1]

    def _default_ordering(self) -> ClaimPlan | None:
        text = "solved outranks not solved"
        if "T301" in self.allowed:
            return ClaimPlan(text, "waived", "", ENGINE)
        verdict = self._outranks(self.solved, Apply("not", (self.solved,)), ("solved", "not solved"), None)
        if verdict.verdict == "refuted":
            solved = self.binder.declared.item.find("solved")
            assert solved is not None
            self._refuted("T301", "a trajectory that is not solved can score as much as one that is solved",
                          solved.span, verdict)
        elif verdict.verdict == "unknown":
            self._unknown(text, self.binder.declared.item.word.span, verdict)
        return ClaimPlan(text, verdict.verdict, "; ".join(verdict.lines), ENGINE)

    def _refuted(self, code: str, message: str, span: SourceSpan, verdict: Verdict) -> None:
        self.found.append(error(code, message, span, notes=verdict.lines,
                                help="raise the weight of the outcome, lower the others, or clamp them"))

    def _unknown(self, text: str, span: SourceSpan, verdict: Verdict) -> None:
        self.found.append(warning("T303", f"not checked by this version: {text}", span, notes=verdict.lines,
                                  help="`--strict` fails on it; write the claim or the reward more simply"))

    def _outranks(self, better: Expr, worse: Expr, titles: tuple[str, str], margin: Fraction | None) -> Verdict:
        sides = (Side(self.score, self.worlds.given(better), titles[0]),
                 Side(self.score, self.worlds.given(worse), titles[1]))
        return claims.ordering(*sides, margin or ZERO, strict=not margin, shared=self.shared)

    def _claim(self, item: Item) -> ClaimPlan | None:
        assert item.claim is not None
        text = " ".join(item.span.text.split()).removeprefix("ensure ")
        errors = len(self.found)
        verdict = self._decide(item)
        if len(self.found) > errors or verdict is None:
            return None
        if verdict.verdict == "refuted":
            self._refuted("T302", f"this does not hold: {text}", item.span, verdict)
        elif verdict.verdict == "unknown":
            self._unknown(text, item.span, verdict)
        return ClaimPlan(text, verdict.verdict, "; ".join(verdict.lines), ENGINE)

    def _decide(self, item: Item) -> Verdict | None:
        names = Namespace({**self.binder.names.values, "total": Typed(self.score, "number")},
                          self.binder.names.groups, self.binder.names.box)
        typer = Typer(names, self.found)
        match item.claim:
            case tree.Outranks(left=left, right=right, margin=margin):
                return self._decide_outranks(typer, left, right, margin)
            case tree.Monotone() as claim:
                return self._decide_monotone(typer, claim)
            case tree.InRange(subject=subject, range=written):
                low, high = read_range(written, self.found)
                value = self._fixed(typer.number(subject, "what has a range").expr)
                return None if low is None or high is None else self._decide_range(value, low, high)
            case tree.Binary() as claim if claim.op in ("<", "<=", ">", ">="):
                named = [s.name for s in (claim.left, claim.right)
                         if isinstance(s, tree.Ref) and s.name in NAMED_TRAJECTORIES]
                return self._decide_comparison(typer, claim) if named else self._decide_always(typer, claim)
            case claim if claim is not None:
                return self._decide_always(typer, claim)
        return None

    def _fixed(self, expr: Expr) -> Expr:
        return substitute(expr, {Symbol("weight", (n,)): Const(w.value) for n, w in self.binder.weights.items()
                                 if w.moves is None})

    def _decide_outranks(self, typer: Typer, left: tree.Expr, right: tree.Expr,
                         margin: tree.Expr | None) -> Verdict | None:
        better, worse = self._side(typer, left), self._side(typer, right)
        gap = constant(margin) if margin is not None else None
        if margin is not None and (gap is None or gap[0] or gap[1] < 0):
            self.found.append(error("T201", "a margin is a plain number, zero or more", margin.span,
                                    help="write `by 0.5`"))
            return None
        if gap is not None and 0 < gap[1] < Fraction(1, 10**6):
            self.found.append(error("T203", "a margin under 0.000001 is lost when rewards are rounded", margin.span
                                    if margin is not None else None, help="write a larger margin, or none"))
            return None
        if better is None or worse is None:
            return None
        return claims.ordering(better, worse, gap[1] if gap else ZERO, strict=not (gap and gap[1]), shared=self.shared)

    def _side(self, typer: Typer, expr: tree.Expr) -> Side | None:
        """A set of trajectories: a named one, or those for which a condition holds."""
        title = " ".join(expr.span.text.split())
        if isinstance(expr, tree.Ref) and expr.name in NAMED_TRAJECTORIES:
            conditions = named_trajectory(expr.name, self.binder.context, self.binder.names, self.solved, self.found)
            return Side(self.score, self.worlds.given(*conditions), title)
        condition = typer.boolean(expr, "a side of `outranks`")
        if condition.kind == "?":
            return None
        return Side(self.score, self.worlds.given(condition.expr), title)

    def _decide_monotone(self, typer: Typer, claim: tree.Monotone) -> Verdict | None:
        subject, signal = typer.number(claim.subject, "what rises or falls"), typer.typed(claim.signal)
        if "?" in (subject.kind, signal.kind):
            return None
        if not isinstance(signal.expr, Symbol):
            self.found.append(error("T201", "`with` names one signal", claim.signal.span,
                                    help="write for example `with tests.gain`"))
            return None
        return claims.monotone(self._fixed(subject.expr), signal.expr, self.worlds,
                               rises=claim.direction == "rises", strictly=claim.strictly)

    def _decide_range(self, value: Expr, low: Fraction, high: Fraction) -> Verdict:
        least = claims.bound(value, self.worlds, highest=False)
        most = claims.bound(value, self.worlds, highest=True)
        if isinstance(least, str) or isinstance(most, str):
            return Verdict("unknown", tuple(x for x in (least, most) if isinstance(x, str)))
        if least is None or most is None:
            return Verdict("proved", ("there is no trajectory at all",))
        if least.value is None or most.value is None:
            return Verdict("unknown", ("it has no bound by intervals",))
        if low <= least.value and most.value <= high:
            return Verdict("proved", (f"{decimal(least.value)}..{decimal(most.value)}",))
        witnessed = (least.world if least.value < low else None) or (most.world if most.value > high else None)
        line = f"by intervals it lies in {decimal(least.value)}..{decimal(most.value)}"
        return Verdict("refuted" if witnessed is not None else "unknown", (line,))

    def _decide_comparison(self, typer: Typer, claim: tree.Binary) -> Verdict | None:
        """`idle <= 0`, `late > quit`: the scores of named trajectories against each other or a number."""
        above, under = (claim.left, claim.right) if claim.op in (">", ">=") else (claim.right, claim.left)
        upper, lower = self._scored(typer, above), self._scored(typer, under)
        if upper is None or lower is None:
            return None
        return claims.ordering(upper, lower, ZERO, strict=claim.op in (">", "<"), shared=self.shared)

    def _scored(self, typer: Typer, expr: tree.Expr) -> Side | None:
        if isinstance(expr, tree.Ref) and expr.name in NAMED_TRAJECTORIES:
            return self._side(typer, expr)
        value = typer.number(expr, "what is compared")
        return None if value.kind == "?" else Side(self._fixed(value.expr), self.worlds, expr.span.text)

    def _decide_always(self, typer: Typer, claim: tree.Expr) -> Verdict | None:
        condition = typer.boolean(claim, "a claim")
        if condition.kind == "?":
            return None
        value = self._fixed(condition.expr)
        try:
            if not truth(value, self.worlds.box).no:
                return Verdict("proved")
        except Unsupported as problem:
            return Verdict("unknown", (str(problem),))
        counter = claims.bound(Const(ZERO), self.worlds.given(Apply("not", (value,))), highest=True)
        if counter is None:
            return Verdict("proved")
        if isinstance(counter, str) or counter.world is None:
            return Verdict("unknown", ("intervals do not decide it",))
        return Verdict("refuted", ("it fails for some trajectory",))

    def _violations_without_rules(self) -> None:
        if self.binder.context.forbids:
            return
        for part in self.binder.declared.item.body or ():
            for expr in (part.value, part.claim):
                where = _mention(expr, "violations")
                if where is not None:
                    self.found.append(warning("T304", "`trajectory.violations` is always 0: the task has no `forbid`",
                                              where, help="add a `forbid` rule to the task, or drop the mention",
                                              labels=(Label(part.span, "used here"),)))
                    return


def _mention(expr: object, field_name: str) -> SourceSpan | None:
    """Where an expression names `trajectory.<field>`."""
    if isinstance(expr, tree.Attr):
        return expr.span if expr.name.text == field_name else _mention(expr.base, field_name)
    children: tuple[object, ...] = ()
    match expr:
        case tree.Binary(left=left, right=right):
            children = (left, right)
        case tree.Unary(operand=operand):
            children = (operand,)
        case tree.If(condition=condition, then=then, otherwise=otherwise):
            children = (condition, then, otherwise)
        case tree.Call(args=args):
            children = tuple(a.value for a in args)
        case tree.ListLit(items=items):
            children = items
    return next((w for w in (_mention(c, field_name) for c in children) if w is not None), None)
