"""Matrix products and linear layers."""

import random

import torch
import torch.nn.functional as F

from common import HALF, WIDE, Want, ints, name_of, of_four_bits, op, product, rand, size


@op("gemm", "gemm_to_f32", types=HALF)
def gemm(t, name):
    m, n, k, batch = size(), size(), size(), [[], [random.randint(1, 3)]][random.random() < 0.3]
    a, b = rand(t, *batch, m, k), rand(t, *batch, k, n)
    alpha, beta = random.choice([1, 0.5]), random.choice([0, 0, 1, -0.75])
    c = rand(torch.float32 if name == "gemm_to_f32" else t, *batch, m, n)
    want = product(a, b.transpose(-1, -2))
    want.value = alpha * want.value + beta * c.to(WIDE)
    want.around = want.around + 1e-6
    return {"a": a, "b": b, "c": c}, {"alpha": alpha, "beta": beta}, {"c": want}


@op("gemm_bf16", types=(torch.bfloat16,))
def gemm_bf16(t):
    a, b = (rand(t, size(), k) for k in [size(600)] * 2)
    return {"a": a, "b": b}, {}, {"c": product(a, b)}


@op("sgemm", types=(torch.float32,))
def sgemm(t):
    m, n, k = size(), size(), size()
    a, b = rand(t, m, k), rand(t, k, n)
    return {"a": a, "b": b}, {}, {"c": product(a, b.T)}


@op("gemv")
def gemv(t):
    m, n, batch = size(600), size(2000), [[], [random.randint(1, 9)]][random.random() < 0.5]
    a, x = rand(t, m, n), rand(t, *batch, n)
    want = product(x.reshape(-1, n), a)
    want.value, want.around = want.value.reshape(*batch, m), want.around.reshape(*batch, m)
    return {"a": a, "x": x}, {}, {"y": want}


@op("gemv_int8")
def gemv_int8(t):
    m, n, batch = size(600), size(2000), [[], [random.randint(1, 9)]][random.random() < 0.5]
    a, x, scales = ints(-128, 128, m, n, t=torch.int8), rand(t, *batch, n), torch.rand(m) / 50
    want = product(x.reshape(-1, n), a.to(WIDE) * scales.to(WIDE)[:, None])
    want.value, want.around = want.value.reshape(*batch, m), want.around.reshape(*batch, m)
    return {"a": a, "scales": scales, "x": x}, {}, {"y": want}


@op("gemm_int8")
def gemm_int8(t):
    m, n, k = size(), size(), size(700)
    a, b = ints(-128, 128, m, k, t=torch.int8), ints(-128, 128, n, k, t=torch.int8)
    sa, sb = torch.rand(m) / 100, torch.rand(n) / 100
    c = (a.to(WIDE) @ b.to(WIDE).T) * sa.to(WIDE)[:, None] * sb.to(WIDE)
    return {"a": a, "a_scales": sa, "b": b, "b_scales": sb}, {"to": name_of(t)}, {"c": Want(c, 1e-6 * c.abs())}


# How much less than f32 the tensor cores keep of a sum of products of 8-bit floats, and of TF32.
FEWER = 100


