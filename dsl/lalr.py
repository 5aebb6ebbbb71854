"""The automaton: shifts and reduces by the tables, and can say what it would take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guerdon.dsl.tables import END, RULES, STATES
from guerdon.dsl.tokens import Token

Action = Callable[..., Any]


class Automaton:
    """One run of the tables; `states` and `values` are its stack: `values[i]` belongs to `states[i + 1]`."""

    def __init__(self, builder: object) -> None:
        self.states = [0]
        self.values: list[Any] = []
        self.result: Any = None
        self._actions: list[Action | None] = [getattr(builder, a) if a else None for _, _, a, _ in RULES]

    def feed(self, token: Token) -> bool:
        """Take one token, reducing first as needed; False (the token is not taken) if none fits."""
        kind, states = token.kind, self.states
        while True:
            action = STATES[states[-1]].get(kind)
            if action is None:
                return False
            if action >= 0:
                states.append(action)
                self.values.append(token)
                return True
            self._reduce(-1 - action)
            if kind == "$END" and states[-1] == END:
                self.result = self.values[-1]
                return True

    def _reduce(self, rule: int) -> None:
        left, size, _, absent = RULES[rule]
        action = self._actions[rule]
        if action is None:  # one child, passed on as it is: most reductions of an expression
            self.states[-1] = STATES[self.states[-2]][left]
            return
        children: list[Any] = []
        if size:
            children = self.values[-size:]
            del self.values[-size:]
            del self.states[-size:]
        for place in absent:
            children.insert(place, None)
        self.values.append(action(*children))
        self.states.append(STATES[self.states[-1]][left])

    def truncate(self, size: int) -> None:
        """Forget all but the lowest `size` states."""
        del self.states[size:]
        del self.values[max(0, size - 1) :]

    def accepts(self, kind: str) -> bool:
        """Whether a token of a kind would be taken now."""
        # Only the states are played through: no action runs.
        states = self.states[:]
        while True:
            action = STATES[states[-1]].get(kind)
            if action is None:
                return False
            if action >= 0:
                return True
            left, size, _, _ = RULES[-1 - action]
            if size:
                del states[-size:]
            states.append(STATES[states[-1]][left])
            if kind == "$END" and states[-1] == END:
                return True

    def expected(self) -> frozenset[str]:
        """Every terminal that would be taken now."""
        return frozenset(k for k in STATES[self.states[-1]] if not k[0].islower() and self.accepts(k))
