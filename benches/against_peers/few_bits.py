"""Products with operands of 8 and 4 bits."""

from __future__ import annotations

from typing import Any

from cases import Case
from lazy import torch
from peers import Peer, in_torch, ints, op, rand, uniform, without

# Values of a scale each, and of a scale and zero point each.
GROUP = 128

without("torch._scaled_mm takes scales of 32 elements on Blackwell alone", "gemm.mxfp8")


@op("gemm.fp8")
def gemm_fp8(case: Case) -> list[Peer]:
    (m, n, k), to = case.product(), case.dtype()

    def make() -> tuple[Any, ...]:
        return rand("float8_e4m3fn", m, k), rand("float8_e4m3fn", n, k), uniform(m, 1), uniform(1, n)

    def scaled(a: Any, b: Any, a_scales: Any, b_scales: Any) -> Any:
        kind = getattr(torch, to)
        return torch._scaled_mm(a, b.t(), scale_a=a_scales, scale_b=b_scales, out_dtype=kind, use_fast_accum=True)

    return [Peer("torch._scaled_mm", scaled, make)]


@op("gemm.fp8_blocks")
def gemm_fp8_blocks(case: Case) -> list[Peer]:
    (m, n, k), to = case.product(), case.dtype()

    def make() -> tuple[Any, ...]:
        # The scales of A's rows lie by columns, as cuBLAS wants them.
        scales = uniform(k // GROUP, m).t(), uniform(n // GROUP, k // GROUP).t()
        return rand("float8_e4m3fn", m, k), rand("float8_e4m3fn", n, k), *scales

    def scaled(a: Any, b: Any, a_scales: Any, b_scales: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a=a_scales, scale_b=b_scales, out_dtype=getattr(torch, to))

    return [Peer("torch._scaled_mm", scaled, make)]


@op("gemm.int8")
def gemm_int8(case: Case) -> list[Peer]:
    (m, n, k), to = case.product(), case.dtype()

    def make() -> tuple[Any, ...]:
        operands = (ints(-127, 128, rows, k, dtype="int8") for rows in (m, n))
        return *operands, uniform(m, 1), uniform(1, n)

    def scaled(a: Any, b: Any, a_scales: Any, b_scales: Any) -> Any:
        return (torch._int_mm(a, b.t()) * a_scales * b_scales).to(getattr(torch, to))

    # The product by itself ends with integers of 32 bits: less than what is asked for.
    return [*in_torch(scaled, make), Peer("torch._int_mm", lambda a, b, *_: torch._int_mm(a, b.t()), make)]


@op("gemm.w8a16")
def gemm_w8a16(case: Case) -> list[Peer]:
    (m, n, k), dtype = case.product(), case.dtype()

    def make() -> tuple[Any, ...]:
        return rand(dtype, m, k), ints(-127, 128, n, k, dtype="int8"), uniform(n, dtype=dtype)

    def multiply(a: Any, w: Any, scales: Any) -> Any:
        return (a @ w.to(a.dtype).t()) * scales

    packed = Peer("torch._weight_int8pack_mm", lambda a, w, scales: torch._weight_int8pack_mm(a, w, scales), make)
    return [*in_torch(multiply, make), *([packed] if dtype == "bfloat16" else [])]


@op("gemm.w4a16")
def gemm_w4a16(case: Case) -> list[Peer]:
    (m, n, k), dtype, asymmetric = case.product(), case.dtype(), case.flag("zeros")

    def make() -> tuple[Any, ...]:
        zeros = (ints(0, 16, n, k // GROUP, dtype="uint8"),) if asymmetric else ()
        return rand(dtype, m, k), ints(0, 256, n, k // 2, dtype="uint8"), uniform(n, k // GROUP), *zeros

    def multiply(a: Any, w: Any, scales: Any, *zeros: Any) -> Any:
        return a @ of_four_bits(w, scales, *zeros).to(a.dtype).t()

    def make_packed() -> tuple[Any, ...]:
        # The kernel takes zero points whether they are needed or not.
        weight = torch.ops.aten._convert_weight_to_int4pack(ints(0, 256, n, k // 2, dtype="uint8"), 8)
        return rand(dtype, m, k), weight, rand(dtype, k // GROUP, n, 2)

    def multiply_packed(a: Any, weight: Any, scales_and_zeros: Any) -> Any:
        return torch.ops.aten._weight_int4pack_mm(a, weight, GROUP, scales_and_zeros)

    packed = Peer("torch._weight_int4pack_mm", multiply_packed, make_packed)
    return [*in_torch(multiply, make), *([packed] if dtype == "bfloat16" else [])]


def of_four_bits(w: Any, scales: Any, zeros: Any = None) -> Any:
    """What integers of 4 bits, two a byte, stand for, in f32."""
    values = torch.stack((w & 15, w >> 4), -1).reshape(w.shape[0], -1, GROUP).float()
    values = values - (8 if zeros is None else zeros.float()[..., None])
    return (values * scales[..., None]).reshape(w.shape[0], -1)


@op("gemv.int8")
def gemv_int8(case: Case) -> list[Peer]:
    rows, columns = case.shape()
    by_columns, vectors = case.flag("column-major"), case.before("vectors", 1)
    case.flag("x")
    dtype = case.dtype()

    def make() -> tuple[Any, ...]:
        a = ints(-127, 128, columns, rows, dtype="int8").t() if by_columns else ints(-127, 128, rows, columns, dtype="int8")
        return a, uniform(rows, dtype=dtype), rand(dtype, vectors, columns)

    return in_torch(lambda a, scales, x: (x @ a.to(x.dtype).t()) * scales, make)
