"""docs/serving.md says of each setting what the code says."""

import re
from dataclasses import fields
from pathlib import Path

from guerdon.conf.policy import MISSING, OpenaiConf
from guerdon.runtime.policy.openai_settings import INCIDENTAL
from guerdon.runtime.serve import request

PAGE = (Path(__file__).parents[3] / "docs/serving.md").read_text("utf-8")


def test_the_settings_of_a_served_model():
    told = re.findall(r"^\| `policy\.(\w+)` \| `?([^|`]*?)`? \|", PAGE, re.MULTILINE)
    made = {f.name: f.default for f in fields(OpenaiConf) if f.name != "name"}
    assert dict(told) == {
        name: "must be given" if value == MISSING else str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in made.items()
    }
    last = {name for name, _ in told[-5:]}
    assert last | {"api_key_env"} == INCIDENTAL


def test_the_parameters_that_are_taken():
    (taken,) = re.findall(r"- \*\*Taken\*\*: (.*?), which\n", PAGE, re.DOTALL)
    names = {name.split(".")[0] for name in re.findall(r"`([\w.]+)`", taken)}
    assert names == request._READ | {"user"}
