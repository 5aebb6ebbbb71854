"""Actions of the grammar that make expressions."""

from __future__ import annotations

import builtins
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from guerdon.dsl import diagnostic, literals, tree
from guerdon.dsl.diagnostic import MAX_REPORTS, Diagnostic, Fix
from guerdon.dsl.layout import MAX_DEPTH
from guerdon.dsl.source import Source, Span
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tokens import Token


class ExpressionBuilder:
    """One method for each action; children are tokens, nodes, or None where absent."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.diagnostics: builtins.list[Diagnostic] = []
        # Depth of each composite expression; the node is kept so that its id stays its own.
        self._depths: dict[int, tuple[int, object]] = {}
        self._reported_depth = False

    # Helpers ------------------------------------------------------------------------------------

    def _span(self, children: tuple[Any, ...]) -> Span:
        present = [c for c in children if c is not None]
        return Span(self.source, _start(present[0]), _end(present[-1]))

    def _word(self, token: Token) -> tree.Name:
        return tree.Name(Span(self.source, token.start, token.end), self.text[token.start : token.end])

    def _report(self, found: Diagnostic) -> None:
        if len(self.diagnostics) < MAX_REPORTS:
            self.diagnostics.append(found)

    def _composite(self, node: Any, *parts: Any) -> Any:
        """Bound the depth of what recursive passes will walk: too deep becomes its first part."""
        depth = 1 + max((self._depths[id(p)][0] for p in parts if id(p) in self._depths), default=0)
        if depth > MAX_DEPTH:
            if not self._reported_depth:
                self._reported_depth = True
                self._report(diagnostic.error(
                    "T006", f"nested more than {MAX_DEPTH} deep", node.span,
                    help="split it into several statements"))
            return parts[0]
        self._depths[id(node)] = (depth, node)
        return node

    # Expressions --------------------------------------------------------------------------------

    def conditional(self, *c: Any) -> Any:
        return self._composite(tree.If(self._span(c), c[1], c[3], c[5]), c[1], c[3], c[5])

    def binary(self, *c: Any) -> Any:
        left, op, right = c
        node = tree.Binary(self._span(c), _OPS[op.kind], left, right)
        return self._composite(node, left, right)

    def unary(self, *c: Any) -> Any:
        return self._composite(tree.Unary(self._span(c), _OPS[c[0].kind], c[1]), c[1])

    def attr(self, *c: Any) -> Any:
        return self._composite(tree.Attr(self._span(c), c[0], self._word(c[2])), c[0])

    def call(self, *c: Any) -> Any:
        name, args = c
        values = tuple(a.value for a in args.args if a.value is not None)
        node = tree.Call(self._span(c), self._word(name), args.args)
        return self._composite(node, tree.Ref(node.fn.span, node.fn.text), *values)

    def group(self, *c: Any) -> Any:
        node = replace(c[1], span=self._span(c))
        if id(c[1]) in self._depths:
            self._depths[id(node)] = (self._depths[id(c[1])][0], node)
        return node

    def empty_list(self, *c: Any) -> tree.ListLit:
        return tree.ListLit(self._span(c), ())

    def list(self, *c: Any) -> Any:
        node = tree.ListLit(self._span(c), tuple(c[1]))
        return self._composite(node, tree.ListLit(node.span, ()), *node.items)

    def ref(self, token: Token) -> tree.Ref:
        return tree.Ref(Span(self.source, token.start, token.end), self.text[token.start : token.end])

    def boolean(self, token: Token) -> tree.Bool:
        return tree.Bool(Span(self.source, token.start, token.end), token.kind == "TRUE")

    def number(self, token: Token) -> tree.Num:
        span = Span(self.source, token.start, token.end)
        found = literals.number(span.text)
        if found is None:
            self._report(diagnostic.error(
                "T010", "this number is out of range", span,
                help="a number has at most 40 digits and an exponent of at most 308"))
            return tree.Num(span, _ZERO, "")
        value, unit = found
        if unit and unit not in literals.UNITS:
            guess = _unit_guess(unit)
            self._report(_unknown_unit(span, unit, guess))
            unit = guess or ""  # a number without its unit would be a second mistake
        return tree.Num(span, value, unit)

    # Strings ------------------------------------------------------------------------------------

    def plain_string(self, token: Token) -> tree.Str:
        return self._string([token], [])

    def template_head(self, head: Token, value: tree.Expr) -> builtins.list[Any]:
        return [head, value]

    def template_more(self, template: builtins.list[Any], mid: Token, value: tree.Expr) -> builtins.list[Any]:
        template += [mid, value]
        return template

    def template_string(self, template: builtins.list[Any], tail: Token) -> Any:
        node = self._string([*template[::2], tail], template[1::2])
        return self._composite(node, tree.Str(node.span, ()), *template[1::2])

    def _string(self, tokens: builtins.list[Token], inserted: builtins.list[tree.Expr]) -> tree.Str:
        start, end = tokens[0].start, tokens[-1].end
        opening, quote = _quotes(self.text, start)
        pieces = []
        for i, token in enumerate(tokens):
            a = token.start + (len(opening) if i == 0 else 1)
            b = token.end - (2 if i < len(tokens) - 1 else len(quote))
            pieces.append(self.text[a : max(a, b)])
        texts = literals.dedent(pieces) if quote == '"""' else [p.replace("\r\n", "\n") for p in pieces]
        if not opening.startswith("r"):
            self._check_escapes(tokens)
            texts = [literals.unescape(t)[0] for t in texts]
        parts = [part for pair in zip_longest(texts, inserted) for part in pair if part]
        return tree.Str(Span(self.source, start, end), tuple(parts))

    def _check_escapes(self, tokens: builtins.list[Token]) -> None:
        for token in tokens:
            for offset, escape in literals.unescape(self.text[token.start : token.end])[1]:
                start = token.start + offset
                shown = escape.rstrip("\r\n")
                span = Span(self.source, start, start + len(shown))
                self._report(diagnostic.error(
                    "T004", f"there is no escape `{shown}`", span, fix=Fix(span, "\\" + shown),
                    help=f"write `\\{shown}` for a backslash, or a raw string `r\"…\"`",
                    notes=("the escapes are " + " ".join(f"`{e}`" for e in literals.ESCAPES),)))


