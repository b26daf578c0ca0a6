"""What moves elements, rope, and the cache."""

import random

import torch
import torch.nn.functional as F

from common import FLOATS, WIDE, Want, ints, op, rand, size, wide


@op("permute_heads")
def permute_heads(t):
    x = rand(t, random.randint(1, 3), size(), random.randint(1, 5), size())
    return {"x": x}, {}, {"y": Want(x.transpose(1, 2).to(WIDE), exact=True)}


@op("repeat_kv")
def repeat_kv(t):
    x, n = rand(t, random.randint(1, 3), random.randint(1, 4), size(40), size()), random.randint(1, 5)
    return {"x": x}, {"repeat": n}, {"y": Want(x.repeat_interleave(n, 1).to(WIDE), exact=True)}


@op("embedding")
def embedding(t):
    vocab, d = size(), size(1000)
    ids, table = ints(0, vocab, size()), rand(t, vocab, d)
    return {"ids": ids, "table": table}, {}, {"y": Want(F.embedding(ids.long(), table).to(WIDE), exact=True)}


@op("embedding_backward")
def embedding_backward(t):
    vocab, d, n = size(), size(1000), size()
    ids, dy = ints(0, vocab, n), rand(t, n, d)
    table = torch.zeros(vocab, d, dtype=WIDE).index_add(0, ids.long(), dy.to(WIDE))
    return {"ids": ids, "dy": dy}, {"vocab": vocab}, {"dtable": Want(table, 1e-5)}


def rotated(x, cos, sin, positions, interleaved):
    """RoPE as its paper has it, of x [tokens, heads, d] in f64."""
    half = cos.shape[1]
    c, s = cos.to(WIDE)[positions.long()][:, None], sin.to(WIDE)[positions.long()][:, None]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    both = (a * c - b * s, b * c + a * s)
    out = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    return torch.cat((out, rest), -1)


def rope_inputs():
    half, n, tokens = random.choice([4, 8, 16, 32, 64, random.randint(1, 40)]), random.randint(1, 60), size(60)
    angles = torch.rand(n, half) * 6
    return half, tokens, angles.cos(), angles.sin(), ints(0, n, tokens)


@op("rope", "rope_backward")
def rope(t, name):
    half, tokens, cos, sin, positions = rope_inputs()
    interleaved = random.random() < 0.5
    x = rand(t, tokens, random.randint(1, 5), 2 * half)
    back = name == "rope_backward"
    y = rotated(x.to(WIDE), cos, -sin if back else sin, positions, interleaved)
    given = {"dy" if back else "x": x, "cos": cos, "sin": sin, "positions": positions}
    return given, {"interleaved": str(interleaved).lower()}, {"dx" if back else "y": Want(y, 1e-6)}


@op("qk_norm_rope", "qk_norm_rope_backward")
def qk_norm_rope(t, name):
    half, tokens, cos, sin, positions = rope_inputs()
    interleaved = random.random() < 0.5
    q, k = rand(t, tokens, random.randint(1, 6), 2 * half), rand(t, tokens, random.randint(1, 3), 2 * half)
    qw, kw = rand(t, 2 * half), rand(t, 2 * half)
    given = {"q": q, "k": k, "q_weight": qw, "k_weight": kw, "cos": cos, "sin": sin, "positions": positions}
    settings = {"interleaved": str(interleaved).lower(), "eps": 1e-6}
    at = wide(q, k, qw, kw)
    outs = [rotated(F.rms_norm(x, x.shape[-1:], w, 1e-6), cos, sin, positions, interleaved) for x, w in ((at[0], at[2]), (at[1], at[3]))]
    if name == "qk_norm_rope":
        return given, settings, {"q_out": Want(outs[0], 4e-6), "k_out": Want(outs[1], 4e-6)}
    d = {"dq_out": rand(t, *q.shape), "dk_out": rand(t, *k.shape)}
    torch.autograd.backward(outs, [g.to(WIDE) for g in d.values()])
    names = ("dq", "dk", "dq_weight", "dk_weight")
    wants = {n: Want(x.grad, 1e-5 * (1 + x.grad.abs().max())) for n, x in zip(names, at)}
    return {**given, **d}, settings, wants


@op("append_kv")
def append_kv(t):
    batch, new, heads, d, most = random.randint(1, 4), random.randint(1, 5), random.randint(1, 4), size(200), random.randint(6, 40)
    k, v, kc, vc = (rand(t, batch, n, heads, d) for n in (new, new, most, most))
    lengths_before = ints(0, most - new + 1, batch)
    wants = {}
    for name, cache, x in (("k_cache", kc, k), ("v_cache", vc, v)):
        full = cache.to(WIDE).clone()
        for b, at in enumerate(lengths_before.tolist()):
            full[b, at : at + new] = x[b].to(WIDE)
        wants[name] = Want(full, exact=True)
    return {"k": k, "v": v, "lengths_before": lengths_before, "k_cache": kc, "v_cache": vc}, {}, wants


@op("transpose", types=(*FLOATS, torch.int8, torch.int64))
def transpose(t):
    x = (torch.randn(*([random.randint(1, 4)] * random.randint(0, 1)), size(), size()) * 9).to(t)
    return {"x": x}, {}, {"y": Want(x.transpose(-1, -2).to(WIDE), exact=True)}


@op("attention_mask")
def attention_mask(t):
    batch, heads, queries, keys = random.randint(1, 3), random.randint(1, 3), size(60), size()
    causal, left = random.random() < 0.5, random.choice([-1, 0, 5, 40])
    scores, lengths = rand(t, batch, heads, queries, keys), ints(0, keys + 1, batch)
    # The last query stands at the last key.
    ahead = torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)
    seen = (torch.arange(keys) < lengths[:, None])[:, None]
    if causal:
        seen = seen & (ahead <= 0)
    if left >= 0:
        seen = seen & (ahead >= -left)
    y = torch.where(seen[:, None], scores.to(WIDE), torch.tensor(-30000.0).to(t).to(WIDE))
    return {"scores": scores, "key_lengths": lengths}, {"causal": str(causal).lower(), "left": left}, {"y": Want(y, exact=True)}
