"""Environments: image, working directory, files and limits, resolved for a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import PurePosixPath

from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.codec import to_json
from guerdon.compiler.plan.schema import EnvironmentPlan, ImagePlan
from guerdon.compiler.program import Declaration
from guerdon.compiler.static import Static, asset_of
from guerdon.compiler.types import Type
from guerdon.compiler.values import Val, coerce, text_of
from guerdon.compiler.verifiers import bind_params, read_params
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import error
from guerdon.dsl.tree import Item

MIB = 1024 * 1024
DEFAULTS = {"cpu": Fraction(1), "memory": Fraction(512 * MIB), "disk": Fraction(64 * MIB), "pids": Fraction(128)}
LIMITS: Mapping[str, Type] = {
    "cpu": Type("real", Fraction(1, 100), Fraction(1024)),
    "memory": Type("size", Fraction(16 * MIB), Fraction(1 << 44)),
    "disk": Type("size", Fraction(MIB), Fraction(1 << 44)),
    "pids": Type("int", Fraction(8), Fraction(1 << 20)),
}
DEFAULT_WORKDIR = "/workspace"


def resolve_environment(declared: Declaration, args: tuple[tree.Arg, ...], at: tree.Expr, static: Static,
                        images: dict[str, ImagePlan]) -> tuple[str, EnvironmentPlan] | None:
    """An environment with its arguments, and its key in the plan; adds its image to `images`."""
    item = declared.item
    params = read_params(item.args or (), [])
    bound = bind_params(params, args, at, f"the environment `{declared.name}`", static)
    if any(v.broken for v in bound.values()) or len(bound) < len(params):
        return None
    inner = Static(static.pack, declared.scope, bound, static.found)
    image = _image(item, inner, images)
    files = resolve_files(item.find("files"), inner)
    workdir = _workdir(item, inner)
    limits = {k: _limit(item, k, inner) for k in DEFAULTS}
    if image is None or workdir is None:
        return None
    plan = EnvironmentPlan(
        image=image, workdir=workdir, files=files, scratch=scratch_for(workdir, [p for p, _ in files]),
        cpu_milli=int(limits["cpu"] * 1000), memory=int(limits["memory"]), disk=int(limits["disk"]),
        pids=int(limits["pids"]), network=_network(item, inner), env=_variables(item, inner),
    )
    return declared.name, plan


def environment_key(name: str, plan: EnvironmentPlan, taken: Mapping[str, EnvironmentPlan]) -> str:
    """The plan's key of an environment: its name, with a digest behind it where a name has several forms."""
    if taken.get(name, plan) == plan:
        return name
    return f"{name}-{digest(dumps(to_json(plan)))[7:15]}"


def with_scratch(plan: EnvironmentPlan, paths: list[str]) -> EnvironmentPlan:
    """The environment with room to write for further paths."""
    return replace(plan, scratch=scratch_for(plan.workdir, [*plan.scratch, *paths], whole=plan.scratch))


