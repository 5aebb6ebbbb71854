"""What the compiler says can be run is what the runtime runs."""

from guerdon.compiler.tasks import RUN_TOOLS
from guerdon.dsl import std
from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source
from guerdon.runtime.agent.tools import TOOLS
from guerdon.runtime.verify import KINDS


def test_the_tools_that_run_are_the_compilers():
    assert sorted(TOOLS) == sorted(RUN_TOOLS)


def test_the_kinds_that_run_are_those_declared_to():
    file, found = parse(Source("kinds", std.text(std.PRELUDE)))
    assert found == ()
    running = {i.name.text for i in file.items if i.word.text == "kind" and i.find("runs").value.value}
    assert running == set(KINDS)
