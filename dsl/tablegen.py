"""Makes `tables.py` from `grammar.lark`: `python -m guerdon.dsl.tablegen`.

Parsing needs only the tables, so `check` starts without importing lark (55 ms) or building the automaton
(300 ms), and no pickled cache is ever read. A test holds `tables.py` equal to what this module makes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GRAMMAR = HERE / "grammar.lark"
TABLES = HERE / "tables.py"

Rules = list[tuple[str, int, str, tuple[int, ...]]]
States = list[dict[str, int]]


def build(grammar: str, *, strict: bool = True) -> tuple[Rules, States, int]:
    """The automaton of a grammar: rules, states, end state.

    A rule is (left side, length of the right side, action, places of absent optional parts). A state maps a
    symbol to a state (>= 0: shift or goto) or to a rule (-1 - index: reduce). State 0 is the start. Raises
    lark's GrammarError where the grammar has a conflict.
    """
    lark = _lark(grammar, strict)
    table = lark.parser.parser._parse_table
    rules = sorted(set(lark.rules), key=lambda r: (r.origin.name, r.order, str(r)))
    index = {rule: i for i, rule in enumerate(rules)}
    numbers = _numbered(table)
    states: States = [{} for _ in numbers]
    for old, new in numbers.items():
        for symbol, (action, target) in sorted(table.states[old].items()):
            states[new][symbol] = numbers[target] if action.name == "Shift" else -1 - index[target]
    return [_rule(r) for r in rules], states, numbers[table.end_states["start"]]


def _lark(grammar: str, strict: bool) -> Any:
    from lark import Lark
    from lark.lexer import Lexer

    class NoLexer(Lexer):  # type: ignore[misc]
        """Terminals are declared; the real lexer is dsl/lexer.py."""

        def __init__(self, _conf: object) -> None: ...

        def lex(self, _state: object, _parser: object) -> Any:
            raise NotImplementedError

    return Lark(grammar, parser="lalr", lexer=NoLexer, strict=strict, maybe_placeholders=True)


def _numbered(table: Any) -> dict[Any, int]:
    """Numbers by a breadth-first walk: lark's own depend on the hash seed."""
    numbers = {table.start_states["start"]: 0}
    queue = deque(numbers)
    while queue:
        for _, (action, target) in sorted(table.states[queue.popleft()].items(), key=lambda e: e[0]):
            if action.name == "Shift" and target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
    return numbers


def _rule(rule: Any) -> tuple[str, int, str, tuple[int, ...]]:
    passes_through = rule.options.expand1 and len(rule.expansion) == 1
    action = rule.alias or ("" if passes_through else str(rule.origin.name))
    absent = tuple(i for i, is_absent in enumerate(rule.options.empty_indices or ()) if is_absent)
    return (str(rule.origin.name), len(rule.expansion), action, absent)


def render(grammar: str) -> str:
    """The text of `tables.py`."""
    rules, states, end = build(grammar)
    digest = hashlib.sha256(grammar.encode()).hexdigest()
    lines = [
        '"""LALR(1) tables, made from grammar.lark by `python -m guerdon.dsl.tablegen`: do not edit."""',
        "# ruff: noqa",
        "",
        f'GRAMMAR = "{digest}"',
        f"END = {end}",
        "RULES: list[tuple[str, int, str, tuple[int, ...]]] = [",
        *(f"    {_quoted(rule)}," for rule in rules),
        "]",
        "STATES: list[dict[str, int]] = [",
        *(f"    {_quoted(state)}," for state in states),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    return repr(value).replace("'", '"').replace(": ", ":").replace(", ", ",")


def main() -> None:
    """Write `tables.py`."""
    TABLES.write_text(render(GRAMMAR.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
