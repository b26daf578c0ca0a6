"""Matrix products: pointers and tensor descriptors, every element type, split K, attention."""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, IP: tl.constexpr):
    """C = A B with edges; B is K × N, or N × K with BT."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at_a = a + m[:, None] * K + k[None, :]
    if BT:
        at_b = b + n[None, :] * K + k[:, None]
    else:
        at_b = b + k[:, None] * N + n[None, :]
    acc = tl.zeros([BM, BN], tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    for at in range(0, K, BK):
        x = tl.load(at_a, (m[:, None] < M) & (k[None, :] < K - at), other=0.0)
        y = tl.load(at_b, (k[:, None] < K - at) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=IP, out_dtype=acc.dtype)
        at_a += BK
        at_b += BK * (1 if BT else N)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def batched(a, b, c, B: tl.constexpr):
    """Four square products at once."""
    i = tl.arange(0, 4)[:, None, None] * B * B + tl.arange(0, B)[None, :, None] * B + tl.arange(0, B)[None, None, :]
    tl.store(c + i, tl.dot(tl.load(a + i), tl.load(b + i)))


@triton.jit
def split_k(a, b, c, lock, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, S: tl.constexpr):
    """Each of S programs multiplies a part of K; they add into C in turn, each waiting for the one before it."""
    tile, part = tl.program_id(0), tl.program_id(1)
    m = tile // (N // BN) * BM + tl.arange(0, BM)
    n = tile % (N // BN) * BN + tl.arange(0, BN)
    k = part * BK + tl.arange(0, BK)
    at_a, at_b = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in range(0, K, BK * S):
        acc = tl.dot(tl.load(at_a), tl.load(at_b), acc)
        at_a += BK * S
        at_b += BK * S * N
    at_c = c + m[:, None] * N + n[None, :]
    while tl.atomic_cas(lock + tile, part, part) != part:
        pass
    if part > 0:
        acc += tl.load(at_c)
    tl.store(at_c, acc)
    tl.debug_barrier()
    tl.atomic_xchg(lock + tile, (part + 1) % S)


@triton.jit
def host_descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A and B (N × K) by TMA, C stored by TMA; the descriptors are parameters."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(tl.float16))


@triton.jit
def device_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    """The same, persistent, with descriptors that the kernel itself makes in scratch memory. B is K × N."""
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), P, flatten=True):
        m, n = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(da.load([m, k]), db.load([k, n]), acc)
        dc.store([m, n], acc.to(tl.bfloat16))


@triton.jit
def specialised(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Warp-specialised: one warpgroup loads by TMA, two others multiply. B is N × K."""
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        acc = tl.dot(da.load([m, k]), db.load([n, k]).T, acc)
    dc.store([m, n], acc.to(tl.bfloat16))


@triton.jit
def descriptor_atomics(x, out, M, N, B: tl.constexpr):
    """Tiles added into one by the TMA's reduction, rows gathered from outside the tensor read as zero."""
    dx = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    do = tl.make_tensor_descriptor(out, [B, B], [B, 1], [B, B])
    do.atomic_add([0, 0], dx.load([tl.program_id(0) * B - 8, tl.program_id(1) * B]))


@triton.jit
def attention(q, k, v, out, T, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    """Flash attention, forward, one head a program in the second dimension."""
    head = tl.program_id(1) * T * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    at = m[:, None] * D + d[None, :]
    x = tl.load(q + head + at)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else T
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        s = tl.dot(x, tl.trans(tl.load(k + head + n[:, None] * D + d[None, :]))) * (scale * 1.44269504)
        if CAUSAL:
            s = tl.where(m[:, None] >= n[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(q.dtype.element_ty), tl.load(v + head + n[:, None] * D + d[None, :]), acc * shrink[:, None])
        top = new
    tl.store(out + head + at, (acc / total[:, None]).to(out.dtype.element_ty))


KERNELS = {}


def matmuls():
    for name, t, out, ip in [
        ("f16", "*fp16", "*fp16", None),
        ("bf16", "*bf16", "*fp32", None),
        ("i8", "*i8", "*i32", None),
        ("e5m2", "*fp8e5", "*fp32", None),
        ("e4m3", "*fp8e4nv", "*fp32", None),
        ("tf32", "*fp32", "*fp32", "tf32"),
        ("tf32x3", "*fp32", "*fp32", "tf32x3"),
        ("f32", "*fp32", "*fp32", "ieee"),
    ]:
        for arch in (80, 90):
            for bt in (False, True):
                if (name, arch) == ("e4m3", 80):
                    continue
                types = {"a": t, "b": t, "c": out, "M": "i32", "N": "i32", "K": "i32"}
                tile = {"BM": 64, "BN": 64, "BK": 32, "BT": bt, "IP": ip}
                stages = 4 if bt else 3
                KERNELS[f"matmul_{name}{'_t' if bt else ''}_{arch}"] = (matmul, arch, types, tile, {"num_stages": stages})


matmuls()
types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "lock": "*i32", "M": "i32", "N": "i32", "K": "i32"}
for arch in (80, 90):
    for name, t in (("f16", "*fp16"), ("f64", "*fp64")):
        out = "*fp64" if name == "f64" else "*fp32"
        KERNELS[f"batched_{name}_{arch}"] = (batched, arch, {"a": t, "b": t, "c": out}, {"B": 32}, {})
    KERNELS[f"split_k_{arch}"] = (split_k, arch, types, {"BM": 32, "BN": 32, "BK": 32, "S": 3}, {})
    for causal in (False, True):
        types_a = {"q": "*bf16", "k": "*bf16", "v": "*bf16", "out": "*bf16", "T": "i32", "scale": "fp32"}
        tile = {"BM": 64, "BN": 64, "D": 64, "CAUSAL": causal}
        KERNELS[f"attention{'_causal' if causal else ''}_{arch}"] = (attention, arch, types_a, tile, {})
KERNELS["matmul_8warps_90"] = (
    matmul, 90, {"a": "*bf16", "b": "*bf16", "c": "*bf16", "M": "i32", "N": "i32", "K": "i32"},
    {"BM": 128, "BN": 128, "BK": 64, "BT": False, "IP": None}, {"num_warps": 8, "num_stages": 3},
)
types = {"a": "tensordesc<fp16[64,64]>", "b": "tensordesc<fp16[64,64]>", "c": "tensordesc<fp16[64,64]>", "K": "i32"}
KERNELS["host_descriptors_90"] = (
    host_descriptors, 90, types, {"BM": 64, "BN": 64, "BK": 64}, {"num_stages": 4},
)
types = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "M": "i32", "N": "i32", "K": "i32"}
KERNELS["device_descriptors_90"] = (
    device_descriptors, 90, types, {"BM": 64, "BN": 128, "BK": 64, "P": 3}, {"num_stages": 3},
)
KERNELS["specialised_90"] = (specialised, 90, types, {"BM": 128, "BN": 64, "BK": 64}, {"num_stages": 3})
KERNELS["clustered_90"] = (
    matmul, 90, {"a": "*bf16", "b": "*bf16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"},
    {"BM": 128, "BN": 64, "BK": 32, "BT": False, "IP": None}, {"num_ctas": 2},
)
KERNELS["descriptor_atomics_90"] = (
    descriptor_atomics, 90, {"x": "*fp32", "out": "*fp32", "M": "i32", "N": "i32"}, {"B": 32}, {},
)
