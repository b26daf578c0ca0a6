"""Quantization and back: by PyTorch as it is written, and compiled. None of the other libraries has it."""

from __future__ import annotations

from typing import Any

from cases import Case
from few_bits import GROUP, of_four_bits
from lazy import F, torch
from peers import Call, Peer, in_torch, ints, op, rand, uniform
from rows import rms_norm

FP8 = "float8_e4m3fn"
MOST = 448.0


def tiles(x: Any, height: int, width: int) -> Any:
    """A matrix as tiles: rows of tiles, height, columns of tiles, width."""
    return x.reshape(x.shape[0] // height, height, x.shape[1] // width, width)


def to_fp8(x: Any, height: int, width: int) -> Any:
    """With a scale a tile, its greatest element over the greatest of the type."""
    wide = tiles(x.float(), height, width)
    scales = wide.abs().amax((1, 3), keepdim=True) / MOST
    return (wide / scales).to(torch.float8_e4m3fn).reshape(x.shape), scales[:, 0, :, 0]


def to_mxfp8(x: Any, height: int, width: int) -> Any:
    """With a power of two a tile, whose exponent is a byte."""
    wide = tiles(x.float(), height, width)
    exponents = torch.floor(torch.log2(wide.abs().amax((1, 3), keepdim=True))) - 8
    q = (wide * torch.exp2(-exponents)).clamp(-MOST, MOST).to(torch.float8_e4m3fn)
    return q.reshape(x.shape), (exponents + 127).to(torch.uint8)[:, 0, :, 0]


def to_int8(x: Any, dim: int | None) -> Any:
    """With a scale for all, a row (1) or a column (0)."""
    wide = x.float()
    most = wide.abs().amax() if dim is None else wide.abs().amax(dim, keepdim=True)
    return torch.round(wide / (most / 127.0)).to(torch.int8), most / 127.0


def swiglu_to_fp8(gate: Any, up: Any) -> Any:
    """What the next product takes."""
    return to_fp8(F.silu(gate) * up, 1, GROUP)


# By operator: the function of a matrix, with rows of weights if it takes any.
TO_BYTES: dict[str, Call] = {
    "quant.int8": lambda x: to_int8(x, None),
    "quant.rows_int8": lambda x: to_int8(x, 1),
    "quant.columns_int8": lambda x: to_int8(x, 0),
    "quant.fp8_1x128": lambda x: to_fp8(x, 1, 128),
    "quant.fp8_128x128": lambda x: to_fp8(x, 128, 128),
    "quant.mxfp8_1x32": lambda x: to_mxfp8(x, 1, 32),
    "quant.mxfp8_32x1": lambda x: to_mxfp8(x, 32, 1),
    "quant.rms_norm_int8": lambda x, weight: to_int8(rms_norm(x, weight), 1),
    "quant.rms_norm_fp8_1x128": lambda x, weight: to_fp8(rms_norm(x, weight), 1, 128),
    "quant.swiglu_fp8_1x128": swiglu_to_fp8,
}


def dims_of(case: Case) -> tuple[int, int]:
    """Rows and columns, however the name has them."""
    if n := case.get("n", 0):
        return n // (1 << 14), 1 << 14
    rows, d = case.sizes("rows", "d") if case.has("rows") else case.shape()
    return rows, d


@op(*TO_BYTES)
def quantize(case: Case) -> list[Peer]:
    (rows, d), dtype = dims_of(case), case.dtype()

    def make() -> tuple[Any, ...]:
        more = ((rows, d),) if "swiglu" in case.op else ((d,),) if "norm" in case.op else ()
        return rand(dtype, rows, d), *(rand(dtype, *dims) for dims in more)

    return in_torch(TO_BYTES[case.op], make)


@op("quant.int4")
def quantize_int4(case: Case) -> list[Peer]:
    (rows, d), dtype, asymmetric = dims_of(case), case.dtype(), case.flag("asymmetric")

    def pack(q: Any) -> Any:
        pairs = q.to(torch.uint8).reshape(rows, -1, 2)
        return pairs[..., 0] | (pairs[..., 1] << 4)

    def symmetric(x: Any) -> Any:
        wide = x.float().reshape(rows, -1, GROUP)
        scales = wide.abs().amax(-1, keepdim=True) / 7.0
        return pack(torch.round(wide / scales).clamp(-8, 7) + 8), scales[..., 0]

    def with_zeros(x: Any) -> Any:
        wide = x.float().reshape(rows, -1, GROUP)
        low, high = wide.amin(-1, keepdim=True), wide.amax(-1, keepdim=True)
        scales = (high - low) / 15.0
        zeros = torch.round(-low / scales)
        return pack((torch.round(wide / scales) + zeros).clamp(0, 15)), scales[..., 0], zeros[..., 0].to(torch.uint8)

    return in_torch(with_zeros if asymmetric else symmetric, lambda: (rand(dtype, rows, d),))


@op("quant.dequantize_int4")
def dequantize_int4(case: Case) -> list[Peer]:
    (rows, d), dtype, asymmetric = dims_of(case), case.dtype(), case.flag("zeros")

    def make() -> tuple[Any, ...]:
        zeros = (ints(0, 16, rows, d // GROUP, dtype="uint8"),) if asymmetric else ()
        return ints(0, 256, rows, d // 2, dtype="uint8"), uniform(rows, d // GROUP), *zeros

    return in_torch(lambda *args: of_four_bits(*args).to(getattr(torch, dtype)), make)


@op("quant.dequantize_int8")
def dequantize_int8(case: Case) -> list[Peer]:
    (rows, d), dtype, by_column = dims_of(case), case.dtype(), case.flag("columns")

    def make() -> tuple[Any, ...]:
        return ints(-127, 128, rows, d, dtype="int8"), uniform(1, d) if by_column else uniform(rows, 1)

    return in_torch(lambda q, scales: (q * scales).to(getattr(torch, dtype)), make)


@op("quant.dequantize_fp8", "quant.dequantize_mxfp8")
def dequantize_fp8(case: Case) -> list[Peer]:
    (rows, d), (height, width), dtype = case.shape(), case.shape(), case.dtype()
    exponents = case.op == "quant.dequantize_mxfp8"
    counts = rows // height, d // width

    def make() -> tuple[Any, ...]:
        return rand(FP8, rows, d), ints(120, 134, *counts, dtype="uint8") if exponents else uniform(*counts)

    def widen(q: Any, scales: Any) -> Any:
        factors = torch.exp2(scales.float() - 127) if exponents else scales
        y = tiles(q.float(), height, width) * factors[:, None, :, None]
        return y.reshape(q.shape).to(getattr(torch, dtype))

    return in_torch(widen, make)
