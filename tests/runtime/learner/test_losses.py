"""The losses: hand calculations, the values of TRL, and what must change nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, isclose
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.runtime.contracts.learner import LossConfig
from guerdon.runtime.learner.losses import LOSSES, Tokens, coefficients

TRL = json.loads((Path(__file__).parent / "trl_values.json").read_text())
RL = sorted(set(LOSSES) - {"supervised"})
WIDE = {"clip_low": 0.2, "clip_high": 0.2}


def rows(logprobs, old, advantages, mask, reference=None, entropy=None, dtype=torch.float32):
    def made(value):
        return None if value is None else torch.as_tensor(value, dtype=dtype)

    return Tokens(made(logprobs), made(old), made(advantages), made(mask), made(reference), made(entropy),
                  lambda values: values.sum(-1, keepdim=True))


def total(tokens, config):
    """The loss of a global batch, as the learner sums it."""
    each, found = LOSSES[config.name](tokens, config)
    factors = torch.tensor(coefficients(config, [int(n) for n in tokens.mask.sum(-1)]), dtype=each.dtype)
    return (each * tokens.mask * factors[:, None]).sum(), each, found


# -- by hand ---------------------------------------------------------------------------------------------------------

# Row 1: ratios 1.5 and 0.5 with advantage 2; row 2: ratio 0.5 with advantage -1; one position that does not train.
RATIOS = torch.tensor([[1.5, 0.5], [0.5, 9.0]])
SMALL = rows(RATIOS.log() - 1.0, torch.full((2, 2), -1.0), [[2.0, 2.0], [-1.0, -1.0]], [[1, 1], [1, 0]])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # Each: -min(r A, clip(r) A): -(1.2 * 2) = -2.4, -(0.5 * 2) = -1, -(0.8 * -1) = 0.8.
        (LossConfig("grpo"), ((-2.4 - 1.0) / 2 + 0.8) / 2),  # mean of the rows' means
        (LossConfig("dr_grpo", max_tokens=5), (-2.4 - 1.0 + 0.8) / (2 * 5)),  # two rows of at most 5 tokens
        (LossConfig("dapo", clip_high=0.28), (-1.28 * 2 - 1.0 + 0.8) / 3),  # higher bound above; three tokens
        (LossConfig("reinforce_pp"), (-2.4 - 1.0 + 0.8) / 3),
        # The ratios of the rows are sqrt(1.5 * 0.5) = 0.8660 and 0.5: -(0.866 * 2), -(0.8 * -1).
        (LossConfig("gspo", **WIDE), (-(0.75**0.5) * 2 + 0.8) / 2),
        # No ratio: -A log p, summed over the row. log p = log(ratio) - 1.
        (LossConfig("rloo"), (-2 * (0.405465108 - 1 - 0.693147181 - 1) + (-0.693147181 - 1)) / 2),
        (LossConfig("reinforce"), (-2 * (0.405465108 - 1 - 0.693147181 - 1) + (-0.693147181 - 1)) / 2),
        (LossConfig("supervised"), -(0.405465108 - 1 - 0.693147181 - 1 - 0.693147181 - 1) / 3),
    ],
    ids=lambda value: value.name if isinstance(value, LossConfig) else "",
)
def test_each_loss_by_hand(config, expected):
    assert total(SMALL, config)[0].item() == pytest.approx(expected, rel=1e-6)


def test_every_loss_has_been_calculated_by_hand():
    cases = test_each_loss_by_hand.pytestmark[0].args[1]
    assert {config.name for config, _ in cases} == set(LOSSES)


@pytest.mark.parametrize(("name", "expected"), [("grpo", 0.1 * (exp(0.5) - 1.5)), ("reinforce_pp", 0.1 * 0.125)])
def test_the_penalty_on_leaving_the_reference(name, expected):
    """log(reference / policy) = 0.5 at the one token: k3 = e^0.5 - 0.5 - 1, k2 = 0.5^2 / 2."""
    one = rows([[-1.0]], [[-1.0]], [[0.0]], [[1]], reference=[[-0.5]])
    loss, _, found = total(one, LossConfig(name, kl=0.1))
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert found["kl_reference"].item() == pytest.approx(exp(0.5) - 1.5, rel=1e-6)  # always k3, so that it compares


@pytest.mark.parametrize("name", RL)
def test_every_rl_loss_takes_the_penalty_and_the_entropy_bonus(name):
    one = rows([[-1.0]], [[-1.0]], [[0.0]], [[1]], reference=[[-0.5]], entropy=[[0.7]])
    plain = total(one, LossConfig(name))[0].item()
    assert total(one, LossConfig(name, kl=0.1))[0].item() > plain
    assert total(one, LossConfig(name, entropy=0.5))[0].item() == pytest.approx(plain - 0.35, abs=1e-6)


def test_clipped_is_where_the_bound_decided():
    """Ratio 1.5 with advantage 2 is cut, 0.5 with 2 is not (the smaller one counts), 0.5 with -1 is."""
    found = total(SMALL, LossConfig("grpo"))[2]
    assert found["clip_share"].tolist()[0] == [1.0, 0.0] and found["clip_share"][1, 0] == 1.0


# -- TRL -------------------------------------------------------------------------------------------------------------


def config_of(name):
    """Our words for TRL's options."""
    asked = TRL["options"].get(name, {})
    sequence = asked.get("importance_sampling_level") == "sequence"
    own = "gspo" if sequence else {"bnpo": "dapo"}.get(asked["loss_type"], asked["loss_type"])
    return LossConfig(
        own, asked.get("epsilon_low", 0.2), asked.get("epsilon_high", 0.2), kl=asked.get("beta", 0.0),
        entropy=asked.get("entropy_coef", 0.0), max_tokens=TRL["longest"],
    )


