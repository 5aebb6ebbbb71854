"""Evaluates the expressions of a task at compile time: row values, templates, lists, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from guerdon.compiler.pack import Pack, PackError
from guerdon.compiler.plan.evaluate import EvaluationError, apply
from guerdon.compiler.program import Scope
from guerdon.compiler.types import BOOL, STRING, Type, sane
from guerdon.compiler.values import NOTHING, Val, text_of
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.literals import unit_value
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Attr, Binary, Bool, Call, Expr, If, ListLit, Num, Ref, Str, Unary

WORDS: Mapping[str, tuple[str, ...]] = {
    "expectation": ("locked", "all"), "source": ("submit", "final", "boxed"), "path": ("none",), "any": (),
}
"""Bare words that stand for themselves where a setting of this type is wanted."""

FOREIGN = {
    "True": "write `true`", "False": "write `false`", "None": "leave the key out where it has no value",
    "row": "only `task NAME for row in DATASET` has a row; verifiers and environments get its fields as arguments",
}
"""Names that people write out of habit, and what to do instead."""


@dataclass(frozen=True)
class Static:
    """One evaluation: where names are looked up, what is bound, where findings go."""

    pack: Pack
    scope: Scope
    bound: Mapping[str, Val]
    found: list[Diagnostic]

    def fail(self, code: str, message: str, expr: Expr, help: str) -> Val:
        """Report and go on with a value that makes no second error."""
        self.found.append(error(code, message, expr.span, help=help))
        return NOTHING

    def value(self, expr: Expr, wanted: Type | None = None) -> Val:
        """The value of an expression; NOTHING after an error."""
        match expr:
            case Num():
                return number(expr)
            case Bool():
                return Val(BOOL, expr.value)
            case Str():
                return self._string(expr)
            case Ref():
                return self._name(expr, wanted)
            case Attr():
                return self._attribute(expr)
            case ListLit():
                items = tuple(self.value(i, wanted.element if wanted else None) for i in expr.items)
                if any(i.broken for i in items):
                    return NOTHING
                element = items[0].type if items else None
                return Val(Type("list", element=element), items, any(i.secret for i in items))
            case Call():
                return self._call(expr)
            case Unary():
                return self._operator("neg" if expr.op == "-" else expr.op, expr, (expr.operand,))
            case Binary():
                return self._operator(expr.op, expr, (expr.left, expr.right))
            case If():
                return self._if(expr, wanted)

    def _string(self, expr: Str) -> Val:
        pieces, secret = [], False
        for part in expr.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = self.value(part)
            if value.broken:
                return NOTHING
            text = text_of(value)
            if text is None:
                return self.fail("T201", f"a {value.type.name} has no text to insert here", part,
                                 "insert a string, a number or true/false")
            pieces.append(text)
            secret |= value.secret
        return Val(STRING, "".join(pieces), secret)

    def _name(self, expr: Ref, wanted: Type | None) -> Val:
        if wanted is not None and expr.name in WORDS.get(wanted.name, ()):
            return Val(Type("path") if wanted.name == "path" else wanted, None if expr.name == "none" else expr.name)
        if expr.name in self.bound:
            return self.bound[expr.name]
        declared = self.scope.names.get(expr.name)
        if declared is not None:
            return Val(Type(declared.kind), declared)
        if wanted is not None and wanted.name == "word":
            return Val(wanted, expr.name)
        if expr.name in self.scope.broken:
            return NOTHING
        known = (*self.bound, *self.scope.names, *(WORDS.get(wanted.name, ()) if wanted else ()))
        guess = did_you_mean(expr.name, known)
        help = f"did you mean `{guess}`?" if guess else "write a literal, or a name that is declared"
        return self.fail("T101", f"there is no `{expr.name}` here", expr, FOREIGN.get(expr.name, help))

    def _attribute(self, expr: Attr) -> Val:
        base = self.value(expr.base)
        if base.broken:
            return NOTHING
        if not isinstance(base.data, dict):
            return self.fail("T201", f"a {base.type.name} has no fields", expr, "only a row has fields: `row.name`")
        if expr.name.text not in base.data:
            guess = did_you_mean(expr.name.text, tuple(base.data))
            return self.fail("T101", f"the rows have no field `{expr.name.text}`", expr,
                             f"did you mean `{guess}`?" if guess else "the schema has " + ", ".join(base.data))
        field: Val = base.data[expr.name.text]
        return field

    def _call(self, expr: Call) -> Val:
        function = FUNCTIONS.get(expr.fn.text)
        if function is None:
            guess = did_you_mean(expr.fn.text, tuple(FUNCTIONS))
            return self.fail("T101", f"there is no function `{expr.fn.text}` here", expr,
                             f"did you mean `{guess}`?" if guess else "known: " + ", ".join(FUNCTIONS))
        values = [a.value for a in expr.args if a.name is None and a.value is not None]
        if len(values) != len(expr.args) or len(values) != 1:
            return self.fail("T205", f"`{expr.fn.text}` takes one value", expr, f'write `{expr.fn.text}("…")`')
        value = self.value(values[0])
        return value if value.broken else function(self, expr, value)

    def _operator(self, op: str, expr: Expr, operands: tuple[Expr, ...]) -> Val:
        values = [self.value(o) for o in operands]
        if any(v.broken for v in values):
            return NOTHING
        secret = any(v.secret for v in values)
        names = [v.type.name for v in values]
        if op == "+" and set(names) == {"list"}:
            return Val(values[0].type, values[0].data + values[1].data, secret)
        unit = _unit(op, ["number" if n in ("int", "real") else n for n in names])
        if unit is None:
            return self._unit_clash(expr, operands, values)
        try:
            result = apply(op, tuple(v.data for v in values)) if op in STRICT else _logic(op, values)
        except EvaluationError as problem:
            return self.fail("T201", f"cannot compute this: {problem}", expr, "check the types of both sides")
        if isinstance(result, bool):
            return Val(BOOL, result, secret)
        if isinstance(result, Fraction) and not sane(result):
            return self.fail("T203", "this number has more digits than any setting needs", expr, "use a smaller number")
        plain = "int" if set(names) == {"int"} and op != "/" else "real"
        return Val(Type(plain if unit == "number" else unit), result, secret)

    def _unit_clash(self, expr: Expr, operands: tuple[Expr, ...], values: list[Val]) -> Val:
        unit = next(v.type.name for v in values if v.type.name in ("duration", "size"))
        plain = next((o for o, v in zip(operands, values, strict=True) if v.type.name in ("int", "real")), None)
        shown = plain.span.text if isinstance(plain, Num) else "2"
        return self.fail("T202", "the units of these do not go together", expr,
                         f"give both the same unit: write `{shown}{'s' if unit == 'duration' else 'MiB'}`")

    def _if(self, expr: If, wanted: Type | None) -> Val:
        condition = self.value(expr.condition)
        if condition.broken:
            return NOTHING
        if not isinstance(condition.data, bool):
            return self.fail("T201", "a condition is true or false", expr.condition, "compare with `==`, `<` …")
        value = self.value(expr.then if condition.data else expr.otherwise, wanted)
        # What is chosen by a secret tells of it.
        return replace(value, secret=value.secret or condition.secret)


STRICT = frozenset("+ - * / neg == != < <= > >= not".split())


def _unit(op: str, kinds: list[str]) -> str | None:
    """The unit of a result, `number` for none; None where the units do not go together."""
    if not {"duration", "size"} & set(kinds):
        return "number"
    if len(kinds) == 1 or (op not in ("*", "/") and kinds[0] == kinds[1]):
        return kinds[0]
    if op == "*" and "number" in kinds:
        return kinds[0] if kinds[1] == "number" else kinds[1]
    if op == "/" and kinds[1] in ("number", kinds[0]):
        return kinds[0] if kinds[1] == "number" else "number"
    # Truth values and strings beside a unit are no clash of units: the evaluator names them.
    return None if set(kinds) <= {"duration", "size", "number"} else "number"


def _logic(op: str, values: list[Val]) -> bool:
    left, right = (v.data for v in values)
    if not isinstance(left, bool) or not isinstance(right, bool):
        raise EvaluationError(f"`{op}` joins true and false")
    return {"and": left and right, "or": left or right, "implies": not left or right}[op]


def number(expr: Num) -> Val:
    """A literal number: an int, a real, or (in base units) a duration or size."""
    kind, value = unit_value(expr)
    plain = "int" if value.denominator == 1 else "real"
    return Val(Type(plain if kind == "number" else kind), value)


def _file(static: Static, expr: Call, value: Val) -> Val:
    return _asset(static, expr, value, static.pack.file)


def _dir(static: Static, expr: Call, value: Val) -> Val:
    return _asset(static, expr, value, static.pack.tree)


def _asset(static: Static, expr: Call, value: Val, find: Callable[[str], str]) -> Val:
    if not isinstance(value.data, str):
        return static.fail("T201", f"`{expr.fn.text}` takes a path", expr, f'write `{expr.fn.text}("path")`')
    try:
        return Val(Type("asset"), find(value.data), value.secret)
    except PackError as problem:
        return static.fail("T503", str(problem), expr, problem.remedy)


def _tag(static: Static, expr: Call, value: Val) -> Val:
    if not isinstance(value.data, str) or not value.data.isidentifier():
        return static.fail("T201", "a tag is a plain word", expr, 'write `tag("answer")`')
    return Val(Type("source"), f"tag:{value.data}")


def _port(static: Static, expr: Call, value: Val) -> Val:
    if not isinstance(value.data, Fraction) or not 0 < value.data < 65536:
        return static.fail("T203", "a port is a number in 1..65535", expr, "write `port(8080)`")
    return Val(Type("ready"), value.data)


FUNCTIONS: Mapping[str, Callable[[Static, Call, Val], Val]] = {
    "file": _file, "dir": _dir, "tag": _tag, "port": _port,
}


def asset_of(static: Static, value: Val, expr: Expr) -> str | None:
    """The address of a value that names a file or folder: `file(…)`, `dir(…)` or a path; reports others."""
    if value.broken:
        return None
    if value.type.name == "asset":
        return str(value.data)
    if value.type.name == "path" and isinstance(value.data, str):
        try:
            return static.pack.asset(value.data)
        except PackError as problem:
            static.fail("T503", str(problem), expr, problem.remedy)
            return None
    static.fail("T201", f"a {value.type.name} is no file", expr, 'write `file("path")`, `dir("path")` or a path field')
    return None


