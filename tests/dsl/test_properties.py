"""Any text at all is parsed without a crash; a printed tree is read back as the same tree."""

import dataclasses
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon.dsl import tree
from guerdon.dsl.parser import parse, read
from guerdon.dsl.render import RENDERERS
from guerdon.dsl.source import Source, Span
from guerdon.dsl.tokens import KEYWORDS, SYMBOLS

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HERE = Span(Source("", ""), 0, 0)

PIECES = [
    *SYMBOLS, *KEYWORDS, "\n", " ", "x", "task", "1", "0.5s", '"', '"""', "${", "\\", "'", "“", "#", 'r"', "\r", "\0",
    "é", ":=",
]  # fmt: skip


def total(text):
    """Parse and render; every report has its place and a remedy."""
    file, found = parse(Source("t.task", text))
    for render in RENDERERS.values():
        render(found)
    for one in found:
        assert one.help and 0 <= one.span.start <= one.span.end <= len(text)
    assert list(found) == sorted(found, key=lambda d: d.sort_key())
    assert repr(parse(Source("t.task", text))) == repr((file, found))
    return file, found


@QUICK
@given(st.text())
def test_any_text(text):
    total(text)


@QUICK
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_tokens(text):
    total(text)


@settings(QUICK, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes(tmp_path, data):
    path = tmp_path / "a.task"
    path.write_bytes(data)
    source = read(path, "a.task")
    if isinstance(source, Source):
        total(source.text)
    else:
        assert source.code == "T007"


# Trees to texts and back ---------------------------------------------------------------------------

names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(lambda w: w not in KEYWORDS)
name_nodes = names.map(lambda w: tree.Name(HERE, w))
numbers = st.builds(
    lambda n, places, unit: tree.Num(HERE, Fraction(n, 10**places), unit),
    st.integers(0, 10**6), st.integers(0, 4), st.sampled_from(["", "s", "min", "MiB"]),
)  # fmt: skip
visible = st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])
texts = st.text(visible | st.sampled_from('\n\t\\"$'))
plain = texts.map(lambda t: tree.Str(HERE, (t,) if t else ()))


def composite(expr):
    two = st.sampled_from(["+", "-", "*", "/", "==", "!=", "<", "<=", ">", ">=", "and", "or", "implies"])
    return st.one_of(
        st.builds(lambda a, op, b: tree.Binary(HERE, op, a, b), expr, two, expr),
        st.builds(lambda op, a: tree.Unary(HERE, op, a), st.sampled_from(["-", "not"]), expr),
        st.builds(lambda a, b, c: tree.If(HERE, a, b, c), expr, expr, expr),
        st.builds(lambda a, n: tree.Attr(HERE, a, n), expr, name_nodes),
        st.builds(lambda xs: tree.ListLit(HERE, tuple(xs)), st.lists(expr, max_size=3)),
        st.builds(lambda f, xs: tree.Call(HERE, f, tuple(xs)), name_nodes, st.lists(arguments(expr), max_size=3)),
        st.builds(lambda a, x, b: tree.Str(HERE, (a, x, b)), texts.filter(bool), expr, texts.filter(bool)),
    )


def arguments(expr):
    return st.builds(lambda n, v: tree.Arg(HERE, n, None, v), st.none() | name_nodes, expr)


refs = names.map(lambda w: tree.Ref(HERE, w))
leaves = st.one_of(numbers, plain, refs, st.booleans().map(lambda b: tree.Bool(HERE, b)))
exprs = st.recursive(leaves, composite, max_leaves=12)
ranges = st.builds(lambda a, b: tree.Range(HERE, a, b), numbers, numbers)
simple_types = st.builds(
    lambda n, r, m: tree.TypeExpr(HERE, n, None, r, tuple(m)),
    name_nodes, st.none() | ranges, st.lists(name_nodes, max_size=2),
)  # fmt: skip
types = st.recursive(
    simple_types, lambda t: st.builds(lambda n, e: tree.TypeExpr(HERE, n, e, None, ()), name_nodes, t), max_leaves=3
)
directions = st.sampled_from(["rises", "falls"])
claims = st.one_of(
    exprs,
    st.builds(lambda a, b, m: tree.Outranks(HERE, a, b, m), exprs, exprs, st.none() | exprs),
    st.builds(lambda a, d, s, b: tree.Monotone(HERE, a, d, s, b), exprs, directions, st.booleans(), exprs),
    st.builds(lambda a, r: tree.InRange(HERE, a, r), exprs, ranges),
)


loops = st.builds(lambda a, b: tree.Loop(HERE, a, b), name_nodes, name_nodes)


def item(word, **parts):
    return st.builds(lambda w, kw: tree.Item(HERE, w, **kw), word, st.fixed_dictionaries(parts))


