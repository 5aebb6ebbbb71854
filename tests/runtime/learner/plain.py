"""A decoder, a GRPO step and AdamW in plain torch, from the papers; nothing of the learner or of Megatron-core."""

import math

import torch


def frequencies(shape):
    """RoFormer's, stretched as Meta's `apply_scaling` does."""
    found = []
    for pair in range(shape.head_dim // 2):
        plain = shape.rope_base ** (-2 * pair / shape.head_dim)
        scaling = shape.rope_scaling
        if scaling:
            wave = 2 * math.pi / plain
            low = scaling.original_context / scaling.low_freq_factor
            high = scaling.original_context / scaling.high_freq_factor
            if wave > low:
                plain /= scaling.factor
            elif wave > high:
                smooth = (scaling.original_context / wave - scaling.low_freq_factor) / (
                    scaling.high_freq_factor - scaling.low_freq_factor
                )
                plain = (1 - smooth) * plain / scaling.factor + smooth * plain
        found.append(plain)
    return torch.tensor(found, dtype=torch.float64)


def norm(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x, shape):
    """Rotate [positions, heads, head_dim] as complex numbers (a, b) = (first half, second half)."""
    half = shape.head_dim // 2
    angles = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * frequencies(shape)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat((z.real, z.imag), -1)


def logits(t, shape, ids):
    """[positions, vocab] of one sequence, attention written out with loops over heads."""
    x = t["embedding.word_embeddings.weight"][torch.tensor(ids)]
    size, group = len(ids), shape.heads // shape.kv_heads
    for layer in range(shape.layers):
        at = f"decoder.layers.{layer}."
        w = {name.removeprefix(at): held for name, held in t.items() if name.startswith(at)}
        h = norm(x, w["input_layernorm.weight"], shape.norm_eps) @ w["self_attention.linear_qkv.weight"].T
        h = h + w.get("self_attention.linear_qkv.bias", 0.0)
        h = h.view(size, shape.kv_heads, group + 2, shape.head_dim)
        q, k, v = h[:, :, :group].reshape(size, shape.heads, -1), h[:, :, group], h[:, :, group + 1]
        if shape.qk_norm:
            q = norm(q, w["self_attention.q_layernorm.weight"], shape.norm_eps)
            k = norm(k, w["self_attention.k_layernorm.weight"], shape.norm_eps)
        q, k, heads = turned(q, shape), turned(k, shape), []
        for head in range(shape.heads):
            scores = q[:, head] @ k[:, head // group].T / math.sqrt(shape.head_dim)
            scores = scores.masked_fill(torch.ones(size, size).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(-1) @ v[:, head // group])
        x = x + torch.cat(heads, -1) @ w["self_attention.linear_proj.weight"].T
        gate, up = (norm(x, w["pre_mlp_layernorm.weight"], shape.norm_eps) @ w["mlp.linear_fc1.weight"].T).chunk(2, -1)
        x = x + (gate / (1 + (-gate).exp()) * up) @ w["mlp.linear_fc2.weight"].T
    x = norm(x, t["decoder.final_layernorm.weight"], shape.norm_eps)
    return x @ t.get("output_layer.weight", t["embedding.word_embeddings.weight"]).T


def scores(t, shape, ids, temperature):
    """Log-probabilities of ids 1.. given those before, and entropies there."""
    table = (logits(t, shape, ids) / temperature).log_softmax(-1)[:-1]
    return table.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0], -(table.exp() * table).sum(-1)


def grpo(t, shape, rows, loss):
    """DeepSeekMath, eq. 3, with an entropy bonus: the mean over rows of the mean over their tokens."""
    total, count = 0.0, sum(any(row.mask) for row in rows)
    for row in rows:
        if not any(row.mask):
            continue
        log_p, entropy = scores(t, shape, row.ids, loss.temperature)
        mask, old, gain, reference = (
            torch.tensor(each[1:], dtype=torch.float64)
            for each in (row.mask, row.logprobs, row.advantages, row.reference)
        )
        ratio, gap = (log_p - old).exp(), reference - log_p
        each = -torch.minimum(ratio * gain, ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high) * gain)
        each = each + loss.kl * (gap.exp() - gap - 1) - loss.entropy * entropy
        total = total + (each * mask).sum() / mask.sum() / count
    return total


def step(initial, shape, rows, loss, lr, clip, decay, eps, beta1=0.9, beta2=0.95):
    """Loss, norm of the gradient, and the weights after a first AdamW step (Loshchilov and Hutter 2019)."""
    t = {name: value.double().requires_grad_() for name, value in initial.items()}
    total = grpo(t, shape, rows, loss)
    total.backward()
    length = math.sqrt(sum(float(value.grad.pow(2).sum()) for value in t.values()))
    found = {}
    for name, value in t.items():
        grad = value.grad * min(1.0, clip / (length + 1e-6))
        mean, square = (1 - beta1) * grad / (1 - beta1), (1 - beta2) * grad**2 / (1 - beta2)
        kept = value.detach() * (1 - lr * (decay if value.dim() > 1 else 0.0))
        found[name] = kept - lr * mean / (square.sqrt() + eps)
    return float(total.detach()), length, found
