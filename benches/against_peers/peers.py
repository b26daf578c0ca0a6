"""What others are timed with: which operators, by whom, on what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cases import Case, NoPeer, UnknownCase
from lazy import torch

COMPILED = "torch.compile"
Make = Callable[[], tuple[Any, ...]]
Call = Callable[..., Any]


@dataclass(frozen=True)
class Peer:
    """Another implementation of a case."""

    name: str
    # A launch, on what `make` has made. Peers of one `make` share tensors.
    call: Call
    make: Make
    # A module that it needs besides torch.
    needs: str = ""
    # Whether it tries many kernels before it runs one, which takes minutes a shape.
    tunes: bool = False


# What makes an operator's peers from a case, and why others have none, by the names that benchmarks have.
OPS: dict[str, Callable[[Case], list[Peer]]] = {}
WITHOUT: dict[str, str] = {}


def op(*names: str) -> Callable[[Callable[[Case], list[Peer]]], Callable[[Case], list[Peer]]]:
    """Enters a function for each of these operators."""

    def enter(function: Callable[[Case], list[Peer]]) -> Callable[[Case], list[Peer]]:
        OPS.update(dict.fromkeys(names, function))
        return function

    return enter


def without(why: str, *names: str) -> None:
    """Enters operators that nobody else is timed with."""
    WITHOUT.update(dict.fromkeys(names, why))


def peers_of(op_name: str, case_name: str) -> list[Peer]:
    """The peers of a case. Raises `NoPeer` with the reason, or `UnknownCase`."""
    if op_name in WITHOUT:
        raise NoPeer(WITHOUT[op_name])
    if op_name not in OPS:
        raise UnknownCase("no such operator")
    case = Case(op_name, case_name)
    found = OPS[op_name](case)
    case.all_read()
    return found


def compiled(function: Call) -> Call:
    """`torch.compile` of a function, when it is first called. Whole: a part that it leaves to Python would be no fair time."""
    made: list[Call] = []

    def call(*args: Any) -> Any:
        if not made:
            made.append(torch.compile(function, dynamic=False, fullgraph=True))
        return made[0](*args)

    return call


def in_torch(function: Call, make: Make) -> list[Peer]:
    """As it is written, and compiled."""
    return [Peer("torch", function, make), Peer(COMPILED, compiled(function), make)]


def gradient(name: str, function: Call, make: Make, of: int | None = None, needs: str = "") -> Peer:
    """The backward of a function alone, for its first `of` inputs, or all: its graph is built once for each set of tensors."""

    def graph() -> tuple[Any, ...]:
        inputs = make()
        leaves = [x.requires_grad_() for x in inputs[:of]]
        made = function(*leaves, *inputs[len(leaves) :])
        outputs = [made] if torch.is_tensor(made) else list(made)
        return outputs, leaves, [torch.randn_like(y) for y in outputs]

    def backward(outputs: Any, leaves: Any, upstream: Any) -> Any:
        return torch.autograd.grad(outputs, leaves, upstream, retain_graph=True)

    return Peer(name, backward, graph, needs)


def gradients(function: Call, make: Make, of: int | None = None) -> list[Peer]:
    """`gradient` of a function as it is written, and compiled."""
    return [gradient("torch", function, make, of), gradient(COMPILED, compiled(function), make, of)]


def both_ways(function: Call, of: int = 1) -> Call:
    """A loss and its gradients by its first `of` arguments, whose forward runs each time."""

    def call(*args: Any) -> Any:
        return torch.autograd.grad(function(*args), args[:of])

    return call


# Where tensors are; tests of the calls have them on the CPU.
DEVICE = "cuda"


def rand(dtype: str, *dims: int, std: float = 1.0) -> Any:
    """Normally distributed numbers."""
    wide = getattr(torch, dtype)
    if dtype.startswith("float8"):
        return (torch.randn(dims, device=DEVICE) * std).to(wide)
    x = torch.randn(dims, device=DEVICE, dtype=wide)
    return x if std == 1.0 else x.mul_(std)


def uniform(*dims: int, dtype: str = "float32") -> Any:
    """Numbers from a little above 0 to 1, as scales are."""
    return torch.rand(dims, device=DEVICE, dtype=getattr(torch, dtype)) + 0.01


def ints(low: int, high: int, *dims: int, dtype: str = "int64") -> Any:
    """Integers from `low` to below `high`."""
    return torch.randint(low, high, dims, device=DEVICE, dtype=getattr(torch, dtype))