def statements(body):
    optional_body = st.none() | body
    return st.one_of(
        item(name_nodes, value=exprs, assigns=st.just(True), body=optional_body),
        item(name_nodes, type=types),
        item(name_nodes, body=body),
        item(name_nodes, label=plain, body=body),
        item(name_nodes, name=name_nodes, type=types, value=exprs, assigns=st.just(True)),
        item(name_nodes, name=name_nodes, value=exprs, assigns=st.just(True), body=optional_body),
        item(name_nodes, name=name_nodes, args=st.lists(arguments(exprs), max_size=2).map(tuple), body=optional_body),
        item(name_nodes, name=name_nodes, weight=numbers, range=st.none() | ranges, value=exprs, assigns=st.just(True)),
        item(name_nodes, name=name_nodes, loop=loops, body=body),
        item(st.sampled_from(["ensure", "fact"]).map(lambda w: tree.Name(HERE, w)), claim=claims),
        item(name_nodes, name=name_nodes, reason=plain),
    )


bodies = st.recursive(
    st.just(()), lambda b: st.lists(statements(b), max_size=3).map(tuple), max_leaves=4
)


def printed(node):
    """A node as a text of the language, every operand in brackets."""
    match node:
        case None:
            return ""
        case tree.Name():
            return node.text
        case tree.Ref():
            return node.name
        case tree.Bool():
            return "true" if node.value else "false"
        case tree.Num():
            places = 4
            digits = str(int(node.value * 10**places)).rjust(places + 1, "0")
            return f"{digits[:-places]}.{digits[-places:]}{node.unit}"
        case tree.Str():
            parts = (escaped(p) if isinstance(p, str) else f"${{{printed(p)}}}" for p in node.parts)
            return f'"{"".join(parts)}"'
        case tree.Attr():
            return f"({printed(node.base)}).{node.name.text}"
        case tree.Call():
            return f"{node.fn.text}({listed(node.args)})"
        case tree.ListLit():
            return f"[{listed(node.items)}]"
        case tree.Unary():
            return f"({node.op} ({printed(node.operand)}))"
        case tree.Binary():
            return f"(({printed(node.left)}) {node.op} ({printed(node.right)}))"
        case tree.If():
            return f"(if {printed(node.condition)} then {printed(node.then)} else {printed(node.otherwise)})"
        case tree.Arg():
            return (f"{node.name.text} = " if node.name else "") + printed(node.value)
        case tree.Range():
            return f"{printed(node.low)}..{printed(node.high)}"
        case tree.TypeExpr():
            element = f"[{printed(node.element)}]" if node.element else ""
            within = f" in {printed(node.range)}" if node.range else ""
            return " ".join([node.name.text + element + within, *(m.text for m in node.modifiers)])
        case tree.Outranks():
            margin = f" by {printed(node.margin)}" if node.margin else ""
            return f"{printed(node.left)} outranks {printed(node.right)}{margin}"
        case tree.Monotone():
            return f"{printed(node.subject)} {'strictly ' * node.strictly}{node.direction} with {printed(node.signal)}"
        case tree.InRange():
            return f"{printed(node.subject)} in {printed(node.range)}"
        case tree.Item():
            return statement(node)


def statement(node):
    text = node.word.text
    text += f" {node.name.text}" if node.name else ""
    text += f" {printed(node.label)}" if node.label else ""
    text += f"({listed(node.args)})" if node.args is not None else ""
    text += f": {printed(node.type)}" if node.type else ""
    text += f" {printed(node.weight)}" if node.weight else ""
    text += f" in {printed(node.range)}" if node.range else ""
    text += f" for {node.loop.row.text} in {node.loop.dataset.text}" if node.loop else ""
    text += f" = {printed(node.value)}" if node.assigns else ""
    text += f" {printed(node.claim)}" if node.claim else ""
    text += f" because {printed(node.reason)}" if node.reason else ""
    if node.body is not None:
        text += " {\n" + "".join(f"{printed(i)}\n" for i in node.body) + "}"
    return text


def listed(nodes):
    return ", ".join(printed(n) for n in nodes)


def escaped(text):
    for plain_char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("$", "\\$")):
        text = text.replace(plain_char, escape)
    return text


def bare(node):
    """A node as nested tuples, without its places."""
    if isinstance(node, tuple):
        return tuple(bare(n) for n in node)
    if not dataclasses.is_dataclass(node):
        return node
    fields = [f.name for f in dataclasses.fields(node) if f.name not in ("span", "source")]
    return (type(node).__name__, *(bare(getattr(node, f)) for f in fields))


def nested(node, outer):
    """Every node lies within the one around it."""
    if isinstance(node, tuple):
        for one in node:
            nested(one, outer)
    elif dataclasses.is_dataclass(node) and not isinstance(node, Span | Source):
        assert outer.start <= node.span.start <= node.span.end <= outer.end
        for field in dataclasses.fields(node):
            nested(getattr(node, field.name), node.span)


@QUICK
@given(bodies)
def test_a_printed_tree_is_read_back(items):
    text = "".join(f"{printed(i)}\n" for i in items)
    file, found = parse(Source("t.task", text))
    assert found == (), (text, found)
    assert bare(file.items) == bare(items)
    nested(file.items, Span(file.source, 0, len(text)))


@QUICK
@given(bodies, st.data())
def test_a_damaged_tree_never_crashes(items, data):
    text = "".join(f"{printed(i)}\n" for i in items)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 5))
    total(text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[at + cut :])
