"""Actions of the grammar: from the children of a rule to a node of the tree."""

from __future__ import annotations

from typing import Any

from guerdon.dsl import tree
from guerdon.dsl.expressions import Args, ExpressionBuilder
from guerdon.dsl.source import Span
from guerdon.dsl.tokens import Token

_NO_ARGS: tuple[tree.Arg, ...] = ()


class Builder(ExpressionBuilder):
    """The actions of statements, types and claims; those of expressions are inherited."""

    def _item(self, children: tuple[Any, ...], word: tree.Name, **parts: Any) -> tree.Item:
        return tree.Item(self._span(children), word, **parts)

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
        return self._item(c, self._word(word), value=value, assigns=True, body=_items(body))

    def quoted_setting(self, *c: Any) -> tree.Item:
        label, _, value, body = c
        return self._item(c, _label_name(label), label=label, value=value, assigns=True, body=_items(body))

    def field(self, *c: Any) -> tree.Item:
        word, _, type_, init, body = c
        return self._item(c, self._word(word), type=type_, value=_inner(init), assigns=init is not None,
                          body=_items(body))

    def quoted_field(self, *c: Any) -> tree.Item:
        label, _, type_, init, body = c
        return self._item(c, _label_name(label), label=label, type=type_, value=_inner(init),
                          assigns=init is not None, body=_items(body))

    def word_value(self, *c: Any) -> tree.Item:
        return self._item(c, self._word(c[0]), value=c[1])

    def labelled(self, *c: Any) -> tree.Item:
        word, label, args, body = c
        return self._item(c, self._word(word), label=label, args=args.args, body=_items(body))

    def labelled_block(self, *c: Any) -> tree.Item:
        word, label, body = c
        return self._item(c, self._word(word), label=label, body=_items(body))

    def applied(self, *c: Any) -> tree.Item:
        word, args, body = c
        return self._item(c, self._word(word), args=args.args, body=_items(body))

    def block(self, *c: Any) -> tree.Item:
        return self._item(c, self._word(c[0]), body=_items(c[1]))

    def declaration(self, *c: Any) -> tree.Item:
        word, name, args, typed, loop, init, body = c
        return self._item(c, self._word(word), name=self._word(name), args=args and args.args,
                          type=_inner(typed), loop=loop, value=_inner(init), assigns=init is not None,
                          body=_items(body))

    def weighted(self, *c: Any) -> tree.Item:
        word, name, weight, within, init = c
        return self._item(c, self._word(word), name=self._word(name), weight=weight, range=_inner(within),
                          value=init.node, assigns=True)

    def waiver(self, *c: Any) -> tree.Item:
        word, name, _, reason = c
        return self._item(c, self._word(word), name=self._word(name), reason=reason)

    def promise(self, *c: Any) -> tree.Item:
        return self._item(c, self._word(c[0]), claim=c[1])

    def body(self, *c: Any) -> _Part:
        return _Part(self._span(c), tuple(c[1]))

    def init(self, *c: Any) -> _Part:
        return _Part(self._span(c), c[1])

    typed = within = margin = init

    def element(self, *c: Any) -> _Part:
        return _Part(self._span(c), c[1])

    def loop(self, *c: Any) -> tree.Loop:
        return tree.Loop(self._span(c), self._word(c[1]), self._word(c[3]))

    # Arguments and types ------------------------------------------------------------------------

    def no_args(self, *c: Any) -> Args:
        return Args(self._span(c), _NO_ARGS)

    def args(self, *c: Any) -> Args:
        return Args(self._span(c), tuple(c[1]))

    def first(self, item: Any) -> list[Any]:
        return [item]

    def rest(self, items: list[Any], _comma: Token, item: Any) -> list[Any]:
        items.append(item)
        return items

    def positional(self, value: tree.Expr) -> tree.Arg:
        return tree.Arg(value.span, None, None, value)

    def named(self, *c: Any) -> tree.Arg:
        return tree.Arg(self._span(c), self._word(c[0]), None, c[2])

    def parameter(self, *c: Any) -> tree.Arg:
        return tree.Arg(self._span(c), self._word(c[0]), c[2], _inner(c[3]))

    def type(self, *c: Any) -> tree.TypeExpr:
        name, element, args, within, modifiers = c
        span = self._span((*c[:4], *modifiers))
        return tree.TypeExpr(span, self._word(name), _inner(element), _inner(within),
                             tuple(self._word(m) for m in modifiers), () if args is None else args.args)

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


class _Part:
    """A value with the span of the syntax around it."""

    __slots__ = ("node", "span")

    def __init__(self, span: Span, node: Any) -> None:
        self.span, self.node = span, node


def _inner(part: Any) -> Any:
    return None if part is None else part.node


def _items(body: Any) -> tuple[tree.Item, ...] | None:
    return None if body is None else body.node


def _label_name(label: tree.Str) -> tree.Name:
    return tree.Name(label.span, label.literal or "")