class Args:
    """Arguments with the span of their brackets."""

    __slots__ = ("args", "span")

    def __init__(self, span: Span, args: tuple[tree.Arg, ...]) -> None:
        self.span, self.args = span, args


_OPS = {
    "PLUS": "+", "MINUS": "-", "STAR": "*", "SLASH": "/", "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=",
    "GT": ">", "GE": ">=", "AND": "and", "OR": "or", "IMPLIES": "implies", "NOT": "not",
}
_ZERO = Fraction(0)


def _start(part: Any) -> int:
    return part.start if isinstance(part, Token) else part.span.start


def _end(part: Any) -> int:
    return part.end if isinstance(part, Token) else part.span.end


def _quotes(text: str, start: int) -> tuple[str, str]:
    """Opening and closing quotes of the string at an offset; a mistyped quote counts as one."""
    prefix = "r" if text[start] == "r" else ""
    quote = '"""' if text.startswith('"""', start + len(prefix)) else text[start + len(prefix)]
    return prefix + quote, quote


def _unit_guess(unit: str) -> str | None:
    """The unit that was meant: another spelling of one, or the nearest."""
    return literals.SPELLINGS.get(unit) or literals.SPELLINGS.get(unit.lower()) or did_you_mean(unit, literals.UNITS)


def _unknown_unit(span: Span, unit: str, guess: str | None) -> Diagnostic:
    otherwise = "digits are not grouped" if unit[0] == "_" else "leave it out, or put an operator before it"
    at = Span(span.source, span.end - len(unit), span.end)
    return diagnostic.error(
        "T009", f"there is no unit `{unit}`", at, fix=None if guess is None else Fix(at, guess),
        help=f"did you mean `{guess}`?" if guess else otherwise,
        notes=("durations: " + " ".join(literals.DURATIONS), "sizes: " + " ".join(literals.SIZES)))
