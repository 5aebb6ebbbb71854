"""How Hydra is let loose on the jobs of a command: one after the other here, or side by side in other processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig
from rich.console import Console

from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.loop.board import FAILED, HALTED, STOP, Board, at_a_job, began
from guerdon.runtime.loop.closing import close
from guerdon.runtime.loop.command import Command, Stage
from guerdon.runtime.loop.preflight import SIDE_BY_SIDE, SWEEP
from guerdon.runtime.schedule.stop import Interrupted

if TYPE_CHECKING:
    from guerdon.runtime.loop.app import App

OK, TROUBLE, USAGE, INTERRUPTED = 0, 1, 2, 130
LAUNCHER = ("hydra/launcher", "hydra.launcher")
_THERE: dict[str, App] = {}
"""The applications of this process, made by a launcher for jobs, by the board of their sweep."""


def config_name(command: Command) -> str:
    """What the command's root is called in Hydra's store."""
    return f"guerdon_{command.name}"


def register(command: Command, plan: LoadedPlan) -> None:
    """Make the command's configuration known to Hydra."""
    store = ConfigStore.instance()
    for group, options in command.groups.items():
        for name, node in options.items():
            store.store(group=group, name=name, node=node)
    store.store(name=config_name(command), node=command.root(plan))


def answer(app: App) -> int:
    """Let Hydra answer one of its own questions (--help, --cfg job). Raises HydraException."""
    given = [word for word in app.overrides if "=" in word and not word.startswith("-")]
    flags = [word for word in app.overrides if word not in given]
    if any(flag in ("-h", "--help") for flag in flags):
        # Help is for who does not know yet what must be given.
        known = {word.partition("=")[0] for word in given}
        given += [word for word in app.command.stand_in if word.partition("=")[0] not in known]
    try:
        _main(app, [*given, *flags], lambda config: None)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    return OK


def launched(app: App, side_by_side: int) -> int:
    """Do the job or the sweep, in this process or in so many others; the exit status."""
    if side_by_side > 1:
        return _in_others(app, side_by_side)
    words = _own(app.overrides)

    def job(config: DictConfig) -> None:
        try:
            app.job(config)
        except Interrupted:
            # Hydra goes on with the next job after an Exception, and ends the sweep after this.
            raise KeyboardInterrupt from None

    try:
        _main(app, words, job)
    except KeyboardInterrupt:
        return INTERRUPTED
    return TROUBLE if app.unwell else OK


def _in_others(app: App, side_by_side: int) -> int:
    # Neither more processes than jobs, nor other processors than those that this process may use.
    words = [*_own(app.overrides), "hydra/launcher=joblib", f"{SIDE_BY_SIDE}={side_by_side}"]
    with began() as board:
        sweep = Sweep(
            str(board.folder), side_by_side, app.word, app.pack, tuple(app.overrides), app.stage.base.digest
        )
        try:
            # Only plain words are bound here, since the launcher sends this function to another process.
            _main(app, words, lambda config: there(sweep, config))
        except (BrokenProcessPool, KeyboardInterrupt) as wrong:
            if isinstance(wrong, KeyboardInterrupt):
                board.put(STOP)
            elif not board.has(STOP):
                app.say("error: the process of a job was killed (is there enough memory?), and the launcher ended the "
                        "others with it; the same command goes on, with a smaller hydra.launcher.n_jobs if need be")
            board.put(FAILED)
            _swept(app)
        finally:
            _end_workers()
        if board.has(STOP):
            return INTERRUPTED
        return TROUBLE if board.has(FAILED) else OK


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a process that a launcher has made must know to do one of the sweep's jobs."""

    board: str
    side_by_side: int
    word: str
    pack: str
    overrides: tuple[str, ...]
    digest: str
    """Of the plan that was checked before the sweep began."""


def there(sweep: Sweep, config: DictConfig) -> None:
    """Do a job in a process that a launcher has made for it; what comes of it stands on the board."""
    board = Board(Path(sweep.board))
    with at_a_job(board):
        if board.has(STOP) or board.has(HALTED):
            return
        app = _app(sweep)
        try:
            app.job(config)
        except Interrupted:
            board.put(STOP)
        for fact in [FAILED] * app.unwell + [HALTED] * app.halted:
            board.put(fact)


def _app(sweep: Sweep) -> App:
    if sweep.board not in _THERE:
        from guerdon.runtime.cli.loading import load
        from guerdon.runtime.cli.trouble import provider
        from guerdon.runtime.loop.app import App
        from guerdon.runtime.loop.commands import COMMANDS

        # The bars of several jobs would write over each other: lines, as into a file.
        console = Console(stderr=True, force_terminal=False)
        stage = Stage(console, provider, load(sweep.pack, {}), sweep.side_by_side)
        app = App(COMMANDS[sweep.word](), sweep.word, sweep.pack, sweep.overrides, load, stage)
        if stage.base.digest != sweep.digest:
            app.say(f"error: {sweep.pack} was changed after the sweep began; run the same command again")
            app.unwell = app.halted = True
        _THERE.clear()
        _THERE[sweep.board] = app
    return _THERE[sweep.board]


def _swept(app: App) -> None:
    """Remove the sandboxes of processes that could not do it themselves."""
    async def sweep() -> None:
        with suppress(SandboxFault):  # the next start does it
            await close(await app.stage.provider(), app.say)

    if app.stage.base.plan.environments:
        _end_workers()
        asyncio.run(sweep())


def _end_workers() -> None:
    """End the launcher's processes, which would otherwise wait for more."""
    if "joblib" in sys.modules:
        import_module("joblib.externals.loky").get_reusable_executor().shutdown(wait=True)


def _own(words: Sequence[str]) -> list[str]:
    """The words without a launcher, which is chosen here; Hydra takes no override after a `-m` that comes after
    another."""
    mine = [word for word in words if word not in SWEEP and not word.lstrip("+").startswith(LAUNCHER)]
    return [*(word for word in words if word in SWEEP), *mine]


def _main(app: App, words: Sequence[str], job: Callable[[DictConfig], None]) -> None:
    with _argv([f"guerdon {app.word}", *words]):
        hydra.main(version_base="1.3", config_path=None, config_name=config_name(app.command))(job)()


@contextmanager
def _argv(words: Sequence[str]) -> Iterator[None]:
    """Hydra reads the command line itself; with full errors it raises instead of exiting."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = list(words)
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full
