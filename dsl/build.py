"""Actions of the grammar: from the children of a rule to a node of the tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from guerdon.dsl import diagnostic, literals, tree
from guerdon.dsl.diagnostic import Diagnostic, Fix
from guerdon.dsl.layout import MAX_DEPTH
from guerdon.dsl.source import Source, Span
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tokens import Token

_NO_ARGS: tuple[tree.Arg, ...] = ()


class Builder:
    """One method for each action of grammar.lark; children are tokens, nodes, or None where absent."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.diagnostics: list[Diagnostic] = []
        # Depth of each composite expression; the node is kept so that its id stays its own.
        self._depths: dict[int, tuple[int, object]] = {}
        self._reported_depth = False

    # Helpers ------------------------------------------------------------------------------------

    def _span(self, children: tuple[Any, ...]) -> Span:
        present = [c for c in children if c is not None]
        return Span(self.source, _start(present[0]), _end(present[-1]))

    def _name(self, token: Token) -> tree.Name:
        return tree.Name(Span(self.source, token.start, token.end), self.text[token.start : token.end])

    def _item(self, children: tuple[Any, ...], word: tree.Name, **parts: Any) -> tree.Item:
        return tree.Item(self._span(children), word, **parts)

    def _composite(self, node: Any, *parts: Any) -> Any:
        """Bound the depth of what recursive passes will walk: too deep becomes its first part."""
        depth = 1 + max((self._depths[id(p)][0] for p in parts if id(p) in self._depths), default=0)
        if depth > MAX_DEPTH:
            if not self._reported_depth:
                self._reported_depth = True
                self.diagnostics.append(diagnostic.error(
                    "T006", f"nested more than {MAX_DEPTH} deep", node.span,
                    help="split it into several statements"))
            return parts[0]
        self._depths[id(node)] = (depth, node)
        return node

    # Statements ---------------------------------------------------------------------------------

    def start(self, items: list[tree.Item]) -> list[tree.Item]:
        return items

    def no_items(self) -> list[tree.Item]:
        return []

    def add_item(self, items: list[tree.Item], item: tree.Item, _sep: Token) -> list[tree.Item]:
        items.append(item)
        return items

    def setting(self, *c: Any) -> tree.Item:
        word, _, value, body = c
        return self._item(c, self._name(word), value=value, assigns=True, body=_items(body))

    def quoted_setting(self, *c: Any) -> tree.Item:
        label, _, value, body = c
        return self._item(c, _label_name(label), label=label, value=value, assigns=True, body=_items(body))

    def field(self, *c: Any) -> tree.Item:
        word, _, type_, init, body = c
        return self._item(c, self._name(word), type=type_, value=_inner(init), assigns=init is not None,
                          body=_items(body))

    def quoted_field(self, *c: Any) -> tree.Item:
        label, _, type_, init, body = c
        return self._item(c, _label_name(label), label=label, type=type_, value=_inner(init),
                          assigns=init is not None, body=_items(body))

    def word_value(self, *c: Any) -> tree.Item:
        return self._item(c, self._name(c[0]), value=c[1])

    def labelled(self, *c: Any) -> tree.Item:
        word, label, args, body = c
        return self._item(c, self._name(word), label=label, args=args.args, body=_items(body))

    def labelled_block(self, *c: Any) -> tree.Item:
        word, label, body = c
        return self._item(c, self._name(word), label=label, body=_items(body))

    def applied(self, *c: Any) -> tree.Item:
        word, args, body = c
        return self._item(c, self._name(word), args=args.args, body=_items(body))

    def block(self, *c: Any) -> tree.Item:
        return self._item(c, self._name(c[0]), body=_items(c[1]))

    def declaration(self, *c: Any) -> tree.Item:
        word, name, args, typed, loop, init, body = c
        return self._item(c, self._name(word), name=self._name(name), args=None if args is None else args.args,
                          type=_inner(typed), loop=loop, value=_inner(init), assigns=init is not None,
                          body=_items(body))

    def weighted(self, *c: Any) -> tree.Item:
        word, name, weight, within, init = c
        return self._item(c, self._name(word), name=self._name(name), weight=weight, range=_inner(within),
                          value=init.node, assigns=True)

    def waiver(self, *c: Any) -> tree.Item:
        word, name, _, reason = c
        return self._item(c, self._name(word), name=self._name(name), reason=reason)

    def promise(self, *c: Any) -> tree.Item:
        return self._item(c, self._name(c[0]), claim=c[1])

    def body(self, *c: Any) -> _Part:
        return _Part(self._span(c), tuple(c[1]))

    def init(self, *c: Any) -> _Part:
        return _Part(self._span(c), c[1])

    typed = within = margin = init

    def element(self, *c: Any) -> _Part:
        return _Part(self._span(c), c[1])

    def loop(self, *c: Any) -> tree.Loop:
        return tree.Loop(self._span(c), self._name(c[1]), self._name(c[3]))

    # Arguments and types ------------------------------------------------------------------------

    def no_args(self, *c: Any) -> _Args:
        return _Args(self._span(c), _NO_ARGS)

    def args(self, *c: Any) -> _Args:
        return _Args(self._span(c), tuple(c[1]))

    def first(self, item: Any) -> list[Any]:
        return [item]

    def rest(self, items: list[Any], _comma: Token, item: Any) -> list[Any]:
        items.append(item)
        return items

    def positional(self, value: tree.Expr) -> tree.Arg:
        return tree.Arg(value.span, None, None, value)

    def named(self, *c: Any) -> tree.Arg:
        return tree.Arg(self._span(c), self._name(c[0]), None, c[2])

    def parameter(self, *c: Any) -> tree.Arg:
        return tree.Arg(self._span(c), self._name(c[0]), c[2], _inner(c[3]))

    def type(self, *c: Any) -> tree.TypeExpr:
        name, element, args, within, modifiers = c
        span = self._span((*c[:4], *modifiers))
        return tree.TypeExpr(span, self._name(name), _inner(element), _inner(within),
                             tuple(self._name(m) for m in modifiers), () if args is None else args.args)

    def no_modifiers(self) -> list[Token]:
        return []

    def add_modifier(self, modifiers: list[Token], token: Token) -> list[Token]:
        modifiers.append(token)
        return modifiers

    def range(self, *c: Any) -> tree.Range:
        return tree.Range(self._span(c), c[0], c[2])

    # Claims -------------------------------------------------------------------------------------

    def outranks(self, *c: Any) -> tree.Outranks:
        return tree.Outranks(self._span(c), c[0], c[2], _inner(c[3]))

    def monotone(self, *c: Any) -> tree.Monotone:
        direction = self.text[c[2].start : c[2].end]
        return tree.Monotone(self._span(c), c[0], direction, c[1] is not None, c[4])

    def in_range(self, *c: Any) -> tree.InRange:
        return tree.InRange(self._span(c), c[0], c[2])

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
        return self._composite(tree.Attr(self._span(c), c[0], self._name(c[2])), c[0])

    def call(self, *c: Any) -> Any:
        name, args = c
        values = tuple(a.value for a in args.args if a.value is not None)
        node = tree.Call(self._span(c), self._name(name), args.args)
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
            self.diagnostics.append(diagnostic.error(
                "T010", "this number is out of range", span,
                help="a number has at most 40 digits and an exponent of at most 308"))
            return tree.Num(span, _ZERO, "")
        value, unit = found
        if unit and unit not in literals.UNITS:
            self.diagnostics.append(_unknown_unit(span, unit))
            unit = ""
        return tree.Num(span, value, unit)

    # Strings ------------------------------------------------------------------------------------

    def plain_string(self, token: Token) -> tree.Str:
        return self._string([token], [])

    def template_head(self, head: Token, value: tree.Expr) -> list[Any]:
        return [head, value]

    def template_more(self, template: list[Any], mid: Token, value: tree.Expr) -> list[Any]:
        template += [mid, value]
        return template

    def template_string(self, template: list[Any], tail: Token) -> Any:
        node = self._string([*template[::2], tail], template[1::2])
        return self._composite(node, tree.Str(node.span, ()), *template[1::2])

    def _string(self, tokens: list[Token], inserted: list[tree.Expr]) -> tree.Str:
        start, end = tokens[0].start, tokens[-1].end
        opening, quote = _quotes(self.text, start)
        pieces = []
        for i, token in enumerate(tokens):
            a = token.start + (len(opening) if i == 0 else 1)
            b = token.end - (2 if i < len(tokens) - 1 else len(quote))
            pieces.append(self._piece(a, max(a, b), quote, opening))
        raw = opening[0] in "rR"
        texts = literals.dedent(pieces) if quote == '"""' else [p.replace("\r\n", "\n") for p in pieces]
        if not raw:
            self._check_escapes(tokens)
            texts = [literals.unescape(t)[0] for t in texts]
        parts: list[str | tree.Expr] = []
        for i, text in enumerate(texts):
            if text:
                parts.append(text)
            if i < len(inserted):
                parts.append(inserted[i])
        return tree.Str(Span(self.source, start, end), tuple(parts))

    def _piece(self, start: int, end: int, quote: str, opening: str) -> str:
        return self.text[start:end]

    def _check_escapes(self, tokens: list[Token]) -> None:
        for token in tokens:
            for offset, escape in literals.unescape(self.text[token.start : token.end])[1]:
                span = Span(self.source, token.start + offset, token.start + offset + len(escape))
                self.diagnostics.append(diagnostic.error(
                    "T004", f"there is no escape `{escape}`", span,
                    help=f"write `\\{escape}` for a backslash, or a raw string r\"…\"", fix=Fix(span, "\\" + escape),
                    notes=("the escapes are " + " ".join(f"`{e}`" for e in literals.ESCAPES),)))


