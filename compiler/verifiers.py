"""Verifiers: declared with a kind, bound by a task, resolved for each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import PurePosixPath

from guerdon.compiler.kinds import Kind, read_kind, read_signals
from guerdon.compiler.plan.canonical import Json, rational
from guerdon.compiler.plan.expr import Expr, Symbol, symbols
from guerdon.compiler.plan.schema import SignalPlan, VerifierPlan
from guerdon.compiler.program import Declaration, Program
from guerdon.compiler.reward.typing import Namespace, Typer
from guerdon.compiler.shapes import check_body
from guerdon.compiler.static import Static, asset_of
from guerdon.compiler.types import Type, read_type
from guerdon.compiler.values import Val, coerce, to_setting
from guerdon.compiler.vocabulary import VALUE
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Arg, Call, Item

DEFAULT_WALL_MS = 60_000
HIDDEN_ROOT = PurePosixPath("/grader")
IDLE = Symbol("trajectory", ("idle",))


@dataclass(frozen=True)
class Verifier:
    """A declared verifier: its kind, its body (checked), its parameters and the signals it returns."""

    declared: Declaration
    kind: Kind
    item: Item
    params: Mapping[str, tuple[Type, tree.Expr | None]]
    signals: Mapping[str, Type]

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def facts(self) -> tuple[tree.Expr, ...]:
        """The kind's facts and the author's own."""
        own = tuple(self.item.all("fact"))
        return tuple(i.claim for i in (*self.kind.facts, *own)
                     if i.claim is not None and not isinstance(i.claim, tree.Outranks | tree.Monotone | tree.InRange))


class Verifiers:
    """All verifiers of a program, each read once."""

    def __init__(self, program: Program, found: list[Diagnostic]) -> None:
        self.program = program
        self.found = found
        self._kinds: dict[str, Kind] = {}
        self._read: dict[Declaration, Verifier | None] = {}

    def kind(self, name: str) -> Kind | None:
        """A verifier kind by name."""
        if name not in self._kinds and name in self.program.kinds:
            self._kinds[name] = read_kind(self.program.kinds[name], self.found)
        return self._kinds.get(name)

    def get(self, declared: Declaration) -> Verifier | None:
        """A verifier by its declaration; None (reported) if its kind is unknown."""
        if declared not in self._read:
            self._read[declared] = self._build(declared)
        return self._read[declared]

    def _build(self, declared: Declaration) -> Verifier | None:
        item = declared.item
        call = item.value
        name = call.fn.text if isinstance(call, Call) else call.name if isinstance(call, tree.Ref) else None
        if name is None or call is None:
            self.found.append(error("T106", "a verifier is written `verifier NAME = KIND { … }`", item.span,
                                    help="name a kind: `pytest`, `exec`, `stdout`, `answer` …"))
            return None
        kind = self.kind(name)
        if kind is None:
            guess = did_you_mean(name, tuple(self.program.kinds))
            self.found.append(error("T101", f"there is no verifier kind `{name}`", call.span,
                                    help=f"did you mean `{guess}`?" if guess else
                                    "the kinds are " + ", ".join(sorted(self.program.kinds))))
            return None
        checked = check_body(item, "verifier", self.found, dict.fromkeys(kind.settings, VALUE))
        params = read_params(item.args or (), self.found)
        signals = dict(kind.signals) | read_signals(checked, self.found)
        verifier = Verifier(declared, kind, checked, params, signals)
        self._check_facts(verifier)
        return verifier

    def _check_facts(self, verifier: Verifier) -> None:
        typer = Typer(fact_names(verifier.signals), self.found)
        for fact in verifier.facts:
            typer.boolean(fact, "a fact")
        for item in verifier.item.all("fact"):
            if isinstance(item.claim, tree.Outranks | tree.Monotone | tree.InRange):
                self.found.append(error("T106", "a fact is a condition on the verifier's signals", item.span,
                                        help="write for example `fact passed implies share == 1`"))


def fact_names(signals: Mapping[str, Type]) -> Namespace:
    """What a run-time fact may name: the verifier's own signals, and `idle`."""
    names = Namespace()
    for name, kind in signals.items():
        names.values[name] = names.symbol("signal", ("", name), kind)
    names.values["idle"] = names.symbol(IDLE.space, IDLE.path, Type("bool"))
    return names


