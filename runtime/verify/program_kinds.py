"""Kinds `exec` and `stdout`: a program runs in the verification sandbox; its exit code and output are data."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from fractions import Fraction

from guerdon.compiler.plan.canonical import Json
from guerdon.compiler.plan.expr import Value
from guerdon.runtime.contracts.sandbox import ExecResult, PutFile
from guerdon.runtime.contracts.trajectory import Outcome, Verdict
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify import harness
from guerdon.runtime.verify.compare import COMPARES
from guerdon.runtime.verify.placement import GRADER, collected
from guerdon.runtime.verify.settle import failed, invalid, settle

LAUNCHER = f"{GRADER}/candidate"
_LAUNCHER = f"""#!/bin/sh
# Runs the candidate's program as uid 1000, with nothing of the check's own environment or descriptors.
PATH={harness.PATH}
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
exec env -i PATH="$PATH" HOME=/tmp LANG=C.UTF-8 \\
  setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --inh-caps=-all -- "$@"
"""
_LOST: dict[str, Value] = {"passed": False, "exit_code": Fraction(-1)}


class Exec:
    """Settings: `argv`, `exit` (0; null: any), `stdin`.

    Signals: `passed`, `exit_code` in -255..255 (-9: ended by the limit).
    With hidden files the program is the pack's own check and runs as uid 0; it starts candidate programs through
    `$GUERDON_CANDIDATE`. Without, it runs as uid 1000.
    """

    async def run(self, given: VerifyInput) -> Verdict:
        """Verify one episode. Raises SandboxFault."""
        argv = _argv(given.plan.settings.get("argv"))
        wrong = "`argv` must be a list of texts" if argv is None else _shadowed(argv[0], given)
        if argv is None or wrong:
            return invalid(f"verifier {given.plan.name}: {wrong}")
        command = argv
        if given.artefacts.problem is not None:
            return failed(_LOST, f"the artefacts cannot be verified: {given.artefacts.problem}")
        wanted = given.plan.settings.get("exit", 0)

        async def attempt(now: VerifyInput) -> Verdict:
            result = await _run(now, command, trusted=bool(now.hidden))
            why = _mismatch(result, wanted)
            signals = _signals(result, not why)
            return Verdict(Outcome.PASS, signals) if not why else failed(signals, why, result.stdout + result.stderr)

        return await settle(given, attempt, _LOST)


class Stdout:
    """Settings: `run` (argv), `args`, `stdin`, `expected`, `compare`, `close`, `exit` (0; null: any).

    Signals: `passed`, `exit_code` in -255..255 (-9: ended by the limit). The expected text never enters the sandbox.
    """

    async def run(self, given: VerifyInput) -> Verdict:
        """Verify one episode. Raises SandboxFault."""
        settings = given.plan.settings
        argv, args = _argv(settings.get("run")), _argv(settings.get("args") or ["-"])
        compare, expected = COMPARES.get(str(settings.get("compare", "trimmed"))), settings.get("expected")
        if argv is None or args is None or compare is None or not isinstance(expected, str):
            return invalid(f"verifier {given.plan.name}: `run`, `args`, `expected` or `compare` is not what it must be")
        if given.artefacts.problem is not None:
            return failed(_LOST, f"the artefacts cannot be verified: {given.artefacts.problem}")
        command = [*argv, *(args if settings.get("args") else ())]
        close, same, text = Fraction(str(settings.get("close") or "0")), compare, expected

        async def attempt(now: VerifyInput) -> Verdict:
            result = await _run(now, command, trusted=False, output=4 * len(text.encode()) + 1_000_000)
            why = _mismatch(result, settings.get("exit", 0)) or ("it wrote too much" if result.truncated else "")
            if not why:
                try:
                    why = "" if same(result.stdout.decode(), text, close) else "the output is not the expected one"
                except UnicodeDecodeError:
                    why = "the output is not UTF-8"
            signals = _signals(result, not why)
            return Verdict(Outcome.PASS, signals) if not why else failed(signals, why, result.stdout + result.stderr)

        return await settle(given, attempt, _LOST)


async def _run(given: VerifyInput, argv: Sequence[str], trusted: bool, output: int = 1_000_000) -> ExecResult:
    stdin = given.plan.settings.get("stdin")
    environment = (f"GUERDON_CANDIDATE={LAUNCHER}",) if trusted else ()
    more = (PutFile(LAUNCHER, _LAUNCHER.encode(), 0o700),) if trusted else ()
    async with harness.filled(given, more) as sandbox:
        return await harness.ran(
            sandbox, (*harness.CLEAN, *environment, *argv), stdin=stdin.encode() if isinstance(stdin, str) else b"",
            wall=given.plan.wall_ms / 1000, output=output, root=trusted, cwd=given.workdir,
        )  # fmt: skip


def _argv(value: Json) -> list[str] | None:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(v, str) for v in value):
        return None
    return [str(v) for v in value]


def _shadowed(program: str, given: VerifyInput) -> str:
    """Why the agent decides what the check's program is, or nothing."""
    if "=" in program:
        return f"`{program}` is no program name"
    paths = (
        [posixpath.normpath(posixpath.join(given.workdir, program))] if "/" in program
        else [f"{folder}/{program}" for folder in harness.PATH.split(":")]
    )  # fmt: skip
    for path in paths:
        if collected(path, given.plan.collect):
            return f"the agent could replace its program {path}; name one that `collect` does not cover"
    return ""


def _code(result: ExecResult) -> int:
    code = -9 if result.exit_code is None else result.exit_code
    return max(-255, min(255, code))


def _signals(result: ExecResult, passed: bool) -> dict[str, Value]:
    return {"passed": passed, "exit_code": Fraction(_code(result))}


def _mismatch(result: ExecResult, wanted: Json) -> str:
    if result.timed_out or (wanted is not None and str(_code(result)) != str(wanted)):
        return "it took too long" if result.timed_out else f"it ended with exit code {_code(result)}, not {wanted}"
    return ""