def trl_rows(**changed):
    given = {**TRL, **changed}
    advantages = torch.tensor(given["advantages"])[:, None].expand(len(given["mask"]), len(given["mask"][0]))
    tokens = rows(given["logprobs"], given["old"], advantages, given["mask"], given["reference"], given["entropy"])
    tokens.logprobs.requires_grad_()
    return tokens


@pytest.mark.parametrize("name", sorted(TRL["options"]))
def test_losses_and_gradients_are_those_of_trl(name):
    tokens, config, theirs = trl_rows(), config_of(name), TRL["found"][name]
    loss, _, found = total(tokens, config)
    loss.backward()
    assert loss.item() == pytest.approx(theirs["loss"], rel=1e-5)
    assert torch.allclose(tokens.logprobs.grad, torch.tensor(theirs["gradient"]), rtol=1e-4, atol=1e-7)
    share = (found["clip_share"] * tokens.mask).sum(-1) / tokens.mask.sum(-1)
    ours = share.mean() if config.name == "gspo" else (found["clip_share"] * tokens.mask).sum() / tokens.mask.sum()
    assert ours.item() == pytest.approx(theirs["clipped"], rel=1e-5)


def test_the_gradient_of_rloo_is_that_of_trl_where_no_update_has_been_made():
    """TRL's has a ratio of whole sequences, which is 1 there: another value, the same gradient."""
    tokens = trl_rows(old=TRL["logprobs"], reference=None, entropy=None)
    total(tokens, LossConfig("rloo"))[0].backward()
    theirs = torch.tensor(TRL["found"]["rloo on policy"]["gradient"])
    assert theirs.abs().max() > 0.1
    assert torch.allclose(tokens.logprobs.grad, theirs, rtol=1e-4, atol=1e-7)


def test_the_tensors_tell_the_losses_apart():
    """Tokens are cut on either side; no two cases have one value but bnpo and dapo, which agree on a whole batch."""
    found = TRL["found"]
    assert TRL["trl"].startswith("1.16") and found["grpo"]["clipped"] == pytest.approx(4 / 12)
    assert [found[name]["clipped"] for name in ("gspo", "gspo, wide clip")] == [0.5, 0.25]
    assert found["bnpo"]["loss"] == pytest.approx(found["dapo"]["loss"])
    values = [one["loss"] for name, one in found.items() if name != "bnpo"]
    assert all(not isclose(a, b, rel_tol=1e-3) for i, a in enumerate(values) for b in values[:i])


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_gradients_are_finite_differences(name):
    values = {key: torch.tensor(TRL[key], dtype=torch.float64) for key in ("logprobs", "old", "reference", "mask")}
    advantages = torch.tensor(TRL["advantages"], dtype=torch.float64)[:, None].expand_as(values["mask"])
    config = LossConfig(name, 0.21, 0.27, kl=0.1, max_tokens=8)

    def loss(logprobs):
        tokens = rows(logprobs, values["old"], advantages, values["mask"], values["reference"], dtype=torch.float64)
        return total(tokens, config)[0]

    assert torch.autograd.gradcheck(loss, values["logprobs"].requires_grad_(), eps=1e-6, atol=1e-6)