def read_params(args: tuple[Arg, ...], found: list[Diagnostic]) -> dict[str, tuple[Type, tree.Expr | None]]:
    """The parameters of an environment or verifier: name -> (type, default)."""
    params: dict[str, tuple[Type, tree.Expr | None]] = {}
    for arg in args:
        if arg.name is None or arg.type is None:
            found.append(error("T106", "a parameter is written `name: type`", arg.span, help="write `id: string`"))
        elif arg.name.text in params:
            found.append(error("T104", f"there are two parameters `{arg.name.text}`", arg.span, help="rename one"))
        else:
            params[arg.name.text] = (read_type(arg.type, found), arg.value)
    return params


def bind_params(params: Mapping[str, tuple[Type, tree.Expr | None]], args: tuple[Arg, ...], at: tree.Expr, what: str,
                static: Static) -> dict[str, Val]:
    """The values of a call's arguments, by position and by name, coerced to the parameters' types."""
    given: dict[str, tree.Expr] = {}
    names = list(params)
    for index, arg in enumerate(args):
        name = arg.name.text if arg.name is not None else names[index] if index < len(names) else None
        if name is None or name not in params or name in given or arg.value is None:
            shown = f"`{arg.name.text}`" if arg.name is not None else f"argument {index + 1}"
            static.found.append(error("T205", f"{what} takes no {shown}", arg.span, help=_signature(what, params)))
            continue
        given[name] = arg.value
    bound: dict[str, Val] = {}
    for name, (kind, default) in params.items():
        expr = given.get(name, default)
        if expr is None:
            static.found.append(error("T205", f"{what} needs `{name}`", at.span, help=_signature(what, params)))
            continue
        bound[name] = coerce(static.value(expr, kind), kind, expr.span, f"`{name}`", static.found)
    return bound


def _signature(what: str, params: Mapping[str, tuple[Type, tree.Expr | None]]) -> str:
    shown = ", ".join(f"{n}: {t}" for n, (t, _) in params.items())
    return f"{what} takes ({shown})" if params else f"{what} takes nothing"


