"""Every shape of a statement, a type, a claim and an expression, with its spans."""

import pytest

from guerdon.dsl import tree
from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source


def one(text):
    file, found = parse(Source("t.task", text))
    assert found == ()
    (item,) = file.items
    return item


def parts(item):
    """The names of the parts that are present."""
    names = "name label args type weight range loop value claim reason body".split()
    return {n for n in names if getattr(item, n) is not None} | ({"assigns"} if item.assigns else set())


@pytest.mark.parametrize(
    ("text", "word", "present"),
    [
        ("edition 1", "edition", "value"),
        ('say "x"', "say", "value"),
        ('run ["a", "b"]', "run", "value"),
        ('import "std/task" (a, b)', "import", "label args"),
        ("key = value", "key", "value assigns"),
        ("key = kind(1) { a = 1 }", "key", "value assigns body"),
        ('"/path" = dir("x")', "/path", "label value assigns"),
        ('"quoted key": string', "quoted key", "label type"),
        ("key { a = 1 }", "key", "body"),
        ("key { }", "key", "body"),
        ("split(seed = 7) { train = 1 }", "split", "args body"),
        ('put("/p") { from = x }', "put", "args body"),
        ("field: list[string] secret", "field", "type"),
        ("field: int in 1..5 = 3", "field", "type value assigns"),
        ("verifier n(p: path, q: int = 2) = kind(a) { x = 1 }", "verifier", "name args value assigns body"),
        ("environment n { }", "environment", "name body"),
        ("image slim = debian { packages = [] }", "image", "name value assigns body"),
        ("tool bash(command: string) { }", "tool", "name args body"),
        ("call submit()", "call", "name args"),
        ("network none", "network", "name"),
        ("forbid n = changed([1])", "forbid", "name value assigns"),
        ("term n 0.5 = x", "term", "name weight value assigns"),
        ("term n -0.5 in -1..0 = x", "term", "name weight range value assigns"),
        ("term n hint = x", "term", "name weight value assigns"),
        ("weight n: real in 0..0.05 = anneal(0.05, 0, over = 1000)", "weight", "name type value assigns"),
        ("task n for row in rows { }", "task", "name loop body"),
        ('exploit "what" { }', "exploit", "label body"),
        ("ensure a outranks b by 1", "ensure", "claim"),
        ("fact a implies b == 1", "fact", "claim"),
        ('allow T311 because "why"', "allow", "name reason"),
    ],
)
def test_statement(text, word, present):
    item = one(text)
    assert item.word.text == word
    assert parts(item) == set(present.split())
    assert item.span.text == text


def test_declarations_keep_their_parts_apart():
    item = one("verifier n(p: path, q: int = 2, 3) = kind(a = 1) { x = 1 }")
    p, q, three = item.args
    assert (p.name.text, p.type.name.text, p.value) == ("p", "path", None)
    assert (q.type.name.text, q.value.value) == ("int", 2)
    assert (three.name, three.type, three.value.value) == (None, None, 3)
    assert item.value.args[0].name.text == "a" and item.value.span.text == "kind(a = 1)"


def test_type_with_everything():
    found = one('x: list[one_of("a", "b")] in 1..2 secret up').type
    assert (found.name.text, found.range.low.value, found.range.high.value) == ("list", 1, 2)
    assert [a.value.literal for a in found.element.args] == ["a", "b"]
    assert [m.text for m in found.modifiers] == ["secret", "up"]
    assert found.span.text == 'list[one_of("a", "b")] in 1..2 secret up'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a outranks not a", tree.Outranks),
        ("total strictly falls with x.y", tree.Monotone),
        ("total in -1..limit.turns", tree.InRange),
        ("idle <= 0", tree.Binary),
        ("passed", tree.Ref),
    ],
)
def test_claim(text, kind):
    claim = one(f"ensure {text}").claim
    assert type(claim) is kind and claim.span.text == text


def shown(expr):
    """An expression with all its brackets."""
    match expr:
        case tree.Binary():
            return f"({shown(expr.left)} {expr.op} {shown(expr.right)})"
        case tree.Unary():
            return f"({expr.op} {shown(expr.operand)})"
        case tree.If():
            return f"(if {shown(expr.condition)} {shown(expr.then)} {shown(expr.otherwise)})"
        case tree.Attr():
            return f"{shown(expr.base)}.{expr.name.text}"
        case _:
            return expr.span.text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b / c", "((a / b) / c)"),
        ("-a * b", "((- a) * b)"),
        ("- -a", "(- (- a))"),
        ("not a and b or c", "(((not a) and b) or c)"),
        ("a implies b implies c", "(a implies (b implies c))"),
        ("not a == b", "(not (a == b))"),
        ("a + 1 >= b", "((a + 1) >= b)"),
        ("if a then b else if c then d else e", "(if a b (if c d e))"),
        ("(a + b) * c", "((a + b) * c)"),
        ("f(x).ok and row.by", "(f(x).ok and row.by)"),
        ("a.b.c", "a.b.c"),
    ],
)
def test_precedence(text, meaning):
    value = one(f"x = {text}").value
    assert shown(value) == meaning and value.span.text == text


def test_brackets_belong_to_the_span():
    assert one("x = (a + b) * c").value.left.span.text == "(a + b)"
