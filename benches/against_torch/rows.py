"""Operators of rows: softmax, norms, reductions."""

import math
import random

import torch
import torch.nn.functional as F

from common import EPS, WIDE, Want, op, rand, shape, size, wide


@op("softmax", "log_softmax")
def softmax(t, name):
    x, scale = rand(t, *shape(), scale=4), random.choice([1, 0.5, 2])
    y = getattr(F, name)(x.to(WIDE) * scale, -1)
    return {"x": x}, {"scale": scale}, {"y": Want(y, 2e-6 if name == "softmax" else 1e-5)}


@op("softmax")
def softmax_causal(t):
    heads, queries, keys = random.randint(1, 4), size(60), size()
    x, offset = rand(t, heads, queries, keys), max(keys - queries, 0)
    seen = torch.arange(keys) <= torch.arange(queries)[:, None] + offset
    y = x.to(WIDE).masked_fill(~seen, float("-inf")).softmax(-1).nan_to_num()
    return {"x": x}, {"q_len": queries, "offset": offset}, {"y": Want(y, 2e-6)}


@op("softmax_backward", "log_softmax_backward")
def softmax_backward(t, name):
    dims, scale = shape(), random.choice([1, 0.5])
    y = getattr(F, name[:-9])(rand(t, *dims, scale=3).to(WIDE) * scale, -1).to(t)
    dy = rand(t, *dims)
    w, g = y.to(WIDE), dy.to(WIDE)
    dx = scale * (w * (g - (w * g).sum(-1, keepdim=True)) if name == "softmax_backward" else g - w.exp() * g.sum(-1, keepdim=True))
    return {"y": y, "dy": dy}, {"scale": scale}, {"dx": Want(dx, 1e-5 * (1 + g.sum(-1, keepdim=True).abs()))}


@op("rms_norm", "layer_norm", "add_rms_norm")
def norm(t, name):
    dims = shape()
    x, weight = rand(t, *dims), rand(t, dims[-1])
    w = wide(x, weight)
    if name == "layer_norm":
        bias = rand(t, dims[-1])
        y = F.layer_norm(w[0], dims[-1:], w[1], bias.to(WIDE), 1e-5)
        return {"x": x, "weight": weight, "bias": bias}, {"eps": 1e-5}, {"y": Want(y, 1e-5)}
    if name == "rms_norm":
        return {"x": x, "weight": weight}, {"eps": 1e-6}, {"y": Want(F.rms_norm(w[0], dims[-1:], w[1], 1e-6), 1e-6)}
    residual = rand(t, *dims)
    r = (x.to(WIDE) + residual.to(WIDE)).to(t)
    # The norm is of the sum in f32, which the 16-bit types may round first: as much again is tolerated.
    y = F.rms_norm(r.to(WIDE), dims[-1:], w[1], 1e-6)
    return {"x": x, "residual": residual, "weight": weight}, {"eps": 1e-6}, {"r": Want(r.to(WIDE)), "y": Want(y, EPS[t] * y.abs() + 1e-6)}


@op("rms_norm_backward", "layer_norm_backward", "add_rms_norm_backward")
def norm_backward(t, name):
    dims = shape()
    x, weight, dy = rand(t, *dims), rand(t, dims[-1]), rand(t, *dims)
    w = wide(x, weight)
    bias = torch.zeros(dims[-1], dtype=WIDE, requires_grad=True)
    layer = name == "layer_norm_backward"
    y = F.layer_norm(w[0], dims[-1:], w[1], bias, 1e-5) if layer else F.rms_norm(w[0], dims[-1:], w[1], 1e-6)
    y.backward(dy.to(WIDE))
    # What layer_norm takes away again is times 1/σ.
    over_sigma = dy.to(WIDE) * w[1].detach() * (x.to(WIDE).var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    spread = 1e-5 * (1 + w[0].grad.abs().max() + over_sigma.abs().max())
    terms = 2e-6 * math.sqrt(math.prod(dims[:-1])) * 4
    wants = {"dx": Want(w[0].grad, spread), "dweight": Want(w[1].grad, terms)}
    if layer:
        return {"x": x, "weight": weight, "dy": dy}, {"eps": 1e-5}, {**wants, "dbias": Want(bias.grad, terms)}
    if name == "rms_norm_backward":
        return {"x": x, "weight": weight, "dy": dy}, {"eps": 1e-6}, wants
    dr = rand(t, *dims)
    wants["dx"] = Want(w[0].grad + dr.to(WIDE), spread)
    return {"r": x, "weight": weight, "dy": dy, "dr": dr}, {"eps": 1e-6}, wants


@op("sum", "mean", "max", "l2_norm", "sum_rows", "mean_rows", "max_rows", "l2_norm_rows", "argmax_rows")
def reduce(t, name):
    x = rand(t, *shape())
    w, rows = x.to(WIDE), name.endswith("_rows")
    if not rows:
        w = w.reshape(-1)
    kind = name.removesuffix("_rows")
    n = w.shape[-1]
    y = {
        "sum": lambda: Want(w.sum(-1), 1e-6 * math.sqrt(n)),
        "mean": lambda: Want(w.mean(-1), 1e-6),
        "max": lambda: Want(w.max(-1).values, exact=True),
        "l2_norm": lambda: Want(w.norm(dim=-1)),
        # The first of several.
        "argmax": lambda: Want((w == w.max(-1, keepdim=True).values).to(torch.int8).argmax(-1), exact=True),
    }[kind]()
    y.value = y.value if rows else y.value.reshape(1)
    return {"x": x}, {}, {"y": y}


@op("top_k")
def top_k(t):
    dims = shape()
    k = random.randint(1, min(dims[-1], 64))
    x = rand(t, *dims)
    return {"x": x}, {"k": k}, {"values": Want(x.to(WIDE).topk(k, -1).values, exact=True)}
