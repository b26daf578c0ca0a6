"""Everything that is not a matrix product: element-wise work, reductions, scans, atomics, locks."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def softmax(x, out, stride, cols, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * stride + i, i < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), i < cols)


@triton.jit
def layer_norm(x, out, w, b, cols, eps, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([B], tl.float32)
    for at in range(0, cols, B):
        i = at + tl.arange(0, B)
        total += tl.load(x + row * cols + i, i < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / cols
    square = tl.zeros([B], tl.float32)
    for at in range(0, cols, B):
        i = at + tl.arange(0, B)
        d = tl.where(i < cols, tl.load(x + row * cols + i, i < cols, other=0.0).to(tl.float32) - mean, 0.0)
        square += d * d
    scale = 1 / tl.sqrt(tl.sum(square, 0) / cols + eps)
    for at in range(0, cols, B):
        i = at + tl.arange(0, B)
        v = (tl.load(x + row * cols + i, i < cols).to(tl.float32) - mean) * scale
        v = v * tl.load(w + i, i < cols) + tl.load(b + i, i < cols)
        tl.store(out + row * cols + i, v, i < cols)


@triton.jit
def math(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(out + i, tl.sin(v))
    tl.store(out + n + i, tl.sigmoid(v))
    tl.store(out + 2 * n + i, libdevice.tanh(v))
    tl.store(out + 3 * n + i, tl.erf(v))
    tl.store(out + 4 * n + i, tl.log2(tl.abs(v)) + tl.exp2(v))
    tl.store(out + 5 * n + i, tl.rsqrt(tl.abs(v)) + tl.floor(v) - tl.ceil(v))
    tl.store(out + 6 * n + i, libdevice.pow(tl.abs(v), 1.7) + libdevice.atan2(v, 0.3))
    tl.store(out + 7 * n + i, v.to(tl.float16).to(tl.float32) + v.to(tl.bfloat16).to(tl.float32))


@triton.jit
def fp8(x, out, back, n, B: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i).to(T)
    tl.store(out + i, v.to(tl.uint8, bitcast=True))
    tl.store(back + i, v.to(tl.float32))


@triton.jit
def integers(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + n + i, a % b)
    tl.store(out + 2 * n + i, tl.umulhi(a.to(tl.uint32, bitcast=True), b.to(tl.uint32, bitcast=True)))
    tl.store(out + 3 * n + i, tl.where(a > b, a << (b & 7), a >> (b & 15)))
    tl.store(out + 4 * n + i, tl.cdiv(a, b) ^ (a.to(tl.int64) * b).to(tl.int32))
    tl.store(out + 5 * n + i, tl.minimum(a, b) | (tl.maximum(a, b) & ~a))


@triton.jit
def random(out, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.randint(seed, i))


@triton.jit
def cumsum(x, out, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.cumsum(v, 1))
    tl.store(out + R * C + at, tl.cumsum(v, 0, reverse=True))


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence(a, b, out, B: tl.constexpr):
    i = tl.arange(0, B)
    _, h = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, affine)
    tl.store(out + i, h)


@triton.jit
def arg_extremes(x, value, index, C: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, C)
    v = tl.load(x + row * C + i)
    m, k = tl.max(v, 0, return_indices=True)
    tl.store(value + row, m)
    tl.store(index + 2 * row, k)
    tl.store(index + 2 * row + 1, tl.argmin(v, 0))


@triton.jit
def sort(x, out, C: tl.constexpr):
    i = tl.program_id(0) * C + tl.arange(0, C)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def histogram(x, out, n, B: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    h = tl.histogram(tl.load(x + i, i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(out + tl.arange(0, BINS), h, sem="relaxed")


@triton.jit
def transpose(x, out, rows, cols, B: tl.constexpr):
    r, c = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    v = tl.load(x + r[:, None] * cols + c[None, :], inside)
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(v), tl.trans(inside))


@triton.jit
def gather(x, index, out, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), 0))


@triton.jit
def atomics(x, f, h, i, n, B: tl.constexpr):
    """Reductions of every kind into one element, and scattered additions."""
    k = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + k, k < n, other=0.0)
    tl.atomic_add(f, tl.sum(v, 0))
    tl.atomic_max(f + 1, tl.max(v, 0))
    tl.atomic_min(f + 2, tl.min(v, 0))
    tl.atomic_add(f + 4 + k % 16, v, k < n)
    tl.atomic_add(h + k % 16, v.to(tl.float16), k < n)
    tl.atomic_or(i, tl.program_id(0) + 1)
    tl.atomic_max(i + 1, tl.program_id(0))
    tl.atomic_xchg(i + 2, 7)


@triton.jit
def half_atomics(x, out, n, B: tl.constexpr):
    """Without masks, in other scopes and orders; neighbours in one instruction where the hardware can."""
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.atomic_add(out + i // 2, v, sem="relaxed", scope="cta")
    tl.atomic_add(out + i, v, sem="release", scope="sys")


@triton.jit
def last_block(x, part, count, out, n, B: tl.constexpr, P: tl.constexpr):
    """Every program stores its sum; the last to finish adds the sums up."""
    k = tl.program_id(0)
    i = k * B + tl.arange(0, B)
    tl.store(part + k, tl.sum(tl.load(x + i, i < n, other=0.0), 0))
    tl.debug_barrier()
    if tl.atomic_add(count, 1) == tl.num_programs(0) - 1:
        p = tl.arange(0, P)
        tl.store(out, tl.sum(tl.load(part + p, p < tl.num_programs(0), other=0.0), 0))


@triton.jit
def locked(x, out, lock, cols, B: tl.constexpr):
    """Rows added into one under a lock, as the layer-norm tutorial does."""
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * cols + i, i < cols)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(lock + 1) == 0:
        tl.atomic_xchg(lock + 1, 1)
    else:
        v += tl.load(out + i, i < cols)
    tl.store(out + i, v, i < cols)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def chained_scan(x, out, flags, sums, B: tl.constexpr):
    """A prefix sum over blocks, each of which waits for the one before it."""
    k = tl.program_id(0)
    i = k * B + tl.arange(0, B)
    v = tl.cumsum(tl.load(x + i), 0)
    before = 0
    if k > 0:
        while tl.atomic_cas(flags + k - 1, 1, 1) != 1:
            pass
        before = tl.load(sums + k - 1)
    tl.store(sums + k, before + tl.max(v, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flags + k, 1)
    tl.store(out + i, v + before)


@triton.jit
def printing(x):
    tl.device_print("value", tl.load(x + tl.arange(0, 32)))


@triton.jit
def asserting(x, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.device_assert(v < 100, "too large")
    tl.store(x + tl.arange(0, B), v + 1)


KERNELS = {}


def both(fn, types, constants, **options):
    for arch in (80, 90):
        KERNELS[f"{fn.__name__}_{arch}"] = (fn, arch, types, constants, options)


F, I, H = "*fp32", "*i32", "*fp16"
both(add, {"x": F, "y": F, "out": F, "n": "i32"}, {"B": 1024})
both(softmax, {"x": F, "out": F, "stride": "i32", "cols": "i32"}, {"B": 1024})
both(layer_norm, {"x": H, "out": H, "w": F, "b": F, "cols": "i32", "eps": "fp32"}, {"B": 256})
both(math, {"x": F, "out": F, "n": "i32"}, {"B": 256})
# Four elements a thread: with fewer, the conversions of sm_80 read registers that nobody wrote.
KERNELS["fp8_e4m3"] = (fp8, 90, {"x": F, "out": "*u8", "back": F, "n": "i32"}, {"B": 512, "T": tl.float8e4nv}, {})
KERNELS["fp8_e5m2"] = (fp8, 90, {"x": F, "out": "*u8", "back": F, "n": "i32"}, {"B": 512, "T": tl.float8e5}, {})
KERNELS["fp8_e5m2_80"] = (fp8, 80, {"x": F, "out": "*u8", "back": F, "n": "i32"}, {"B": 512, "T": tl.float8e5}, {})
both(integers, {"x": I, "y": I, "out": I, "n": "i32"}, {"B": 256})
both(random, {"out": I, "seed": "i32"}, {"B": 256})
both(cumsum, {"x": F, "out": F}, {"R": 32, "C": 64})
both(recurrence, {"a": F, "b": F, "out": F}, {"B": 512})
both(arg_extremes, {"x": F, "value": F, "index": I}, {"C": 512})
both(sort, {"x": I, "out": I}, {"C": 256})
both(histogram, {"x": I, "out": I, "n": "i32"}, {"B": 512, "BINS": 64})
both(transpose, {"x": F, "out": F, "rows": "i32", "cols": "i32"}, {"B": 64})
both(gather, {"x": F, "index": I, "out": F}, {"R": 64, "C": 32})
both(atomics, {"x": F, "f": F, "h": H, "i": I, "n": "i32"}, {"B": 256})
both(half_atomics, {"x": "*bf16", "out": "*bf16", "n": "i32"}, {"B": 256})
both(last_block, {"x": F, "part": F, "count": I, "out": F, "n": "i32"}, {"B": 256, "P": 16})
both(locked, {"x": F, "out": F, "lock": I, "cols": "i32"}, {"B": 256})
both(chained_scan, {"x": I, "out": I, "flags": I, "sums": I}, {"B": 256})
both(printing, {"x": F}, {}, num_warps=1)
both(asserting, {"x": I, "B": "constexpr"}, {"B": 128}, debug=True)
