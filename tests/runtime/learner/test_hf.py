"""Hugging Face's layout: what transformers computes, our decoder does; round trips are exact; the rest is refused."""

import dataclasses
import json
import shutil
import struct

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


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf") / "m"
    make("llama", folder)
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [({"model_type": "mixtral"}, "model_type is 'mixtral'"), ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
     ({"attention_bias": True}, "attention_bias is True"),
     ({"quantization_config": {"bits": 4}}, "quantization_config"),
     ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rope_type is 'yarn'"),
     ({"use_sliding_window": True}, "use_sliding_window is True"), ({"hidden_size": 32}, "its config.json says"),
     ({"num_hidden_layers": 3}, "has no tensor model.layers.2"),
     ({"num_hidden_layers": 1}, "the tensor model.layers.1.input_layernorm.weight is not one of such a model"),
     ({"num_hidden_layers": 2_000_000_000}, "num_hidden_layers is 2000000000, and there are 21 tensors in all"),
     ({"hidden_size": 10**400}, "hidden_size is 1000000"),
     ({"rope_parameters": {"full_attention": {"rope_theta": 9.0}}}, "rope_parameters holds an object, full_attention"),
     ({"tie_word_embeddings": True}, "lm_head.weight is not model.embed_tokens.weight"),
     ({"num_attention_heads": None}, "the field num_attention_heads is missing"),
     ({"num_attention_heads": 0}, "num_attention_heads is 0, not a number above 0"),
     ({"num_attention_heads": 3}, "num_key_value_heads is 2, num_attention_heads is 3"),
     ({"hidden_size": "64"}, "hidden_size is '64'"), ({"vocab_size": 96.5}, "vocab_size is 96.5"),
     ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"), ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
     ({"rope_parameters": 7}, "rope_parameters is 7"), ({"rope_parameters": {"rope_type": "llama3"}}, "factor"),
     ({"rope_parameters": {"rope_theta": 1.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
     ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, "has no tensor model.layers.0.self_attn.q_norm"),
     ({"architectures": ["LlamaForSequenceClassification"]}, "architectures is"),
     ({"auto_map": {"AutoModel": "evil.py"}}, "auto_map"), ({"layer_types": ["sliding_attention"]}, "layer_types"),
     ({"head_dim": 8}, "its config.json says"), ({"intermediate_size": 95}, "its config.json says")],
)
def test_what_cannot_be_done_exactly_is_refused_by_name(change, says, saved, tmp_path):
    shutil.copytree(saved, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(LearnerFault) as caught:
        hf.read(tmp_path / "m")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_shards_are_one_model(saved, tmp_path):
    shape, tensors = hf.read(saved)
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    model.save_pretrained(tmp_path / "m", max_shard_size="100KB")
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) > 1
    again = hf.read(tmp_path / "m")
    assert again[0] == shape and again[1].keys() == tensors.keys()
    assert all(torch.equal(again[1][key], tensor) for key, tensor in tensors.items())
    halves = {key: tensor / 2 for key, tensor in tensors.items()}
    hf.write(tmp_path / "halves", shape, halves)  # beside shards, transformers takes the one file; so is done here
    shutil.copy(tmp_path / "halves" / hf.ONE, tmp_path / "m")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").state_dict()[hf.HEAD]
    assert torch.equal(hf.read(tmp_path / "m")[1]["output_layer.weight"], theirs)
    assert torch.equal(halves["output_layer.weight"], theirs)


def test_bfloat16_is_exact_and_integers_are_refused(saved, tmp_path):
    shape, tensors = hf.read(saved)
    halves = {key: tensor.bfloat16() for key, tensor in tensors.items()}
    hf.write(tmp_path / "m", shape, halves)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert all(torch.equal(tensor, halves[key].float()) for key, tensor in hf.read(tmp_path / "m")[1].items())
    hf.write(tmp_path / "n", shape, {key: tensor.char() for key, tensor in tensors.items()})
    with pytest.raises(LearnerFault, match=r"is torch.int8, which this version cannot do"):
        hf.read(tmp_path / "n")


def test_what_would_be_left_out_of_an_export_is_refused_and_nothing_is_written(saved, tmp_path):
    shape, tensors = hf.read(saved)
    with pytest.raises(LearnerFault, match="both qkv_bias and qk_norm"):
        hf.write(tmp_path / "m", dataclasses.replace(shape, qkv_bias=True, qk_norm=True), tensors)
    assert not list(tmp_path.iterdir())


def gguf_file(path, state, config, more=(), layers=None):
    """What llama.cpp's converter makes of a Llama: its names, the rows of queries and keys in pairs."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers or config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(config.vocab_size)
    writer.add_token_list(["<x>"] * config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in state.items():
        turned = "q_proj" in name or "k_proj" in name
        rows = tensor.reshape(-1, 2, 8, 64).transpose(1, 2).reshape(tensor.shape) if turned else tensor
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), rows.numpy())
    for name in more:
        writer.add_tensor(name, torch.ones(8).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_files_are_the_same_model_and_nothing_is_left_out(saved, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    shape, tensors = hf.read(saved)
    path = tmp_path / "m.gguf"
    gguf_file(path, model.state_dict(), model.config)
    again = hf.read(path)
    told = dataclasses.replace(again[0], init_std=shape.init_std, norm_eps=shape.norm_eps)
    assert told == shape and again[0].norm_eps == pytest.approx(1e-6)
    assert all(torch.equal(again[1][key], tensor) for key, tensor in tensors.items())
    whole = path.read_bytes()
    for cut, says in ((b"", "no whole GGUF"), (whole[:300], "no whole GGUF"), (whole[:-9000], "cannot be read"),
                      (whole[:8] + struct.pack("<QQ", 1 << 60, 1 << 60) + whole[24:], "no whole GGUF")):
        path.write_bytes(cut)
        with pytest.raises(LearnerFault, match=says) as caught:
            hf.read(path)
        assert "\n" not in str(caught.value)
    for more, says in (("rope_freqs.weight", "stretched positions"), ("blk.0.attn_q.bias", "would be left out")):
        gguf_file(path, model.state_dict(), model.config, (more,))
        with pytest.raises(LearnerFault, match=says):
            hf.read(path)
    for layers in (1 << 31, 1):
        gguf_file(path, model.state_dict(), model.config, layers=layers)
        with pytest.raises(LearnerFault, match=r"block_count is 2147483648|blk.1.attn_k.weight.*left out"):
            hf.read(path)
    short = {name: tensor for name, tensor in model.state_dict().items() if "layers.1.mlp.up" not in name}
    gguf_file(path, short, model.config)
    with pytest.raises(LearnerFault, match=r"has no tensor blk.1.ffn_up.weight"):
        hf.read(path)


def test_damage_and_pickles_are_refused(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "m")
    whole = (tmp_path / "m" / hf.ONE).read_bytes()
    (tmp_path / "m" / hf.ONE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LearnerFault, match="damaged"):
        hf.read(tmp_path / "m")
    (tmp_path / "m" / hf.ONE).rename(tmp_path / "m" / "pytorch_model.bin")
    with pytest.raises(LearnerFault, match=r"pytorch_model.bin.*may run code"):
        hf.read(tmp_path / "m")
    names = ("model.embed_tokens.weight", "model.norm.weight")
    index = {"weight_map": dict.fromkeys(names, "../m/pytorch_model.bin")}
    (tmp_path / "m" / hf.INDEX).write_text(json.dumps(index))
    with pytest.raises(LearnerFault, match="has no tensor"):
        hf.read(tmp_path / "m")
    for path, says in ((tmp_path / "none", "neither"), (tmp_path / "x.gguf", "not there")):
        with pytest.raises(LearnerFault, match=says):
            hf.read(path)
    with pytest.raises(LearnerFault, match="exists already"):
        hf.write(tmp_path / "m", None, {})
