"""The trusted parent of a verification: reads its job from standard input, writes one line with its nonce.

Run by `main.py` as uid 0 of the sandbox. The job is one JSON object: `nonce`, `tests`
(folder of the hidden tests), `roots` (the candidate's import roots), `workdir`, `uid`, `gid`, `processes`, `memory`,
`call_wall` and `wall` in seconds. The line is `guerdon-verdict NONCE {…}`; nothing else reaches standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from . import drop, guard
from .channel import Channel
from .modules import Imports
from .remote import Remote

HERE = Path(__file__).resolve().parent
HARNESS = HERE.parent


def main() -> None:
    """Do the job."""
    job = json.loads(sys.stdin.buffer.read())
    # The verdict's descriptor is kept apart: nothing that prints can reach it.
    verdict = os.dup(1)
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), number)
    HARNESS.parent.chmod(0o700)
    sys.dont_write_bytecode = True
    try:
        report = _run(job)
    except BaseException:  # noqa: BLE001 - whatever breaks here is ours to report, never a score
        report = {"broken": traceback.format_exc()[-2000:]}
    line = f"guerdon-verdict {job['nonce']} {json.dumps(report)}\n".encode()
    while line:
        line = line[os.write(verdict, line) :]
    os._exit(0)


def _run(job: dict[str, Any]) -> dict[str, Any]:
    end = time.monotonic() + job["wall"]
    trusted = [*sys.path, str(HARNESS.parent), job["tests"]]
    os.environ.clear()
    os.environ.update(drop.CLEAN_ENV)
    os.chdir(job["workdir"])
    rights = drop.Rights(job["uid"], job["gid"], job["processes"], job["memory"])
    channel = Channel(
        _child_source(), rights, roots=_roots(job), workdir=job["workdir"], call_wall=job["call_wall"], end=end
    )
    channel.start()  # before pytest is imported: the two interpreters start side by side
    from .session import Recorder, TimeUp, run

    imports = Imports(Remote(channel), trusted)
    imports.install()
    recorder = Recorder(channel.faults, rights, end)
    temporary = Path("/tmp", f"verify-{os.getpid()}")
    guard.install(rights, trusted, imports.is_trusted, channel.faults)
    _alarm(end, rights.uid, TimeUp)
    try:
        run(job["tests"], str(temporary), recorder)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        channel.stop()
        shutil.rmtree(temporary, ignore_errors=True)
    return {"tests": recorder.outcomes, "reasons": recorder.reasons, "collected": len(recorder.collected)}


def _child_source() -> str:
    codec, child = ((HERE / f"{n}.py").read_text("utf-8") for n in ("codec", "child"))
    return codec + child.replace("from __future__ import annotations", "")


def _roots(job: dict[str, Any]) -> list[str]:
    if job["roots"] is not None:
        return list(job["roots"])
    return [r for r in (job["workdir"], job["workdir"] + "/src") if Path(r).is_dir()]


def _alarm(end: float, uid: int, error: type[BaseException]) -> None:
    def ring(number: int, frame: Any) -> None:
        drop.end_all(uid)
        raise error("the verification's time is over")

    # Again and again: a test may hide the first one.
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 0.01) + 0.5, 0.5)
