"""Products of floating-point matrices, of groups of them, of vectors, and layers."""

from __future__ import annotations

from typing import Any

from cases import Case
from lazy import F, late, torch
from peers import Call, Peer, gradients, in_torch, ints, op, rand

quack_gemm = late("quack.gemm_interface", "gemm")
ACTIVATIONS = ("gelu", "silu", "relu")


def with_precision(precision: str, call: Call) -> Call:
    """Products of f32 by the tensor cores, `high`, or not, `highest`."""

    def wrapped(*args: Any) -> Any:
        torch.set_float32_matmul_precision(precision)
        return call(*args)

    return wrapped


def turned(dtype: str, transposed: bool, rows: int, columns: int, batch: tuple[int, ...] = ()) -> Any:
    """A matrix in memory by rows, or by columns."""
    return rand(dtype, *batch, columns, rows).transpose(-1, -2) if transposed else rand(dtype, *batch, rows, columns)


@op("gemm", "gemm.bf16", "gemm.to_f32")
def gemm(case: Case) -> list[Peer]:
    batch, (m, n, k) = case.get("batch", 0), case.product()
    letters, dtype = case.one_of("NN", "NT", "TN", "TT", default="NT"), case.dtype()
    outer = (batch,) if batch else ()

    def make() -> tuple[Any, ...]:
        return turned(dtype, letters[0] == "T", m, k, outer), turned(dtype, letters[1] == "T", k, n, outer)

    def multiply(a: Any, b: Any) -> Any:
        return torch.bmm(a, b) if batch else torch.mm(a, b)

    def multiply_to_f32(a: Any, b: Any) -> Any:
        return (torch.bmm if batch else torch.mm)(a, b, out_dtype=torch.float32)

    if case.op == "gemm.to_f32":
        return [Peer("torch", multiply_to_f32, make)]
    found = [Peer("torch", multiply, make)]
    # Its TMA loads rows that start at multiples of 16 bytes.
    if all(size % 8 == 0 for size in (m, n, k)):
        found.append(Peer("quack", quack_gemm, make, "quack", tunes=True))
    return found


@op("gemm.f32", "gemm.tf32")
def gemm_f32(case: Case) -> list[Peer]:
    m, n, k = case.product()
    precision = "high" if case.op == "gemm.tf32" else "highest"
    return [Peer("torch", with_precision(precision, torch_mm), lambda: (rand("float32", m, k), rand("float32", k, n)))]


def torch_mm(a: Any, b: Any) -> Any:
    """torch.mm, of which nothing is asked before it is called."""
    return torch.mm(a, b)


@op("gemv")
def gemv(case: Case) -> list[Peer]:
    rows, columns = case.shape()
    by_columns, vectors, dtype = case.flag("column-major"), case.before("vectors", 1), case.dtype()

    def make() -> tuple[Any, ...]:
        x = rand(dtype, columns) if vectors == 1 else rand(dtype, vectors, columns)
        return turned(dtype, by_columns, rows, columns), x

    def multiply(a: Any, x: Any) -> Any:
        return torch.mv(a, x) if vectors == 1 else torch.mm(x, a.t())

    return [Peer("torch", with_precision("highest", multiply), make)]


def activation_of(name: str) -> Call:
    """An activation by its name; the gelu is that by tanh."""
    calls: dict[str, Call] = {
        "gelu": lambda x: F.gelu(x, approximate="tanh"),
        "silu": lambda x: F.silu(x),
        "relu": lambda x: F.relu(x),
        "": lambda x: x,
    }
    return calls[name]


@op("gemm.bf16_bias_gelu")
def linear(case: Case) -> list[Peer]:
    m, n, k = case.product()
    # A name that says nothing is of the first case that there was.
    plain = not case.rest
    bias, activation = case.flag("bias") or plain, case.one_of(*ACTIVATIONS, default="gelu" if plain else "")
    residual, dtype = case.flag("residual"), case.dtype()
    case.flag("nothing")
    through = activation_of(activation)

    def make() -> tuple[Any, ...]:
        more = (*((rand(dtype, n),) if bias else ()), *((rand(dtype, m, n),) if residual else ()))
        return rand(dtype, m, k), rand(dtype, n, k, std=k**-0.5), *more

    def layer(x: Any, weight: Any, *more: Any) -> Any:
        y = through(F.linear(x, weight, more[0] if bias else None))
        return y + more[-1] if residual else y

    found = in_torch(layer, make)
    if bias and activation == "gelu" and not residual:
        fused = lambda x, weight, bias: torch._addmm_activation(bias, x, weight.t(), use_gelu=True)  # noqa: E731
        found.append(Peer("torch._addmm_activation", fused, make))
    return found