@op("gemm_fp8", "gemm_fp8_blocks", "gemm_mxfp8")
def gemm_fp8(t, name):
    m, n, k = size(), size(), size(700)
    a, b = rand(torch.float8_e4m3fn, m, k), rand(torch.float8_e4m3fn, n, k)
    if name == "gemm_mxfp8":
        wide_of, groups = 32, -(-k // 32)
        sa, sb = ((2.0 ** ints(-3, 4, rows, groups)).to(torch.float8_e8m0fnu) for rows in (m, n))
        all_a, all_b = sa.to(WIDE), sb.to(WIDE)
    elif name == "gemm_fp8_blocks":
        wide_of, groups = 128, -(-k // 128)
        sa, sb = torch.rand(m, groups) + 0.1, torch.rand(-(-n // 128), groups) + 0.1
        all_a, all_b = sa.to(WIDE), sb.to(WIDE).repeat_interleave(128, 0)[:n]
    else:
        wide_of = k
        sa, sb = torch.rand(m) + 0.1, torch.rand(n) + 0.1
        all_a, all_b = sa.to(WIDE)[:, None], sb.to(WIDE)[:, None]
    want = product(*(x.to(WIDE) * scales.repeat_interleave(wide_of, 1)[:, :k] for x, scales in ((a, all_a), (b, all_b))))
    want.around = want.around * FEWER
    settings = {"to": name_of(t)} | ({} if name == "gemm_fp8_blocks" else {"from": "float8_e4m3fn"})
    return {"a": a, "a_scales": sa, "b": b, "b_scales": sb}, settings, {"c": want}


@op("gemm_tf32", types=(torch.float32,))
def gemm_tf32(t):
    m, n, k = size(), size(), size()
    a, b, c = rand(t, m, k), rand(t, n, k), rand(t, m, n)
    beta = random.choice([0, 0.5])
    want = product(a, b)
    want.value = want.value + beta * c.to(WIDE)
    # 11 bits of either operand count, and what follows may be cut off.
    want.around = want.around * 2**-10 / 1e-6 + 1e-6
    return {"a": a, "b": b, "c": c}, {"beta": beta}, {"c": want}


@op("gemm_grouped", "gemm_grouped_masked", types=HALF)
def gemm_grouped(t, name):
    groups, out, inner = random.randint(1, 5), size(), size()
    weight = rand(t, groups, out, inner)
    counts = [random.choice([0, 1, random.randint(0, 150)]) for _ in range(groups)]
    if name == "gemm_grouped":
        starts = [sum(counts[:g]) for g in range(groups + 1)]
        x = rand(t, max(starts[-1], 1), inner)
        parts = [product(x[starts[g] : starts[g + 1]], weight[g]) for g in range(groups)]
        rest = x.shape[0] - starts[-1]
        # Rows of no group become zeros.
        y, around = (torch.cat([*(getattr(part, of) for part in parts), torch.zeros(rest, out, dtype=WIDE)]) for of in ("value", "around"))
        return {"x": x, "weight": weight, "offsets": torch.tensor(starts, dtype=torch.int32)}, {}, {"y": Want(y, around)}
    rows = max(*counts, 1) + random.randint(0, 20)
    x, y = rand(t, groups, rows, inner), rand(t, groups, rows, out)
    want = product(x, weight)
    counted = (torch.arange(rows) < torch.tensor(counts)[:, None])[..., None]
    # Rows that do not count stay as they were.
    value, around = torch.where(counted, want.value, y.to(WIDE)), torch.where(counted, want.around, 0)
    return {"x": x, "weight": weight, "counts": torch.tensor(counts, dtype=torch.int32), "y": y}, {}, {"y": Want(value, around)}


@op("gemm_w8a16", types=HALF)
def gemm_w8a16(t):
    m, n, k = size(), size(), size(700)
    a, w, s = rand(t, m, k), ints(-128, 128, n, k, t=torch.int8), torch.rand(n) / 100
    return {"a": a, "w": w, "scales": s}, {}, {"c": product(a, w.to(WIDE) * s.to(WIDE)[:, None])}


@op("linear", types=HALF)
def linear(t):
    m, n, k = size(), size(), size(700)
    x, w, bias, residual = rand(t, m, k), rand(t, n, k, scale=0.1), rand(t, n), rand(t, m, n)
    activation = random.choice(["none", "gelu", "silu"])
    want = product(x, w)
    f = {"none": lambda y: y, "gelu": lambda y: F.gelu(y, approximate="tanh"), "silu": F.silu}[activation]
    want.value = f(want.value + bias.to(WIDE)) + residual.to(WIDE)
    # The activation's result is not rounded before the residual is added.
    want.around = 2 * want.around + 4e-6
    return {"x": x, "weight": w, "bias": bias, "residual": residual}, {"activation": activation}, {"y": want}


@op("linear_glu", types=HALF)
def linear_glu(t):
    m, n, k = size(), size(), size(700)
    x, gate, up = rand(t, m, k), rand(t, n, k, scale=0.2), rand(t, n, k, scale=0.2)
    g, u = product(x, gate), product(x, up)
    y = F.silu(g.value) * u.value
    return {"x": x, "gate": gate, "up": up}, {"activation": "silu"}, {"y": Want(y, 2 * (g.around * u.value.abs() + u.around * g.value.abs()) + 1e-6)}


@op("linear_backward", types=HALF)
def linear_backward(t):
    m, n, k = size(), size(), size()
    x, w, dy = rand(t, m, k), rand(t, n, k), rand(t, m, n)
    wants = {"dx": product(dy, w.T), "dweight": product(dy.T, x.T), "dbias": Want(dy.to(WIDE).sum(0), 1e-5)}
    return {"x": x, "weight": w, "dy": dy, "dweight": torch.zeros(n, k), "dbias": torch.zeros(n)}, {"accumulate": "false"}, wants


@op("gemm_grouped_backward", types=HALF)
def gemm_grouped_backward(t):
    groups, out, inner = random.randint(1, 4), size(), size()
    weight = rand(t, groups, out, inner)
    counts = [random.choice([0, 1, random.randint(1, 150)]) for _ in range(groups)]
    starts = [sum(counts[:g]) for g in range(groups + 1)]
    rows = starts[-1] + random.choice([0, 3])
    x, dy = rand(t, max(rows, 1), inner), rand(t, max(rows, 1), out)
    wants = {}
    parts = [product(dy[a:b], w.T) for a, b, w in zip(starts, starts[1:], weight)]
    rest = torch.zeros(x.shape[0] - starts[-1], inner, dtype=WIDE)
    wants["dx"] = Want(*(torch.cat([*(getattr(part, of) for part in parts), rest]) for of in ("value", "around")))
    parts = [product(dy[a:b].T, x[a:b].T) for a, b in zip(starts, starts[1:])]
    wants["dweight"] = Want(*(torch.stack([getattr(part, of) for part in parts]) for of in ("value", "around")))
    given = {"x": x, "weight": weight, "offsets": torch.tensor(starts, dtype=torch.int32), "dy": dy, "dweight": torch.zeros(groups, out, inner)}
    return given, {"accumulate": "false"}, wants


@op("gemm_w4a16", types=HALF)
def gemm_w4a16(t):
    m, n, k = size(), size(), size(700)
    a, w, weight = rand(t, m, k), *of_four_bits(n, k)
    return {"a": a, **{"w" if key == "q" else key: x for key, x in w.items()}}, {}, {"c": product(a, weight)}