@dataclass(frozen=True)
class Resolver:
    """Resolves one verifier for one row into the plan."""

    verifier: Verifier
    static: Static

    def plan(self, name: str, lock: Mapping[str, Json]) -> VerifierPlan:
        """The verifier as the runtime needs it; `lock` holds what `guerdon lock` found for it."""
        settings = self._settings()
        if settings.get("expect") == "locked" and lock:
            settings |= {"expect": lock["expect"], "failing_at_start": lock["failing_at_start"]}
        elif settings.get("expect") == "all":
            settings["expect"] = None
        return VerifierPlan(
            name=name, kind=self.verifier.kind.name, settings=settings, collect=self._collect(settings),
            hidden=self._hidden(), wall_ms=self._wall(), signals=signal_plans(self.verifier.signals),
            facts=self._facts(),
        )

    def _settings(self) -> dict[str, Json]:
        kind, item = self.verifier.kind, self.verifier.item
        written: dict[str, tree.Expr] = {}
        args = item.value.args if isinstance(item.value, Call) else ()
        for index, arg in enumerate(args):
            key = arg.name.text if arg.name else kind.positional[index] if index < len(kind.positional) else None
            if key is None or key not in kind.settings or arg.value is None:
                self.static.found.append(error("T205", f"the kind `{kind.name}` does not take this argument", arg.span,
                                               help="it takes " + (", ".join(kind.positional) or "settings in { … }")))
                continue
            written[key] = arg.value
        for key in kind.settings:
            inside = item.find(key)
            if inside is not None and inside.value is not None:
                written[key] = inside.value
        return {key: self._setting(key, written.get(key)) for key in kind.settings}

    def _setting(self, key: str, expr: tree.Expr | None) -> Json:
        kind = self.verifier.kind
        wanted, default = kind.settings[key]
        if expr is None:
            expr = default
        if expr is None:
            self.static.found.append(error("T105", f"the verifier `{self.verifier.name}` lacks `{key}`",
                                           self.verifier.item.word.span, help=f"add `{key} = …` ({wanted})"))
            return None
        value = self.static.value(expr, wanted)
        if wanted.name in ("source", "expectation"):
            return self._special(value, wanted, expr)
        if wanted.name == "path" and not value.broken and value.data is not None:
            return asset_of(self.static, value if value.type.name == "asset" else coerce(
                value, wanted, expr.span, f"`{key}`", self.static.found), expr)
        value = coerce(value, wanted, expr.span, f"`{key}`", self.static.found)
        if value.broken:
            return None
        if key in kind.choices and value.data not in kind.choices[key]:
            guess = did_you_mean(str(value.data), kind.choices[key])
            self.static.fail("T203", f"`{key}` cannot be `{value.data}`", expr,
                             f"did you mean `{guess}`?" if guess else "choose one of " + ", ".join(kind.choices[key]))
            return None
        return to_setting(value)

    def _special(self, value: Val, wanted: Type, expr: tree.Expr) -> Json:
        if value.broken:
            return None
        if value.type.name == "list" and wanted.name == "expectation":
            return to_setting(value)
        if value.type.name == wanted.name:
            return to_setting(value)
        choices = {"source": 'submit, final, boxed or tag("word")',
                   "expectation": "locked, all or a list of test ids"}
        self.static.fail("T201", f"this must be {choices[wanted.name]}", expr, "write one of these")
        return None

    def _collect(self, settings: Mapping[str, Json]) -> tuple[str, ...]:
        item = self.verifier.item.find("collect")
        if item is None or item.value is None:
            path = settings.get("path")
            return (path,) if isinstance(path, str) and path.startswith("/") else ()
        wanted = Type("list", element=Type("string"))
        value = coerce(self.static.value(item.value), wanted, item.value.span, "`collect`", self.static.found)
        globs = [str(v.data) for v in value.data] if not value.broken else []
        return tuple(g for g in globs if self._good_path(g, item.value))

    def _good_path(self, path: str, expr: tree.Expr) -> bool:
        pure = PurePosixPath(path)
        if pure.is_absolute() and ".." not in pure.parts and str(pure) == path and not _under(pure, HIDDEN_ROOT):
            return True
        self.static.fail("T206", f"`{path}` is not a plain absolute path", expr,
                         "write `/workspace/src/**`: absolute, without `..`, not below /grader")
        return False

    def _hidden(self) -> tuple[tuple[str, str], ...]:
        block = self.verifier.item.find("hidden")
        result = []
        for entry in (block.body or ()) if block else ():
            assert entry.label is not None and entry.value is not None
            where = self.static.value(entry.label)
            address = asset_of(self.static, self.static.value(entry.value, Type("path")), entry.value)
            if where.broken or address is None:
                continue
            pure = PurePosixPath(str(where.data))
            if not _under(pure, HIDDEN_ROOT) or ".." in pure.parts:
                self.static.fail("T403", f"hidden files go below {HIDDEN_ROOT}, which only the verifier can enter",
                                 entry.label, f'write `"{HIDDEN_ROOT}/tests" = …`')
                continue
            result.append((str(pure), address))
        return tuple(sorted(result))

    def _wall(self) -> int:
        block = self.verifier.item.find("limits")
        item = block.find("wall") if block else None
        if item is None or item.value is None:
            return DEFAULT_WALL_MS
        wanted = Type("duration", Fraction(1), Fraction(24 * 3_600_000))
        value = coerce(self.static.value(item.value), wanted, item.value.span, "`wall`", self.static.found)
        return DEFAULT_WALL_MS if value.broken else int(value.data)

    def _facts(self) -> tuple[Expr, ...]:
        names = fact_names(self.verifier.signals)
        typed = [Typer(names, []).boolean(f, "a fact") for f in self.verifier.facts]
        # A fact about the idle trajectory is for proofs: at run time nobody knows that a trajectory was idle.
        return tuple(t.expr for t in typed if t.kind == "bool" and IDLE not in symbols(t.expr))


def _under(path: PurePosixPath, root: PurePosixPath) -> bool:
    return path == root or root in path.parents


def signal_plans(signals: Mapping[str, Type]) -> dict[str, SignalPlan]:
    """The signals' types as the plan holds them."""
    return {n: SignalPlan(t.name, None if t.low is None else rational(t.low),
                          None if t.high is None else rational(t.high), t.direction) for n, t in signals.items()}