class _Part:
    """A value with the span of the syntax around it."""

    __slots__ = ("node", "span")

    def __init__(self, span: Span, node: Any) -> None:
        self.span, self.node = span, node


class _Args:
    """Arguments with the span of their brackets."""

    __slots__ = ("args", "span")

    def __init__(self, span: Span, args: tuple[tree.Arg, ...]) -> None:
        self.span, self.args = span, args


_OPS = {
    "PLUS": "+", "MINUS": "-", "STAR": "*", "SLASH": "/", "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=",
    "GT": ">", "GE": ">=", "AND": "and", "OR": "or", "IMPLIES": "implies", "NOT": "not",
}
_ZERO = literals.Fraction(0)


def _start(part: Any) -> int:
    return part.start if isinstance(part, Token) else part.span.start


def _end(part: Any) -> int:
    return part.end if isinstance(part, Token) else part.span.end


def _inner(part: Any) -> Any:
    return None if part is None else part.node


def _items(body: Any) -> tuple[tree.Item, ...] | None:
    return None if body is None else body.node


def _label_name(label: tree.Str) -> tree.Name:
    return tree.Name(label.span, label.literal or "")


def _quotes(text: str, start: int) -> tuple[str, str]:
    """Opening and closing quotes of the string at an offset; a mistyped quote counts as one."""
    prefix = "r" if text[start] == "r" else ""
    quote = '"""' if text.startswith('"""', start + len(prefix)) else text[start + len(prefix)]
    return prefix + quote, quote


def _unknown_unit(span: Span, unit: str) -> Diagnostic:
    guess = did_you_mean(unit, literals.UNITS)
    at = Span(span.source, span.end - len(unit), span.end)
    return diagnostic.error(
        "T009", f"there is no unit `{unit}`", at, fix=None if guess is None else Fix(at, guess),
        help=(f"did you mean `{guess}`?" if guess else "leave it out, or put an operator before it"),
        notes=("durations: " + " ".join(literals.DURATIONS), "sizes: " + " ".join(literals.SIZES)))
