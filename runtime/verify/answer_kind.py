"""Kind `answer`: the agent's text against the expected one. Data only, so no sandbox.

The whole extracted text must be the answer: several answers are none. With `boxed` and `tag:x` a text may hold the
mark more than once only if each time with the same content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from guerdon.compiler.plan.canonical import Json
from guerdon.runtime.contracts.trajectory import Outcome, Verdict
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify import compare
from guerdon.runtime.verify.settle import failed, invalid

LONGEST = 1 << 20
"""Characters of an answer that are looked at; a longer one is no answer."""


class Answer:
    """Settings: `expected` (text, or a list of which one must match), `from`, `compare`, `close`."""

    async def run(self, given: VerifyInput) -> Verdict:
        """Verify one answer."""
        settings = given.plan.settings
        want = settings.get("expected")
        wanted = [want] if isinstance(want, str) else list(want) if isinstance(want, list | tuple) else []
        kind = str(settings.get("compare", "trimmed"))
        if not wanted or not all(isinstance(w, str) for w in wanted):
            return invalid(f"verifier {given.plan.name}: `expected` must be a text or a list of texts")
        if kind not in ("exact", "trimmed", "number", "one_of"):
            return invalid(f"verifier {given.plan.name}: unknown `compare = {kind}`")
        text = extract(given, str(settings.get("from", "submit")))
        if text is None:
            return failed({"passed": False, "parsed": False}, _missing(given, settings), given.answer or "")
        if kind == "number" and compare.number(text) is None:
            return failed({"passed": False, "parsed": False}, "the answer is no number", text)
        close = Fraction(str(settings.get("close") or "0"))
        if any(_matches(text, str(w), kind, close) for w in wanted):
            return Verdict(Outcome.PASS, {"passed": True, "parsed": True})
        return failed({"passed": False, "parsed": True}, "the answer is not the expected one", text)


def _missing(given: VerifyInput, settings: Mapping[str, Json]) -> str:
    source = str(settings.get("from", "submit"))
    if source == "submit" and not given.submitted:
        return "nothing was submitted: with `from = submit` the answer is what `submit(answer = …)` hands in"
    where = {"submit": "the submission", "final": "the last message", "boxed": "\\boxed{…}"}
    tag = source.removeprefix("tag:")
    return f"no single answer in {where.get(source, f'<{tag}>…</{tag}>')}"


def _matches(text: str, expected: str, kind: str, close: Fraction) -> bool:
    if kind == "exact":
        return text == expected
    if kind == "number":
        have, want = compare.number(text), compare.number(expected)
        return have is not None and want is not None and abs(have - want) <= close
    return text.strip() == expected.strip()


def extract(given: VerifyInput, source: str) -> str | None:
    """The answer in the agent's text, or None where there is none or more than one."""
    text = given.answer
    if text is None or len(text) > LONGEST or (source == "submit" and not given.submitted):
        return None
    if source in ("submit", "final"):
        return text if text.strip() else None
    if source == "boxed":
        return _only(_boxed(text))
    tag = re.escape(source.removeprefix("tag:"))
    return _only(re.findall(rf"<{tag}>((?:(?!</?{tag}>).)*)</{tag}>", text, re.DOTALL))


def _only(found: list[str]) -> str | None:
    contents = {f.strip() for f in found}
    return contents.pop() if len(contents) == 1 and "" not in contents else None


def _boxed(text: str) -> list[str]:
    found = []
    for start in re.finditer(r"\\boxed\s*\{", text):
        depth, at = 1, start.end()
        # An answer is short: a longer box (or one that never closes) is not read to its end.
        while depth and at < min(len(text), start.end() + 10_000):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found.append(text[start.end() : at - 1] if depth == 0 else "")
    return found
