"""Operators of elements."""

import random

import torch
import torch.nn.functional as F

from common import FLOATS, WIDE, name_of, op, rand, shape, size, Want, wide


def elementwise(name, f, names=("x",), gradients=None, output="y"):
    """An operator of elements, and its backward under its name."""

    @op(name)
    def forward(t):
        dims = shape()
        given = {n: rand(t, *dims, scale=random.choice([1, 3])) for n in names}
        return given, {}, {output: Want(f(*wide(*given.values())), 1e-6)}

    if gradients:

        @op(f"{name}_backward")
        def backward(t):
            dims = shape()
            given = {n: rand(t, *dims, scale=random.choice([1, 3])) for n in names}
            dy = rand(t, *dims)
            at = wide(*given.values())
            f(*at).backward(dy.to(WIDE))
            wants = {n: Want(x.grad, 4e-6) for n, x in zip(gradients, at)}
            return {**given, "dy": dy}, {}, wants


elementwise("gelu", lambda x: F.gelu(x, approximate="tanh"), gradients=["dx"])
elementwise("relu", F.relu, gradients=["dx"])
elementwise("silu", F.silu, gradients=["dx"])
elementwise("sigmoid", torch.sigmoid, gradients=["dx"])
elementwise("tanh", torch.tanh, gradients=["dx"])
elementwise("sigmoid3", lambda x: torch.sigmoid(torch.sigmoid(torch.sigmoid(x))), gradients=["dx"])
GATED = {"names": ("gate", "up"), "gradients": ["dgate", "dup"]}
elementwise("swiglu", lambda g, u: F.silu(g) * u, **GATED)
elementwise("geglu", lambda g, u: F.gelu(g, approximate="tanh") * u, **GATED)
elementwise("geglu_erf", lambda g, u: F.gelu(g) * u, **GATED)
elementwise("add", lambda x, y: x + y, names=("x", "y"), output="z")
elementwise("sin2_cos2", lambda x: torch.sin(x) ** 2 + torch.cos(x) ** 2)
elementwise("copy", lambda x: x)


@op("cast")
def cast(t):
    x, to = rand(t, *shape(), scale=50), random.choice(FLOATS)
    return {"x": x}, {"to": name_of(to)}, {"y": Want(x.to(to).to(WIDE), exact=True)}


@op("bias_mask_scale_add")
def bias_mask_scale_add(t):
    rows, d, scale = size(40), size(3000), random.choice([0.5, -1.25])
    x, residual, bias = rand(t, rows, d), rand(t, rows, d), rand(t, d)
    mask = (torch.rand(rows, d) > 0.3).to(t)
    w = wide(x, bias, mask, residual)
    return {"x": x, "bias": bias, "mask": mask, "residual": residual}, {"scale": scale}, {"y": Want((w[0] + w[1]) * w[2] * scale + w[3], 4e-6)}
