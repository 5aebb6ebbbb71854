"""A verification sandbox from the outside: filled with one write, asked with one run, removed in any case."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.sandbox import ExecResult, PutFile, Sandbox, SandboxFault
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify.placement import GRADER, place
from guerdon.runtime.verify.settle import Unclear

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked up: folders of the image, which no artefact reaches."""
CLEAN = ("/usr/bin/env", "-i", f"PATH={PATH}", "HOME=/tmp", "LANG=C.UTF-8")
GRACE = 10.0
"""Seconds that the trusted parent has beyond its own limit before the sandbox's limit ends it."""
OUTPUT = 8 * 1024 * 1024
_INSIDE = Path(__file__).parent / "inside"


@cache
def programs() -> tuple[PutFile, ...]:
    """The trusted programs as files below `/grader/harness`."""
    modules = sorted(p for p in _INSIDE.glob("*.py") if p.name != "main.py")
    return (
        PutFile(f"{GRADER}/harness/main.py", (_INSIDE / "main.py").read_bytes(), 0o600),
        *(PutFile(f"{GRADER}/harness/guerdon_inside/{p.name}", p.read_bytes(), 0o600) for p in modules),
    )


@asynccontextmanager
async def filled(given: VerifyInput, more: Sequence[PutFile] = ()) -> AsyncIterator[Sandbox]:
    """A fresh sandbox with environment, artefacts, hidden files and `more` in it.

    Raises SandboxFault where none can be made, Unclear where the files do not fit.
    """
    sandbox = await given.open_sandbox()
    try:
        hidden = [PutFile(f.path, f.data, f.mode & 0o700) for f in given.hidden]
        files = [*place(given.environment, given.artefacts, given.plan.collect), *hidden, *more]
        try:
            await sandbox.put(files, root=True, read_only=True)
        except OSError as error:
            raise Unclear(f"the files cannot be written into the verification sandbox: {error}") from error
        yield sandbox
    finally:
        await sandbox.remove()


async def ran(sandbox: Sandbox, argv: Sequence[str], **options: Any) -> ExecResult:
    """Run a program; a sandbox that is lost while candidate code runs is Unclear, not a fault."""
    try:
        return await sandbox.run(argv, **options)
    except SandboxFault as fault:
        raise Unclear(f"the sandbox was lost during the verification: {fault.message}") from fault


async def ask_parent(sandbox: Sandbox, job: Mapping[str, Any], wall: float) -> dict[str, Any]:
    """Start the trusted parent with a job and a fresh nonce; its report. Raises Unclear when it gives none."""
    nonce = secrets.token_hex(16)
    stdin = json.dumps({**job, "nonce": nonce}).encode()
    result = await ran(
        sandbox, (*CLEAN, "python3", "-I", "-B", f"{GRADER}/harness/main.py"), stdin=stdin, wall=wall + GRACE,
        output=OUTPUT, root=True, cwd="/",
    )  # fmt: skip
    report = parse(result.stdout, nonce)
    if report is None:
        how = "was out of time" if result.timed_out else f"ended with exit code {result.exit_code}"
        raise Unclear(f"the trusted parent {how} without a verdict", result.stderr.decode("utf-8", "replace"))
    if "broken" in report:
        raise Unclear("the trusted parent broke", str(report["broken"]))
    return report


def parse(stdout: bytes, nonce: str) -> dict[str, Any] | None:
    """The one report that carries the nonce, or None."""
    head = f"guerdon-verdict {nonce} ".encode()
    lines = [line[len(head) :] for line in stdout.split(b"\n") if line.startswith(head)]
    if len(lines) != 1:
        return None
    try:
        report = json.loads(lines[0])
    except ValueError:
        return None
    return report if isinstance(report, dict) else None
