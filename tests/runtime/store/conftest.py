"""Small sealed episodes for the store's tests."""

import pytest

from guerdon.runtime.contracts.trajectory import (
    Counters,
    EpisodeSpec,
    Outcome,
    Reward,
    Sealed,
    Trajectory,
    Verdict,
)


@pytest.fixture
def episode_of():
    """Make a sealed episode of a sample number."""

    def make(sample, outcome=Outcome.FAIL, value=0.0, signals=None):
        spec = EpisodeSpec("sha256:p", "t", "r", sample, 7, "oracle")
        trajectory = Trajectory(spec, (), (), Counters(), None, "sha256:a")
        verdicts = {"v": Verdict(outcome, signals or {"passed": False})}
        return Sealed(trajectory, outcome, verdicts, Reward("0", value, {}, False))

    return make
