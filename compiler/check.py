"""The compiler's front door: a path goes in, diagnostics and (without errors) a plan come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from guerdon.compiler.build import Build, Weights
from guerdon.compiler.datasets import read_dataset
from guerdon.compiler.instances import Instances
from guerdon.compiler.lockfile import Lock, read_lock
from guerdon.compiler.pack import Pack, PackError, find_main
from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.codec import plan_to_json, to_json
from guerdon.compiler.plan.schema import InstancePlan, Plan, TaskPlan
from guerdon.compiler.program import Loader, Program
from guerdon.compiler.tasks import Task
from guerdon.compiler.verifiers import Verifiers
from guerdon.dsl.diagnostic import Diagnostic, Severity, error, note
from guerdon.dsl.source import Span

SAME_PLACE = 3
"""Findings of one code at one place beyond this many (one a row, say) are counted, not shown."""


@dataclass(frozen=True)
class Compiled:
    """What compiling gave: findings in reading order; the plan, its bytes and assets if there was no error."""

    diagnostics: tuple[Diagnostic, ...]
    plan: Plan | None = None
    instances: tuple[InstancePlan, ...] = ()
    plan_bytes: bytes = b""
    assets: Mapping[str, Path | bytes] | None = None
    bases: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    @property
    def errors(self) -> int:
        return sum(d.severity is Severity.ERROR for d in self.diagnostics)

    @property
    def warnings(self) -> int:
        return sum(d.severity is Severity.WARNING for d in self.diagnostics)


def compile_pack(path: Path, weights: Weights | None = None) -> Compiled:
    """Compile a pack: a pure function of its files and lock (and of weights put in the place of written ones)."""
    try:
        main = find_main(path)
    except PackError as problem:
        return Compiled((error("T008", str(problem), None, help=problem.remedy),))
    pack = Pack(main.parent)
    loader = Loader(pack, path if path.is_dir() else path.parent)
    program = loader.program(main)
    found = loader.found
    if program is None:
        return Compiled(_tidy(found))
    build = _build(program, weights or {}, found)
    compiled = [(t, t.plan()) for t in _tasks(program, build)]
    instances = tuple(i for task, plan in compiled for i in Instances(task).instances(plan.reward if plan else None))
    plans = {t.name: p for t, p in compiled if p is not None}
    found += _notes(program, compiled, build)
    if not compiled and not any(d.severity is Severity.ERROR for d in found):
        found.append(error("T105", "the file declares no task", Span(program.main.source, 0, 0),
                           help="add `task name { … }`"))
    if any(d.severity is Severity.ERROR for d in found):
        return Compiled(_tidy(found))
    return _assembled(main, build, plans, instances, found)


def _build(program: Program, weights: Weights, found: list[Diagnostic]) -> Build:
    verifiers = Verifiers(program, found)
    datasets = {}
    for declared in program.main.names.values():
        if declared.kind == "verifier":
            verifiers.get(declared)  # unused ones are checked as well
        elif declared.kind == "dataset":
            dataset = read_dataset(declared, program.pack, found)
            if dataset is not None:
                datasets[declared.name] = dataset
    return Build(program, verifiers, datasets, read_lock(program.pack.root, found), weights, found)


def _tasks(program: Program, build: Build) -> list[Task]:
    return [Task(d, build) for d in program.main.names.values() if d.kind == "task"]


def _notes(program: Program, compiled: Iterable[tuple[Task, TaskPlan | None]], build: Build) -> Iterator[Diagnostic]:
    for task, plan in compiled:
        if plan is not None and plan.not_yet:
            yield note("T701", f"the task `{task.name}` compiles, but this version does not run "
                       + ", ".join(plan.not_yet), task.item.word.span, help="`guerdon run` refuses the task")
    if build.unlocked:
        yield note("T702", "not locked yet: " + "; ".join(sorted(build.unlocked)),
                   Span(program.main.source, 0, 0), help="run `guerdon lock` on the pack and commit guerdon.lock")


def _assembled(main: Path, build: Build, plans: Mapping[str, TaskPlan], instances: tuple[InstancePlan, ...],
               found: list[Diagnostic]) -> Compiled:
    pack = build.program.pack
    rows = b"".join(dumps(to_json(i)) for i in instances)
    sidecar = digest(rows)
    needed = sorted(_addresses(instances, build))
    used = {i.environment for i in instances}
    plan = Plan(
        pack=main.parent.resolve().name if main.stem == "pack" else main.stem, edition=1,
        images={n: build.images[n] for n in sorted({e.image for k, e in build.environments.items() if k in used})},
        environments={k: e for k, e in sorted(build.environments.items()) if k in used},
        tasks=plans, instances=sidecar, assets=tuple(needed), unlocked=tuple(sorted(build.unlocked)),
    )
    assets: dict[str, Path | bytes] = {a: pack.assets[a] for a in _closure(needed, pack)}
    return Compiled(_tidy(found), plan, instances, dumps(plan_to_json(plan)), {**assets, sidecar: rows},
                    build.bases, build.lock)


def _addresses(instances: Iterable[InstancePlan], build: Build) -> set[str]:
    found: set[str] = set()
    for instance in instances:
        found |= {a for _, a in instance.files}
        for verifier in instance.verify:
            found |= {a for _, a in verifier.hidden}
            found |= {v for v in verifier.settings.values() if isinstance(v, str) and _is_address(v, build)}
        for step in (*instance.solution, *(s for e in instance.exploits for s in e.steps)):
            if step.content is not None and isinstance(step.content.get("asset"), str):
                found.add(str(step.content["asset"]))
    return found | {a for e in build.environments.values() for _, a in e.files}


def _is_address(text: str, build: Build) -> bool:
    return text.removeprefix("tree-") in build.program.pack.assets


def _closure(addresses: Iterable[str], pack: Pack) -> Iterator[str]:
    """Addresses of all blobs: files, manifests, and the files that manifests list."""
    import json

    for address in addresses:
        blob = address.removeprefix("tree-")
        yield blob
        if address != blob:
            manifest = pack.assets[blob]
            assert isinstance(manifest, bytes)
            yield from (entry[2] for entry in json.loads(manifest))


def _tidy(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Each finding once, in reading order; many of one code at one place are cut short and counted."""
    kept: list[Diagnostic] = []
    counts: dict[tuple[str, str, int], int] = {}
    for one in sorted(dict.fromkeys(found), key=Diagnostic.sort_key):
        name, start = (one.span.source.name, one.span.start) if one.span else ("", -1)
        place = (one.code, name, start)
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= SAME_PLACE:
            kept.append(one)
    return tuple(_counted(d, counts) for d in kept)


def _counted(one: Diagnostic, counts: dict[tuple[str, str, int], int]) -> Diagnostic:
    from dataclasses import replace

    name, start = (one.span.source.name, one.span.start) if one.span else ("", -1)
    more = counts[one.code, name, start] - SAME_PLACE
    return replace(one, notes=(*one.notes, f"and {more} more like this for other rows")) if more > 0 else one
