"""Operators of elements and their gradients, random numbers, copies."""

from __future__ import annotations

from typing import Any

from cases import Case, UnknownCase
from lazy import F, late, torch
from peers import Call, Peer, gradient, gradients, in_torch, op, rand, without

LIGER = "liger_kernel"
# Columns of what Liger's kernels take by rows.
WIDTH = 8192

without("it keeps what its gradient needs: autograd does so in the peers of ew.sigmoid3", "ew.sigmoid3_saved", "ew.sigmoid3_saved_backward")
without("a time of ours alone", "launch_overhead", "cold_start")


def gelu(x: Any) -> Any:
    """By tanh."""
    return F.gelu(x, approximate="tanh")


def sigmoid3(x: Any) -> Any:
    """A formula of several steps."""
    return torch.sigmoid(torch.sigmoid(torch.sigmoid(x)))


UNARY: dict[str, Call] = {
    "ew.gelu_tanh": gelu,
    "ew.map": lambda x: F.relu(x).square(),
    "ew.relu": lambda x: F.relu(x),
    "ew.sigmoid": lambda x: torch.sigmoid(x),
    "ew.sigmoid3": sigmoid3,
    "ew.silu": lambda x: F.silu(x),
    "ew.sin2_cos2": lambda x: torch.sin(x).square() + torch.cos(x).square(),
    "ew.tanh": lambda x: torch.tanh(x),
}
GATED: dict[str, Call] = {
    "ew.swiglu": lambda gate, up: F.silu(gate) * up,
    "ew.geglu": lambda gate, up: gelu(gate) * up,
    "ew.geglu_erf": lambda gate, up: F.gelu(gate) * up,
}
OF_LIGER = {
    "ew.swiglu": late("liger_kernel.ops.swiglu", "LigerSiLUMulFunction.apply"),
    "ew.geglu": late("liger_kernel.ops.geglu", "LigerGELUMulFunction.apply"),
}


def dims_of(case: Case) -> tuple[int, ...]:
    """One long row in rows of a usual width, or as the name has it."""
    if n := case.get("n", 0):
        return (n // WIDTH, WIDTH) if n % WIDTH == 0 else (1, n)
    return case.sizes("rows", "d")


def count(names: dict[str, Call]) -> list[str]:
    """These operators and their gradients."""
    return [*names, *(f"{name}_backward" for name in names)]


@op(*count(UNARY), *count(GATED))
def elementwise(case: Case) -> list[Peer]:
    name, back = case.op.removesuffix("_backward"), case.op.endswith("_backward")
    inputs = 2 if name in GATED else 1
    function = GATED[name] if name in GATED else UNARY[name]
    dims, dtype = dims_of(case), case.dtype()

    def make() -> tuple[Any, ...]:
        return tuple(rand(dtype, *dims) for _ in range(inputs))

    liger = OF_LIGER.get(name)
    if back:
        return [*gradients(function, make), *([gradient("liger", liger, make, needs=LIGER)] if liger else [])]
    return [*in_torch(function, make), *([Peer("liger", liger, make, LIGER)] if liger else [])]


@op("ew.add", "ew.zip")
def of_several(case: Case) -> list[Peer]:
    dims, dtype = dims_of(case), case.dtype()
    add = case.op == "ew.add"
    function: Call = (lambda x, y: x + y) if add else (lambda x, a, b: x + a * b * 0.5)
    return in_torch(function, lambda: tuple(rand(dtype, *dims) for _ in range(2 if add else 3)))


@op("ew.bias_mask_scale_add")
def bias_mask_scale_add(case: Case) -> list[Peer]:
    rows, d = dims_of(case)
    dtype = case.dtype()

    def make() -> tuple[Any, ...]:
        mask = (rand(dtype, rows, d) > 0).to(getattr(torch, dtype))
        return rand(dtype, rows, d), rand(dtype, d), mask, rand(dtype, rows, d)

    return in_torch(lambda x, bias, mask, residual: (x + bias) * mask * 0.5 + residual, make)


@op("ew.cast")
def cast(case: Case) -> list[Peer]:
    dims, dtype = dims_of(case), case.dtype()
    if not case.flag("to"):
        raise UnknownCase("a cast to nothing")
    to = case.dtype()
    return in_torch(lambda x: x.to(getattr(torch, to), copy=True), lambda: (rand(dtype, *dims),))


@op("ew.copy", "ceiling.copy")
def copy(case: Case) -> list[Peer]:
    gibibyte = case.flag("1GiB")
    dims, dtype = (1, 1 << 28) if gibibyte else dims_of(case), case.dtype("float32")
    return [Peer("torch", lambda y, x: y.copy_(x), lambda: (rand(dtype, *dims), rand(dtype, *dims)))]


@op("ew.fill", "random.uniform", "random.normal")
def fill(case: Case) -> list[Peer]:
    dims, dtype = dims_of(case), case.dtype()
    calls: dict[str, Call] = {
        "ew.fill": lambda y: y.fill_(1.5),
        "random.uniform": lambda y: y.uniform_(),
        "random.normal": lambda y: y.normal_(),
    }
    return in_torch(calls[case.op], lambda: (rand(dtype, *dims),))


@op("random.dropout", "random.dropout_backward")
def dropout(case: Case) -> list[Peer]:
    dims, p, dtype = dims_of(case), case.number("p", 0.1), case.dtype()
    make = lambda: (rand(dtype, *dims),)  # noqa: E731
    drop = lambda x: F.dropout(x, p)  # noqa: E731
    return in_torch(drop, make) if case.op == "random.dropout" else gradients(drop, make)