def scratch_for(workdir: str, paths: list[str], whole: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Folders, besides the working directory and /tmp, that must be writable for these paths to be written."""
    folders = {*whole}
    for path in paths:
        pure = PurePosixPath(path)
        if not any(root == pure or root in pure.parents for root in map(PurePosixPath, (workdir, "/tmp", *whole))):
            folders.add(str(pure if not pure.suffix else pure.parent))
    kept = [f for f in sorted(folders) if not any(PurePosixPath(o) in PurePosixPath(f).parents for o in folders)]
    return tuple(f for f in kept if f != "/")


def _image(item: Item, static: Static, images: dict[str, ImagePlan]) -> str | None:
    written = item.find("image")
    if written is None or written.value is None:
        return None
    value = static.value(written.value, Type("image"))
    if value.broken:
        return None
    if isinstance(value.data, Declaration):
        return _declared_image(value.data, written, static, images)
    if not isinstance(value.data, str) or value.type.name not in ("string", "image"):
        static.fail("T201", "an image is a declared image or a reference with a digest", written.value,
                    "name an imported image, or write \"registry/name@sha256:…\"")
        return None
    if not _is_pinned(value.data, written.value, static):
        return None
    images[value.data] = ImagePlan("registry", (), value.data, value.data.rpartition("@")[2])
    return value.data


def _declared_image(declared: Declaration, at: Item, static: Static, images: dict[str, ImagePlan]) -> str | None:
    if declared.kind != "image":
        static.found.append(error("T105", f"`{declared.name}` is a {declared.kind}, not an image", at.span,
                                  help="name an image"))
        return None
    call = declared.item.value
    name = call.name if isinstance(call, tree.Ref) else call.fn.text if isinstance(call, tree.Call) else ""
    if name == "debian":
        packages = declared.item.find("packages")
        wanted = Type("list", element=Type("string"))
        inner = Static(static.pack, declared.scope, {}, static.found)
        value = inner.value(packages.value) if packages is not None and packages.value is not None else None
        checked = coerce(value, wanted, declared.item.span, "`packages`", static.found) if value is not None else None
        listed = tuple(sorted({str(v.data) for v in checked.data})) if checked and not checked.broken else ()
        return _keep_image(declared.name, ImagePlan("debian", listed, "", None), images)
    if name in ("registry", "archive") and isinstance(call, tree.Call) and len(call.args) == 1 and call.args[0].value:
        inner = Static(static.pack, declared.scope, {}, static.found)
        expr = call.args[0].value
        reference = coerce(inner.value(expr), Type("string"), expr.span, f"the reference of `{name}`", static.found)
        if reference.broken or (name == "registry" and not _is_pinned(reference.data, expr, inner)):
            return None
        pinned = reference.data.rpartition("@")[2] if name == "registry" else None
        return _keep_image(declared.name, ImagePlan(name, (), reference.data, pinned), images)
    static.found.append(error("T106", "an image is `debian { packages = [\"…\"] }`, `registry(\"name@sha256:…\")` or "
                              "`archive(\"file.tar\")`", declared.item.span, help="write one of these"))
    return None


def _is_pinned(reference: str, at: tree.Expr, static: Static) -> bool:
    if re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", reference):
        return True
    static.fail("T405", f"the image `{reference}` is not pinned: a tag can change under you", at,
                "add the digest: `name@sha256:…` with its 64 hexadecimal digits")
    return False


def _keep_image(name: str, plan: ImagePlan, images: dict[str, ImagePlan]) -> str:
    """The plan's key of an image: its name, with a digest behind it where two files give one name to two images."""
    key = name if images.get(name, plan) == plan else f"{name}-{digest(dumps(to_json(plan)))[7:15]}"
    images[key] = plan
    return key


def resolve_files(block: Item | None, static: Static) -> tuple[tuple[str, str], ...]:
    """The `files { "/path" = … }` of an environment or a task: (absolute path, asset), secrets refused."""
    result: list[tuple[str, str]] = []
    for entry in (block.body or ()) if block else ():
        assert entry.label is not None and entry.value is not None
        where = static.value(entry.label)
        what = static.value(entry.value, Type("path"))
        if where.broken or what.broken:
            continue
        if where.secret or what.secret:
            static.fail("T402", "a secret value would lie in the agent's sandbox", entry.value,
                        "give secret files to a verifier's `hidden`, or drop the label `secret`")
            continue
        address = asset_of(static, what, entry.value)
        if address is not None and absolute(str(where.data), entry.label, static):
            result.append((str(where.data), address))
    return tuple(result)


def absolute(path: str, expr: tree.Expr, static: Static) -> bool:
    """Whether a path is plain and absolute; reports one that is not."""
    pure = PurePosixPath(path)
    forbidden = ("/proc", "/sys", "/dev", "/grader")
    if pure.is_absolute() and ".." not in pure.parts and str(pure) == path and path != "/" and not any(
            PurePosixPath(f) == pure or PurePosixPath(f) in pure.parents for f in forbidden):
        return True
    static.fail("T206", f"`{path}` is no path that a task may use", expr,
                "write a plain absolute path outside of /proc, /sys, /dev and /grader")
    return False


def _workdir(item: Item, static: Static) -> str | None:
    written = item.find("workdir")
    if written is None or written.value is None:
        return DEFAULT_WORKDIR
    value = coerce(static.value(written.value), Type("string"), written.value.span, "`workdir`", static.found)
    if value.secret:
        static.fail("T402", "a secret value would be the name of the agent's folder", written.value,
                    "name the folder by something that is not `secret`")
        return None
    return None if value.broken or not absolute(str(value.data), written.value, static) else str(value.data)


def _limit(item: Item, key: str, static: Static) -> Fraction:
    block = item.find("resources")
    written = block.find(key) if block else None
    if written is None or written.value is None:
        return DEFAULTS[key]
    value: Val = coerce(static.value(written.value), LIMITS[key], written.value.span, f"`{key}`", static.found)
    return DEFAULTS[key] if value.broken else Fraction(value.data)


def _network(item: Item, static: Static) -> str:
    written = item.find("network")
    if written is not None and not (isinstance(written.value, tree.Ref) and written.value.name == "none"):
        static.found.append(error("T406", "this version gives sandboxes no network", written.span,
                                  help="write `network = none`"))
    return "none"


def _variables(item: Item, static: Static) -> tuple[tuple[str, str], ...]:
    block = item.find("env")
    result = []
    for entry in (block.body or ()) if block else ():
        assert entry.value is not None
        value = static.value(entry.value)
        text = text_of(value)
        if value.secret:
            static.fail("T402", "a secret value would be an environment variable of the agent", entry.value,
                        "keep secrets out of the environment")
        elif not value.broken and text is None:
            static.fail("T201", f"a {value.type.name} is no environment variable", entry.value,
                        "give a string, a number or true/false")
        elif text is not None:
            result.append((entry.word.text, text))
    return tuple(sorted(result))