@op("gemm.glu")
def linear_glu(case: Case) -> list[Peer]:
    m, n, k = case.product()
    through, dtype = activation_of(case.one_of(*ACTIVATIONS, default="silu")), case.dtype()

    def make() -> tuple[Any, ...]:
        return rand(dtype, m, k), *(rand(dtype, n, k, std=k**-0.5) for _ in range(2))

    return in_torch(lambda x, gate, up: through(F.linear(x, gate)) * F.linear(x, up), make)


@op("gemm.linear_backward")
def linear_backward(case: Case) -> list[Peer]:
    m, n, k = case.product()
    accumulated, dtype = case.flag("accumulated"), case.dtype()

    def make() -> tuple[Any, ...]:
        gradients = (rand("float32", n, k), rand("float32", n)) if accumulated else ()
        return rand(dtype, m, k), rand(dtype, n, k, std=k**-0.5), rand(dtype, m, n), *gradients

    def backward(x: Any, weight: Any, dy: Any, *before: Any) -> Any:
        # The gradients of weights are in the type of the weights, as autograd has them.
        dx, dweight, dbias = dy @ weight, dy.t() @ x, dy.sum(0)
        return (dx, before[0].add_(dweight), before[1].add_(dbias)) if accumulated else (dx, dweight, dbias)

    return in_torch(backward, make)


def ends(rows: int, groups: int) -> Any:
    """Where groups of random sizes end."""
    cuts = ints(0, rows + 1, groups, dtype="int32").sort().values
    cuts[-1] = rows
    return cuts


def grouped(a: Any, b: Any, offsets: Any) -> Any:
    """PyTorch's product of groups, under the name that it has."""
    public = getattr(F, "grouped_mm", None)
    return public(a, b, offs=offsets) if public else torch._grouped_mm(a, b, offs=offsets)


@op("gemm.grouped")
def gemm_grouped(case: Case) -> list[Peer]:
    (groups,), (m, n, k) = case.sizes("groups"), case.product()
    by_rows, dtype = case.one_of("NN", "NT", default="NT") == "NN", case.dtype()

    def make() -> tuple[Any, ...]:
        return rand(dtype, m, k), turned(dtype, not by_rows, k, n, (groups,)), ends(m, groups)

    return [Peer("torch", grouped, make)]


@op("gemm.grouped_backward")
def gemm_grouped_backward(case: Case) -> list[Peer]:
    (groups,), (m, n, k) = case.sizes("groups"), case.product()
    dtype = case.dtype()
    # PyTorch's gradients of weights have their type in any case, and not f32.
    case.flag("rounded")

    def make() -> tuple[Any, ...]:
        return rand(dtype, m, k), rand(dtype, groups, n, k), rand(dtype, m, n), ends(m, groups)

    def backward(x: Any, weight: Any, dy: Any, offsets: Any) -> Any:
        return grouped(dy, weight, offsets), grouped(dy.t(), x, offsets)

    return [Peer("torch", backward, make)]


@op("gemm.grouped_masked")
def gemm_grouped_masked(case: Case) -> list[Peer]:
    (experts,), (_, n, k) = case.sizes("experts"), case.product()
    rows = case.after("of", 0)
    by_rows, dtype = case.one_of("NN", "NT", default="NT") == "NN", case.dtype()

    def make() -> tuple[Any, ...]:
        return rand(dtype, experts, rows, k), turned(dtype, not by_rows, k, n, (experts,))

    # All rows, also those that do not count: how many do is known on the device alone.
    return [Peer("torch", lambda x, weight: torch.bmm(x, weight), make)]


@op("mlp.forward", "mlp.backward")
def perceptron(case: Case) -> list[Peer]:
    layers, batch, width = case.sizes("layers", "batch", "width")
    dtype = case.dtype()

    def make() -> tuple[Any, ...]:
        # With such weights the result of a layer is about as large as its input.
        weights = [rand(dtype, width, width, std=1.5 * width**-0.5) for _ in range(layers)]
        return *weights, *(rand(dtype, width, std=0.1) for _ in range(layers)), rand(dtype, batch, width)

    def forward(*args: Any) -> Any:
        x = args[-1]
        for weight, bias in zip(args[:layers], args[layers : 2 * layers]):
            x = F.gelu(F.linear(x, weight, bias), approximate="tanh")
        return x

    return in_torch(forward, make) if case.op == "mlp.forward" else gradients(forward, make, 2 * layers)
