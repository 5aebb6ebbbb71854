"""The syntax tree: one generic `Item` for every statement, and a few kinds of expression.

Block words (`task`, `verifier`, `term` …) are ordinary names here; the compiler gives them meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from guerdon.dsl.source import Source, Span


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier where it stands."""

    span: Span
    text: str


# Expressions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Num:
    """A number: an exact decimal, in its unit's base (milliseconds, bytes) where it has a unit."""

    span: Span
    value: Fraction
    """The written number, not yet multiplied by the unit."""
    unit: str
    """The unit as written (`s`, `MiB` …) or the empty string."""


@dataclass(frozen=True, slots=True)
class Str:
    """A string: literal pieces and `${…}` insertions in turn, dedented and unescaped."""

    span: Span
    parts: tuple[str | Expr, ...]

    @property
    def literal(self) -> str | None:
        """The text, if nothing is inserted into it."""
        return "".join(p for p in self.parts if isinstance(p, str)) if self.is_literal else None

    @property
    def is_literal(self) -> bool:
        """Whether the string has no insertion."""
        return all(isinstance(p, str) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    span: Span
    value: bool


@dataclass(frozen=True, slots=True)
class Ref:
    """A name used as a value."""

    span: Span
    name: str


@dataclass(frozen=True, slots=True)
class Attr:
    """`base.name`."""

    span: Span
    base: Expr
    name: Name


@dataclass(frozen=True, slots=True)
class Call:
    """`fn(args)` as a value; a block behind it belongs to the statement."""

    span: Span
    fn: Name
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class ListLit:
    """`[a, b]`."""

    span: Span
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `not x`."""

    span: Span
    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * /`, `== != < <= > >=`, `and or implies`."""

    span: Span
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class If:
    """`if c then a else b`."""

    span: Span
    condition: Expr
    then: Expr
    otherwise: Expr


Expr = Num | Str | Bool | Ref | Attr | Call | ListLit | Unary | Binary | If


@dataclass(frozen=True, slots=True)
class Arg:
    """One element of `( … )`: `value`, `name = value`, or a parameter `name: type [= value]`."""

    span: Span
    name: Name | None
    type: TypeExpr | None
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Range:
    """`a..b`, both ends included."""

    span: Span
    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class TypeExpr:
    """`name`, `list[T]`, `name in a..b`; `modifiers` are the words behind (`secret`, `up`, `down`)."""

    span: Span
    name: Name
    element: TypeExpr | None
    range: Range | None
    modifiers: tuple[Name, ...]
    args: tuple[Arg, ...] = ()
    """As in `one_of("a", "b")`."""


# Claims -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outranks:
    """`left outranks right [by margin]`: any trajectory with left scores above any with right."""

    span: Span
    left: Expr
    right: Expr
    margin: Expr | None


@dataclass(frozen=True, slots=True)
class Monotone:
    """`subject [strictly] rises|falls with signal`."""

    span: Span
    subject: Expr
    direction: str
    strictly: bool
    signal: Expr


@dataclass(frozen=True, slots=True)
class InRange:
    """`subject in a..b`."""

    span: Span
    subject: Expr
    range: Range


Claim = Outranks | Monotone | InRange | Expr


# Statements -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loop:
    """`for row in dataset`."""

    span: Span
    row: Name
    dataset: Name


@dataclass(frozen=True, slots=True)
class Item:
    """One statement. Which parts are present says which shape it has:

    `edition 1`, `say "x"`, `run ["a"]`    word, value
    `import "p" (a, b)`                    word, label, args (each a Ref)
    `key = value`, `"path" = value`        word (or label) and value, `assigns`
    `key { … }`, `split(seed = 7) { … }`   word, [args], body
    `field: type mods [= value]`           word (or label), type
    `verifier n(p: t) = kind(a) { … }`     word, name, [args], value, body, `assigns`
    `term n W [in a..b] = expr`            word, name, weight, [range], value, `assigns`
    `weight n: t in a..b = expr`           word, name, type, value, `assigns`
    `task n for row in data { … }`         word, name, loop, body
    `exploit "what" { … }`                 word, label, body
    `call tool(args)`                      word, name, args
    `ensure claim`, `fact claim`           word, claim
    `allow CODE because "why"`             word, name, reason
    """

    span: Span
    word: Name
    """The first word; for `"path" = value` the string's own text, `label` being set as well."""
    name: Name | None = None
    label: Str | None = None
    args: tuple[Arg, ...] | None = None
    type: TypeExpr | None = None
    weight: Expr | None = None
    range: Range | None = None
    loop: Loop | None = None
    value: Expr | None = None
    assigns: bool = False
    claim: Claim | None = None
    reason: Str | None = None
    body: tuple[Item, ...] | None = None

    def find(self, word: str) -> Item | None:
        """The first statement of the body that begins with a word."""
        return next((i for i in self.body or () if i.word.text == word), None)

    def all(self, word: str) -> Iterator[Item]:
        """All statements of the body that begin with a word."""
        return (i for i in self.body or () if i.word.text == word)


@dataclass(frozen=True, slots=True)
class File:
    """A parsed file."""

    source: Source
    items: tuple[Item, ...]
