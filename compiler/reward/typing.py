"""Reward expressions: from the syntax tree to the plan's typed tree (T10x, T20x)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, Value
from guerdon.compiler.reward.domain import Span, Truth, Unsupported, forward
from guerdon.compiler.static import number
from guerdon.compiler.types import Type, decimal
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.suggest import did_you_mean

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression of the plan and what it is: `bool`, `number`, `duration`, `size`, `string` or `list`."""

    expr: Expr
    kind: str


BROKEN = Typed(ZERO, "?")
_UNITS = ("number", "duration", "size")
_LOGIC = ("and", "or", "implies")
_ORDER = ("<", "<=", ">", ">=")
FOREIGN = {
    "True": "write `true`", "False": "write `false`",
    "row": "a reward gets the row's numbers as parameters: `reward shaped(level: int in 1..5)`, `shaped(row.level)`",
}
"""Names that people write out of habit, and what to do instead."""
FUNCTIONS = ("min", "max", "clamp", "abs", "sum", "mean", "any", "all", "count")


def kind_of(written: Type) -> str:
    """The kind of a declared type."""
    return {"int": "number", "real": "number"}.get(written.name, written.name)


def box_of(written: Type) -> Span | Truth:
    """Everything a declared type admits."""
    if written.name == "bool":
        return Truth(True, True)
    return Span(written.low, written.high, written.name in ("int", "duration", "size"))


def literal(value: Value) -> Typed:
    """A constant."""
    kind = "bool" if isinstance(value, bool) else "number" if isinstance(value, Fraction) else "string"
    return Typed(Const(value), kind)


@dataclass
class Namespace:
    """What the names of a reward mean: single values, and groups of them (`tests.gain`)."""

    values: dict[str, Typed] = field(default_factory=dict)
    groups: dict[str, Mapping[str, Typed]] = field(default_factory=dict)
    box: dict[Symbol, Span | Truth] = field(default_factory=dict)
    """What each symbol may be, before any assumption."""

    def symbol(self, space: str, path: tuple[str, ...], written: Type) -> Typed:
        """A new symbol of a declared type."""
        result = Symbol(space, path)
        self.box[result] = box_of(written)
        return Typed(result, kind_of(written))


