"""Numbers of few bits, and the optimizer."""

import random

import torch
import torch.nn.functional as F

from common import FLOATS, HALF, WIDE, Want, ints, name_of, of_four_bits, op, rand, shape, size


@op("dequantize_fp8", types=(torch.float8_e4m3fn, torch.float8_e5m2))
def dequantize_fp8(t):
    rows, d, to = size(), size(700), random.choice(FLOATS)
    q, tall = rand(t, rows, d, scale=8), random.choice([1, 128])
    scales = torch.rand(-(-rows // tall), -(-d // 128)) + 0.01
    y = q.to(WIDE) * scales.to(WIDE).repeat_interleave(tall, 0)[:rows].repeat_interleave(128, 1)[:, :d]
    return {"q": q, "scales": scales}, {"to": name_of(to)}, {"y": Want(y)}


@op("quantize_rows_int8")
def quantize_rows_int8(t):
    x = rand(t, size(), size(3000), scale=5)
    w = x.to(WIDE)
    scales = w.abs().amax(-1) / 127
    # A quotient in the middle of two integers may become either.
    q = torch.where(scales[:, None] > 0, w / scales[:, None], 0)
    return {"x": x}, {}, {"scales": Want(scales), "q": Want(q, 0.5001)}


@op("adamw", types=(torch.float32,))
def adamw(t):
    dims, step = shape(), random.randint(1, 20)
    p, g, m = rand(t, *dims), rand(t, *dims), rand(t, *dims, scale=0.1)
    v = torch.rand(*dims) * 0.01
    w = p.to(WIDE).clone().requires_grad_()
    w.grad = g.to(WIDE)
    of_torch = torch.optim.AdamW([w], lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    of_torch.state[w] = {"step": torch.tensor(float(step - 1)), "exp_avg": m.to(WIDE).clone(), "exp_avg_sq": v.to(WIDE).clone()}
    of_torch.step()
    state = of_torch.state[w]
    wants = {"params": Want(w.detach(), 1e-6), "m": Want(state["exp_avg"], 1e-6), "v": Want(state["exp_avg_sq"], 1e-8)}
    return {"params": p, "grads": g, "m": m, "v": v}, {"step": step}, wants


@op("clip_grad")
def clip_grad(t):
    g, norm = rand(t, *shape()), torch.rand(1) * 3
    y = g.to(WIDE) * min(1.0, 1.0 / (norm.item() + 1e-6))
    return {"grads": g, "norm": norm}, {"max_norm": 1}, {"grads": Want(y, 1e-6 * y.abs())}


@op("dequantize_int8", types=FLOATS)
def dequantize_int8(t):
    rows, d = size(), size(700)
    q, scales, zero = ints(-128, 128, rows, d, t=torch.int8), torch.rand(random.choice([(1,), (rows,), (1, d)])) + 0.01, ints(-100, 100, 1)
    by = scales.to(WIDE)[:, None] if scales.shape == (rows,) and rows > 1 else scales.to(WIDE)
    return {"q": q, "scales": scales, "zero": zero}, {"to": name_of(t)}, {"y": Want((q.to(WIDE) - zero) * by)}


@op("dequantize_mxfp8", types=(torch.float8_e4m3fn, torch.float8_e5m2))
def dequantize_mxfp8(t):
    rows, d, to = size(), size(700), random.choice(FLOATS)
    q, along_rows = rand(t, rows, d, scale=8), random.random() < 0.5
    # One scale for each 32 of a row or of a column; they tell which by their shape.
    dims = (rows, -(-d // 32)) if along_rows else (-(-rows // 32), d)
    if dims == (-(-rows // 32), d):
        along_rows = False
    scales = (2.0 ** ints(-4, 5, *dims)).to(torch.float8_e8m0fnu)
    s = scales.to(WIDE)
    s = s.repeat_interleave(32, 1)[:, :d] if along_rows else s.repeat_interleave(32, 0)[:rows]
    return {"q": q, "scales": scales}, {"to": name_of(to)}, {"y": Want(q.to(WIDE) * s)}


@op("quantize_int8")
def quantize_int8(t):
    x = rand(t, *shape(), scale=5)
    scale = x.to(WIDE).abs().max() / 127
    return {"x": x}, {}, {"scale": Want(scale.reshape(1)), "q": Want(x.to(WIDE) / scale, 0.5001), "zero": Want(torch.zeros(1), exact=True)}


@op("quantize_fp8_1x128")
def quantize_fp8_1x128(t):
    rows, d, to = size(), size(1000), random.choice([torch.float8_e4m3fn, torch.float8_e5m2])
    x = rand(t, rows, d, scale=5)
    groups = -(-d // 128)
    padded = F.pad(x.to(WIDE), (0, groups * 128 - d)).reshape(rows, groups, 128)
    scales = padded.abs().amax(-1) / torch.finfo(to).max
    q = (padded / scales[..., None]).nan_to_num().reshape(rows, -1)[:, :d]
    # Half a unit in the last place, and half a step below the normal numbers.
    around = q.abs() * (2**-4 if to == torch.float8_e4m3fn else 2**-3) * 1.001 + (2**-10 if to == torch.float8_e4m3fn else 2**-17)
    return {"x": x}, {"to": name_of(to)}, {"scales": Want(scales), "q": Want(q, around)}


@op("dequantize_int4", types=FLOATS)
def dequantize_int4(t):
    d = size(700)
    given, values = of_four_bits(size(), d)
    return given, {"to": name_of(t), "odd": str(d % 2 == 1).lower()}, {"y": Want(values)}


@op("quantize_columns_int8")
def quantize_columns_int8(t):
    x = rand(t, size(), size(700), scale=5)
    scales = x.to(WIDE).abs().amax(0) / 127
    return {"x": x}, {}, {"scales": Want(scales, 1e-30), "q": Want((x.to(WIDE) / scales).nan_to_num(), 0.5001)}


@op("adamw_master", types=FLOATS)
def adamw_master(t):
    dims, step = shape(), random.randint(1, 20)
    master, g, m, v = rand(torch.float32, *dims), rand(t, *dims), rand(torch.float32, *dims, scale=0.1), torch.rand(*dims) * 0.01
    w = master.to(WIDE).clone().requires_grad_()
    w.grad = g.to(WIDE)
    of_torch = torch.optim.AdamW([w], lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    of_torch.state[w] = {"step": torch.tensor(float(step - 1)), "exp_avg": m.to(WIDE).clone(), "exp_avg_sq": v.to(WIDE).clone()}
    of_torch.step()
    wants = {"master": Want(w.detach(), 1e-6), "params": Want(w.detach(), 1e-6)}
    to = name_of(random.choice(HALF) if t == torch.float32 else t)
    return {"master": master, "grads": g, "m": m, "v": v}, {"step": step, "to": to}, wants