def test_a_clipped_token_has_no_gradient():
    tokens = replace(SMALL, logprobs=SMALL.logprobs.clone().requires_grad_())
    total(tokens, LossConfig("grpo"))[0].backward()
    assert tokens.logprobs.grad[0, 0] == 0.0 and tokens.logprobs.grad[0, 1] != 0.0 and tokens.logprobs.grad[1, 0] == 0.0


# -- what changes nothing --------------------------------------------------------------------------------------------

numbers = st.floats(-2.0, 2.0, width=32)


@st.composite
def batches(draw):
    count, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))

    def grid(each):
        return draw(st.lists(st.lists(each, min_size=width, max_size=width), min_size=count, max_size=count))

    mask = grid(st.sampled_from([0.0, 1.0]))
    mask[0][0] = 1.0
    logprobs, old, reference = (grid(st.floats(-2.0, -0.03125, width=32)) for _ in range(3))
    advantages = [[draw(numbers)] * width for _ in range(count)]
    return rows(logprobs, old, advantages, mask, reference, grid(st.floats(0.0, 2.0, width=32)))


def configured(name):
    return LossConfig(name, kl=0.1, entropy=0.05, max_tokens=7)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(sorted(LOSSES)), numbers)
def test_what_is_masked_changes_nothing(tokens, name, other):
    def spoilt(value):
        return torch.where(tokens.mask > 0, value, value + other)

    changed = Tokens(spoilt(tokens.logprobs), spoilt(tokens.old), spoilt(tokens.advantages), tokens.mask,
                     spoilt(tokens.reference), spoilt(tokens.entropy), tokens.row_sum)
    assert total(changed, configured(name))[0].item() == total(tokens, configured(name))[0].item()


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(sorted(LOSSES)))
def test_a_row_that_trains_nothing_changes_nothing(tokens, name):
    def longer(value, fill):
        return torch.cat([value, torch.full_like(value[:1], fill)])

    more = Tokens(longer(tokens.logprobs, -3.0), longer(tokens.old, -1.0), longer(tokens.advantages, 5.0),
                  longer(tokens.mask, 0.0), longer(tokens.reference, -2.0), longer(tokens.entropy, 1.0), tokens.row_sum)
    ours, theirs = total(tokens, configured(name))[0].item(), total(more, configured(name))[0].item()
    assert theirs == pytest.approx(ours, rel=1e-5, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(sorted(LOSSES)), st.randoms(use_true_random=False))
def test_permuting_rows_permutes_the_losses(tokens, name, rng):
    order = list(range(tokens.mask.shape[0]))
    rng.shuffle(order)
    dealt = Tokens(*(getattr(tokens, f)[order] for f in ("logprobs", "old", "advantages", "mask", "reference",
                                                         "entropy")), tokens.row_sum)
    value, each, _ = total(tokens, configured(name))
    other, moved, _ = total(dealt, configured(name))
    assert torch.equal(moved, each[order]) and other.item() == pytest.approx(value.item(), rel=1e-5, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sampled_from(sorted(LOSSES)))
def test_the_factors_are_one_normalisation(lengths, name):
    """Means weigh 1 in all; a constant divides by rows * constant; sums by rows. Rows of length 0 do not count."""
    config = LossConfig(name, max_tokens=50)
    factors = coefficients(config, lengths)
    weight = sum(factor * length for factor, length in zip(factors, lengths, strict=True))
    count = sum(length > 0 for length in lengths)
    expected = 0.0 if not count else {"dr_grpo": sum(lengths) / (50 * count), "rloo": sum(lengths) / count,
                                      "reinforce": sum(lengths) / count}.get(name, 1.0)
    assert weight == pytest.approx(expected)
    assert all(factor == 0.0 for factor, length in zip(factors, lengths, strict=True) if not length)