@dataclass
class Typer:
    """Translates expressions in one namespace, reporting into `found`."""

    names: Namespace
    found: list[Diagnostic]

    def fail(self, code: str, message: str, at: tree.Expr, help: str) -> Typed:
        self.found.append(error(code, message, at.span, help=help))
        return BROKEN

    def boolean(self, expr: tree.Expr, what: str) -> Typed:
        """The expression as a boolean, or BROKEN and an error."""
        result = self.typed(expr)
        if result.kind in ("bool", "?"):
            return result
        return self.fail("T201", f"{what} must be true or false, this is a {result.kind}", expr,
                         "compare it: `x == 1`, `x > 0` …")

    def number(self, expr: tree.Expr, what: str) -> Typed:
        """The expression as a plain number (true = 1, false = 0), or BROKEN and an error."""
        result = self.typed(expr)
        if result.kind == "bool":
            return Typed(as_number(result.expr), "number")
        if result.kind in ("number", "?"):
            return result
        return self.fail("T202", f"{what} must be a number, this is a {result.kind}", expr,
                         "divide by a limit of the same unit: `trajectory.wall / limit.wall`")

    def typed(self, expr: tree.Expr) -> Typed:
        """Any expression."""
        match expr:
            case tree.Num():
                value = number(expr)
                return Typed(Const(value.data), kind_of(value.type))
            case tree.Bool():
                return literal(expr.value)
            case tree.Str():
                if expr.literal is None:
                    return self.fail("T201", "a reward inserts nothing into strings", expr, "write a plain string")
                return literal(expr.literal)
            case tree.Ref():
                return self._name(expr)
            case tree.Attr():
                return self._attribute(expr)
            case tree.Unary():
                return self._unary(expr)
            case tree.Binary():
                return self._binary(expr)
            case tree.If():
                return self._if(expr)
            case tree.Call():
                return self._call(expr)
            case tree.ListLit():
                return self.fail("T201", "a list stands only inside `sum`, `mean`, `any`, `all`, `count`", expr,
                                 "write `sum([a, b])`")

    def _name(self, expr: tree.Ref) -> Typed:
        if expr.name in self.names.values:
            return self.names.values[expr.name]
        if expr.name in self.names.groups:
            fields = ", ".join(f"{expr.name}.{f}" for f in self.names.groups[expr.name])
            return self.fail("T201", f"`{expr.name}` is not a value", expr, f"take one of its signals: {fields}")
        known = (*self.names.values, *self.names.groups)
        guess = did_you_mean(expr.name, known)
        return self.fail("T101", f"there is no `{expr.name}` in this reward", expr,
                         f"did you mean `{guess}`?" if guess else FOREIGN.get(
                             expr.name, "known: " + ", ".join(sorted(known))))

    def _attribute(self, expr: tree.Attr) -> Typed:
        if not isinstance(expr.base, tree.Ref):
            return self.fail("T201", "only a name has fields", expr, "write `name.field`")
        group = self.names.groups.get(expr.base.name)
        if group is None:
            return self._name(expr.base) if expr.base.name not in self.names.values else self.fail(
                "T201", f"`{expr.base.name}` has no fields", expr, "use it as it is")
        if expr.name.text in group:
            return group[expr.name.text]
        guess = did_you_mean(expr.name.text, tuple(group))
        what = {"limit": "value", "trajectory": "counter"}.get(expr.base.name, "signal")
        self.found.append(error("T101", f"`{expr.base.name}` has no {what} `{expr.name.text}`", expr.name.span,
                                help=f"did you mean `{guess}`?" if guess else "it has " + ", ".join(group)))
        return BROKEN

    def _unary(self, expr: tree.Unary) -> Typed:
        if expr.op == "not":
            operand = self.boolean(expr.operand, "the operand of `not`")
            return Typed(Apply("not", (operand.expr,)), operand.kind)
        operand = self.typed(expr.operand)
        if operand.kind not in (*_UNITS, "?"):
            return self.fail("T201", f"a {operand.kind} has no minus", expr, "use a number")
        return Typed(Apply("neg", (operand.expr,)), operand.kind)

    def _binary(self, expr: tree.Binary) -> Typed:
        if expr.op in _LOGIC:
            sides = [self.boolean(s, f"a side of `{expr.op}`") for s in (expr.left, expr.right)]
            return self._result(expr.op, sides, "bool")
        left, right = self.typed(expr.left), self.typed(expr.right)
        if "?" in (left.kind, right.kind):
            return BROKEN
        if expr.op in ("==", "!="):
            if left.kind != right.kind:
                return self._mismatch(expr, left, right)
            return self._result(expr.op, [left, right], "bool")
        for side, at in ((left, expr.left), (right, expr.right)):
            if side.kind not in _UNITS:
                return self.fail("T201", f"`{expr.op}` needs numbers, this is a {side.kind}", at,
                                 "write `if x then 1 else 0` to count a truth value" if side.kind == "bool" else
                                 "use a number")
        if expr.op in ("*", "/"):
            return self._scale(expr, left, right)
        if left.kind != right.kind:
            return self._mismatch(expr, left, right)
        return self._result(expr.op, [left, right], "bool" if expr.op in _ORDER else left.kind)

    def _result(self, op: str, sides: list[Typed], kind: str) -> Typed:
        if any(s.kind == "?" for s in sides):
            return BROKEN
        return Typed(Apply(op, tuple(s.expr for s in sides)), kind)

    def _mismatch(self, expr: tree.Binary, left: Typed, right: Typed) -> Typed:
        plain = next((e for e, t in ((expr.left, left), (expr.right, right)) if t.kind == "number"), None)
        unit = next((t.kind for t in (left, right) if t.kind in ("duration", "size")), "")
        help = "compare or add values of one kind"
        if isinstance(plain, tree.Num) and unit:
            help = f"write `{plain.span.text}{'s' if unit == 'duration' else 'MiB'}`"
        return self.fail("T202" if unit else "T201",
                         f"`{expr.op}` joins a {left.kind} and a {right.kind}", expr, help)

    def _scale(self, expr: tree.Binary, left: Typed, right: Typed) -> Typed:
        if expr.op == "*":
            if "number" not in (left.kind, right.kind):
                return self.fail("T202", f"a {left.kind} times a {right.kind} has no meaning here", expr,
                                 "multiply by a plain number")
            return self._result("*", [left, right], right.kind if left.kind == "number" else left.kind)
        if right.kind not in ("number", left.kind):
            return self.fail("T202", f"a {left.kind} divided by a {right.kind} has no meaning here", expr,
                             "divide by a plain number or by the same unit")
        if not self._never_zero(right.expr):
            return self.fail("T204", "this denominator is not provably different from zero", expr.right,
                             "give it a range without 0, or divide by `max(1, …)`")
        return self._result("/", [left, right], left.kind if right.kind == "number" else "number")

    def _never_zero(self, expr: Expr) -> bool:
        try:
            have = forward(expr, self.names.box)
        except Unsupported:
            return False
        return isinstance(have, Span) and ((have.low is not None and have.low > 0)
                                           or (have.high is not None and have.high < 0))

    def _if(self, expr: tree.If) -> Typed:
        condition = self.boolean(expr.condition, "the condition")
        then, otherwise = self.typed(expr.then), self.typed(expr.otherwise)
        kinds = {then.kind, otherwise.kind}
        if "?" in (*kinds, condition.kind):
            return BROKEN
        if len(kinds) > 1:
            return self.fail("T201", f"the branches are a {then.kind} and a {otherwise.kind}", expr,
                             "give both branches the same kind")
        return self._result("if", [condition, then, otherwise], then.kind)

    def _call(self, expr: tree.Call) -> Typed:
        name = expr.fn.text
        if name not in FUNCTIONS:
            guess = did_you_mean(name, FUNCTIONS)
            return self.fail("T101", f"there is no function `{name}` in rewards", expr,
                             f"did you mean `{guess}`?" if guess else "known: " + ", ".join(FUNCTIONS))
        written = [a.value for a in expr.args]
        if len(written) == 1 and isinstance(written[0], tree.ListLit):
            written = list(written[0].items)
        if any(a.name is not None for a in expr.args) or not written or (
                len(written) != {"clamp": 3, "abs": 1}.get(name, len(written))):
            return self.fail("T205", f"`{name}` takes {_arity(name)}", expr, f"write `{_example(name)}`")
        values = [v for v in written if v is not None]
        if name in ("any", "all", "count"):
            parts = [self.boolean(v, f"what `{name}` looks at") for v in values]
            return self._result(name, parts, "number" if name == "count" else "bool")
        parts = [self.typed(v) for v in values]
        kinds = {p.kind for p in parts}
        if "?" in kinds:
            return BROKEN
        if len(kinds) > 1 or not kinds <= set(_UNITS):
            return self.fail("T202" if kinds <= set(_UNITS) else "T201",
                             f"`{name}` of a {' and a '.join(sorted(kinds))}", expr, "give numbers of one unit")
        return self._result(name, parts, parts[0].kind)


def as_number(expr: Expr) -> Expr:
    """A boolean as 1 or 0."""
    return Apply("if", (expr, ONE, ZERO))


def _arity(name: str) -> str:
    return {"clamp": "a value, a lower and an upper end", "abs": "one number"}.get(name, "one value or more")


def _example(name: str) -> str:
    return {"clamp": "clamp(x, 0, 1)", "abs": "abs(x)"}.get(name, f"{name}(a, b)")


def show(expr: Expr) -> str:
    """An expression as a person reads it in a verdict."""
    match expr:
        case Const(value):
            return decimal(value) if isinstance(value, Fraction) else str(value).lower()
        case Symbol():
            return str(expr)
        case Apply(op, args):
            if len(args) == 2 and not op.isalpha():
                return f"({show(args[0])} {op} {show(args[1])})"
            return f"{op}({', '.join(show(a) for a in args)})"
