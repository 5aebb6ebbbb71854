"""Hugging Face's layout: what transformers computes, our decoder does; round trips are exact; the rest is refused."""

import json

import pytest
import torch

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.contracts.sampling import Request, Sampling
from guerdon.runtime.learner import hf
from guerdon.runtime.learner.sampler import DecoderSampler

transformers = pytest.importorskip("transformers")
COMMON = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "initializer_range": 0.1,
    "bos_token_id": None, "eos_token_id": None,
}
DEFAULT = {"rope_type": "default", "rope_theta": 5000.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "llama": ("Llama", {"tie_word_embeddings": False, "rope_parameters": DEFAULT}),
    "llama-tied-rope3": ("Llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": False, "rope_parameters": DEFAULT}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True, "head_dim": 32, "rope_parameters": DEFAULT}),
}


def make(name, folder):
    kind, extra = MODELS[name]
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**COMMON, **extra)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases, which begin as ones and zeros
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_the_same_numbers_and_an_exact_round_trip(name, tmp_path):
    model = make(name, tmp_path / "theirs")
    shape, tensors = hf.read(tmp_path / "theirs")
    prompt = tuple(torch.randint(0, 96, (40,), generator=torch.Generator().manual_seed(1)).tolist())
    (ours,) = DecoderSampler(shape, tensors, 0).generate([Request("s", prompt, Sampling(8, temperature=0.0))])
    ids = torch.tensor([prompt + ours.ids])
    with torch.no_grad():
        scored = model(ids).logits.log_softmax(-1)[0]
    wanted = [scored[len(prompt) - 1 + i, token] for i, token in enumerate(ours.ids)]
    assert torch.allclose(torch.tensor(ours.logprobs), torch.stack(wanted), atol=1e-4)
    assert all(int(scored[len(prompt) - 1 + i].argmax()) == token for i, token in enumerate(ours.ids))

    hf.write(tmp_path / "ours", shape, tensors)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    state = model.state_dict()
    assert set(back.state_dict()) == set(state)
    assert all(torch.equal(tensor, state[key]) for key, tensor in back.state_dict().items())
    with torch.no_grad():
        assert torch.equal(back(ids).logits, model(ids).logits)
    again = hf.read(tmp_path / "ours")
    assert again[0] == shape and all(torch.equal(again[1][key], tensor) for key, tensor in tensors.items())


@pytest.mark.parametrize(
    ("change", "says"),
    [({"model_type": "mixtral"}, "model_type is 'mixtral'"), ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
     ({"attention_bias": True}, "attention_bias is True"),
     ({"quantization_config": {"bits": 4}}, "quantization_config"),
     ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rope_type is 'yarn'"),
     ({"use_sliding_window": True}, "use_sliding_window is True"), ({"hidden_size": 32}, "its config.json says"),
     ({"num_hidden_layers": 3}, "has no tensor model.layers.2"),
     ({"num_attention_heads": None}, "missing or no number")],
)
def test_what_cannot_be_done_exactly_is_refused_by_name(change, says, tmp_path):
    make("llama", tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(LearnerFault) as caught:
        hf.read(tmp_path / "m")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_damage_and_pickles_are_refused(tmp_path):
    make("llama", tmp_path / "m")
    whole = (tmp_path / "m" / hf.ONE).read_bytes()
    (tmp_path / "m" / hf.ONE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LearnerFault, match="damaged"):
        hf.read(tmp_path / "m")
    (tmp_path / "m" / hf.ONE).rename(tmp_path / "m" / "pytorch_model.bin")
    with pytest.raises(LearnerFault, match=r"pytorch_model.bin.*may run code"):
        hf.read(tmp_path / "m")
    index = {"weight_map": {"model.embed_tokens.weight": "../m/pytorch_model.bin"}}
    (tmp_path / "m" / hf.INDEX).write_text(json.dumps(index))
    with pytest.raises(LearnerFault, match="has no tensor"):
        hf.read(tmp_path / "m")
    for path, says in ((tmp_path / "none", "neither"), (tmp_path / "x.gguf", "not there")):
        with pytest.raises(LearnerFault, match=says):
            hf.read(path)
    with pytest.raises(LearnerFault, match="exists already"):
        hf.write(tmp_path / "m", None, {})
