"""One pytest session over the hidden tests in the trusted process, its outcomes kept in memory."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pytest

from .drop import Rights
from .remote import Handle

REASON = 300
"""Characters of one reason."""


class TimeUp(BaseException):
    """The verification's own time is over."""


class Recorder:
    """The plugin that sees every item's outcome; `faults` is the channel's list."""

    def __init__(self, faults: list[str], rights: Rights, end: float) -> None:
        self.faults, self.rights, self.end = faults, rights, end
        self.collected: list[str] = []
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def pytest_addoption(self, parser: Any) -> None:
        """pytest asks for this option where an import fails, and its terminal plugin, which has it, is off."""
        parser.addoption("--verbose", dest="verbose", type=int, default=0)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be collected is a failure of its own."""
        if report.failed:
            self._note(report.nodeid or "collection", "failed", self._because(_last_line(report.longrepr)))
        elif self.faults:
            self._note(report.nodeid or "collection", "failed", self._because(""))

    def pytest_itemcollected(self, item: Any) -> None:
        """Every item must end with an outcome."""
        self.collected.append(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: Any) -> Any:
        """Nothing that the candidate defines is a test."""
        return [] if type(obj) is Handle else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        """Past the end nothing starts any more."""
        if time.monotonic() < self.end:
            return None
        self._note(item.nodeid, "failed", "the verification's time was over before it began")
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """The candidate may use the temporary folder of a test."""
        outcome = yield
        if fixturedef.argname in ("tmp_path", "tmpdir") and outcome.excinfo is None:
            os.chown(os.fspath(outcome.get_result()), self.rights.uid, self.rights.gid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """A fault of the candidate fails the test whatever the test did with it."""
        outcome = yield
        report = outcome.get_result()
        reason = "" if call.excinfo is None else _line(item, call.excinfo)
        if self.faults:
            report.outcome = "failed"
            if hasattr(report, "wasxfail"):
                del report.wasxfail
        if report.outcome == "failed":
            self._note(item.nodeid, "failed", self._because(reason))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test has passed when its call did and nothing about it failed."""
        if report.outcome == "failed":
            self._note(report.nodeid, "failed", "")
        elif hasattr(report, "wasxfail"):
            self._note(report.nodeid, "xfailed" if report.skipped else "xpassed", "")
        elif report.skipped:
            self._note(report.nodeid, "skipped", "")
        elif report.when == "call":
            self._note(report.nodeid, "passed", "")

    def _note(self, name: str, outcome: str, reason: str) -> None:
        # A failure stays: a later phase (or a second report of the same id) does not mend it.
        if self.outcomes.get(name) != "failed":
            self.outcomes[name] = outcome
        if reason:
            self.reasons.setdefault(name, reason[:REASON])

    def _because(self, text: str) -> str:
        faults = "; ".join(dict.fromkeys(self.faults))
        self.faults.clear()
        return faults or text


def _line(item: Any, excinfo: Any) -> str:
    """`ValueError: text at test_x.py:12`: where in the hidden tests it happened, and what."""
    place = ""
    for entry in excinfo.traceback:
        if str(entry.path) == str(item.path):
            place = f" at {item.path.name}:{entry.lineno + 1}"
    try:
        return f"{excinfo.typename}: {str(excinfo.value)[:REASON]}{place}"
    except BaseException:  # noqa: BLE001 - the text may have to be asked of a dead candidate
        return f"{excinfo.typename}{place}"


def _last_line(longrepr: Any) -> str:
    lines = [line for line in str(longrepr).splitlines() if line.strip()]
    return lines[-1] if lines else "cannot be collected"


def run(tests: str, temporary: str, recorder: Recorder) -> None:
    """Run every test below a folder; what is not in the recorder afterwards did not run."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plain = "cacheprovider terminal junitxml pastebin doctest stepwise faulthandler nose setuponly setupplan"
    options = [opt for name in plain.split() for opt in ("-p", f"no:{name}")]
    try:
        pytest.main(
            [tests, "-c", os.devnull, "--rootdir", tests, "--confcutdir", tests, "--basetemp", temporary,
             "--capture=sys", "--assert=plain", "--continue-on-collection-errors", *options],
            plugins=[recorder],
        )  # fmt: skip
    except TimeUp:
        recorder.reasons.setdefault("session", "the verification's time was over")
    for name in recorder.collected:
        recorder.outcomes.setdefault(name, "not run")
    sys.stdout.flush()
