"""`forbid` rules on the text of calls."""

import asyncio

import pytest

import guerdon.runtime.agent.forbid as forbid
from guerdon.compiler.plan.schema import ForbidPlan


def broken(pattern, *calls, tool="bash"):
    rules = [ForbidPlan("rule", "called", tool=tool, pattern=pattern)]
    return asyncio.run(forbid.broken(rules, calls, {}, {}))


@pytest.mark.parametrize(
    ("pattern", "arguments", "hit"),
    [
        ("reboot", {"command": "sudo reboot"}, True),
        ("reboot", {"command": "echo hi"}, False),
        ("^git log", {"command": ["git", "log", "--all"]}, True),
        ("^git log", {"command": "git log"}, True),
        ("^git log", {"command": "echo git log"}, False),
        ("it's$", {"command": "echo it's"}, True),
        ("é", {"command": "echo é"}, True),
    ],
)
def test_called_looks_at_the_decoded_arguments(pattern, arguments, hit):
    assert broken(pattern, ("bash", arguments)) == (("rule",) if hit else ())


def test_another_tool_and_no_call_are_no_violation():
    assert broken("x", ("put", {"content": "x"})) == ()
    assert broken(".*") == ()


def test_a_search_that_never_ends_counts_as_broken(monkeypatch):
    monkeypatch.setattr(forbid, "SEARCH_SECONDS", 0.5)
    assert broken("(a+)+$", ("bash", {"command": "a" * 60 + "b"})) == ("rule",)


def test_changed_compares_fingerprints_and_network_never_breaks():
    rules = [
        ForbidPlan("kept", "changed", globs=("/a",)), ForbidPlan("other", "changed", globs=("/b",)),
        ForbidPlan("net", "network"),
    ]
    found = asyncio.run(forbid.broken(rules, [], {"kept": 1, "other": 1}, {"kept": 2, "other": 1}))
    assert found == ("kept",)
