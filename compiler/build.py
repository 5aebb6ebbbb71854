"""What compiling the tasks of one program shares, and how a task binds verifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from guerdon.compiler.datasets import Dataset
from guerdon.compiler.leaks import Leaks
from guerdon.compiler.lockfile import Lock
from guerdon.compiler.plan.schema import EnvironmentPlan, ImagePlan, StepPlan
from guerdon.compiler.program import Program
from guerdon.compiler.verifiers import Verifier, Verifiers
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Diagnostic
from guerdon.dsl.tree import Name

Given = tuple[EnvironmentPlan | None, tuple[tuple[str, str], ...], tuple[StepPlan, ...]]
"""What a row's verifiers see besides the artefacts: environment, files and (for the lock's basis) solution."""

Weights = Mapping[str, Mapping[str, Fraction]]
"""reward -> weight -> value, in the place of what the file says."""


@dataclass(frozen=True)
class Binding:
    """`name = verifier(args)` in a task's `verify`."""

    name: str
    verifier: Verifier
    args: tuple[tree.Arg, ...]
    at: tree.Expr


@dataclass
class Build:
    """What compiling the tasks of one program shares."""

    program: Program
    verifiers: Verifiers
    datasets: Mapping[str, Dataset]
    lock: Lock
    weights: Weights
    found: list[Diagnostic]
    images: dict[str, ImagePlan] = field(default_factory=dict)
    environments: dict[str, EnvironmentPlan] = field(default_factory=dict)
    unlocked: set[str] = field(default_factory=set)
    leaks: Leaks = field(init=False)
    bases: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(task, row, verifier) -> what a lock entry for it must be based on."""

    def __post_init__(self) -> None:
        self.leaks = Leaks(self.program.pack)


def called(expr: tree.Expr) -> tuple[Name | None, tuple[tree.Arg, ...]]:
    """`name` or `name(args)`."""
    if isinstance(expr, tree.Ref):
        return Name(expr.span, expr.name), ()
    if isinstance(expr, tree.Call):
        return expr.fn, expr.args
    return None, ()
