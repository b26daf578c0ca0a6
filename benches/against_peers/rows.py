"""Operators of rows: softmax, norms and their gradients, reductions, sampling."""

from __future__ import annotations

from typing import Any

from cases import Case
from lazy import F, late, torch
from peers import Call, Peer, gradient, gradients, in_torch, op, rand

LIGER, QUACK = "liger_kernel", "quack"
EPS = 1e-6
liger_softmax = late("liger_kernel.ops.softmax", "LigerSoftmaxFunction.apply")
liger_rms_norm = late("liger_kernel.ops.rms_norm", "LigerRMSNormFunction.apply")
liger_layer_norm = late("liger_kernel.ops.layer_norm", "LigerLayerNormFunction.apply")
liger_add_rms_norm = late("liger_kernel.ops.fused_add_rms_norm", "LigerFusedAddRMSNormFunction.apply")
quack_softmax = late("quack.softmax", "softmax")
quack_rms_norm = late("quack.rmsnorm", "rmsnorm")
quack_layer_norm = late("quack.rmsnorm", "layernorm_fwd")
quack_top_k = late("quack.topk", "topk")


def rms_norm(x: Any, weight: Any) -> Any:
    """Of rows."""
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


def add_rms_norm(x: Any, residual: Any, weight: Any) -> Any:
    """The sum, and its norm."""
    r = x + residual
    return r, rms_norm(r, weight)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """Of rows."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def liger_norm(x: Any, weight: Any) -> Any:
    """Liger's, whose gradient does not take the place of dy."""
    return liger_rms_norm(x, weight, EPS, 0.0, "llama", False)


# By operator: PyTorch's function, how many rows of weights it has behind how many inputs, and what others have.
FUNCTIONS: dict[str, tuple[Call, int, int, dict[str, Call]]] = {
    "row.softmax": (lambda x: F.softmax(x, -1), 1, 0, {LIGER: liger_softmax, QUACK: quack_softmax}),
    "row.log_softmax": (lambda x: F.log_softmax(x, -1), 1, 0, {}),
    "row.rmsnorm": (rms_norm, 1, 1, {LIGER: liger_norm, QUACK: lambda x, weight: quack_rms_norm(x, weight, eps=EPS)}),
    "row.layernorm": (layer_norm, 1, 2, {LIGER: lambda x, weight, bias: liger_layer_norm(x, weight, bias, EPS)}),
    "row.add_rmsnorm": (
        add_rms_norm,
        2,
        1,
        {
            LIGER: lambda x, residual, weight: liger_add_rms_norm(x, residual, weight, EPS),
            QUACK: lambda x, residual, weight: quack_rms_norm(x, weight, residual=residual, eps=EPS, prenorm=True),
        },
    ),
    # A formula of the user's own.
    "row.row": (lambda x, weight: F.gelu(rms_norm(x, weight), approximate="tanh"), 1, 1, {}),
}
SHORT = {LIGER: "liger", QUACK: "quack"}


@op(*FUNCTIONS, *(f"{name}_backward" for name in FUNCTIONS))
def rows(case: Case) -> list[Peer]:
    name = case.op.removesuffix("_backward")
    function, inputs, weights, others = FUNCTIONS[name]
    n, d = case.sizes("rows", "d")
    dtype = case.dtype()

    def make() -> tuple[Any, ...]:
        return *(rand(dtype, n, d) for _ in range(inputs)), *(rand(dtype, d) for _ in range(weights))

    if case.op.endswith("_backward"):
        found = [gradient(SHORT[module], call, make, needs=module) for module, call in others.items()]
        return [*gradients(function, make), *found]
    found = [Peer(SHORT[module], call, make, module) for module, call in others.items()]
    if name == "row.layernorm":
        found.append(Peer("quack", quack_layer_norm, lambda: (rand(dtype, n, d), rand("float32", d), rand("float32", d)), QUACK))
    return [*in_torch(function, make), *found]


REDUCTIONS: dict[str, Call] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "max": lambda x: x.amax(-1),
    "l2_norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "argmax": lambda x: x.argmax(-1),
}


@op(*(f"reduce.{name}{rows}" for name in REDUCTIONS for rows in ("", "_rows")))
def reduce(case: Case) -> list[Peer]:
    name = case.op.removeprefix("reduce.")
    call = REDUCTIONS[name.removesuffix("_rows")]
    n, d = case.sizes("rows", "d")
    dims, dtype = (n, d) if name.endswith("_rows") else (n * d,), case.dtype()
    return in_torch(call, lambda: (rand(dtype, *dims),))


@op("reduce.top_k")
def top_k(case: Case) -> list[Peer]:
    n, d, k = case.sizes("rows", "d", "k")
    dtype = case.dtype()
    make = lambda: (rand(dtype, n, d),)  # noqa: E731
    found = in_torch(lambda x: torch.topk(x, k, -1), make)
    # What QuACK's kernel is for: powers of two.
    if d <= 4096 and k <= 128 and d & (d - 1) == 0 and k & (k - 1) == 0:
        found.append(Peer("quack", lambda x: quack_top_k(x, k), make, QUACK))
    return found


@op("random.sample")
def sample(case: Case) -> list[Peer]:
    n, d = case.sizes("rows", "d")
    most, share, greedy = case.get("top_k", 0), case.number("top_p", 1.0), case.flag("greedy")
    dtype = case.dtype()

    def draw(logits: Any) -> Any:
        if greedy:
            return logits.argmax(-1)
        logits, tokens = logits.float(), None
        if most:
            logits, tokens = logits.topk(most, -1)
        elif share < 1:
            logits, tokens = logits.sort(-1, descending=True)
        p = logits.softmax(-1)
        if share < 1:
            p = p.masked_fill(p.cumsum(-1) - p > share, 0.0)
        # The first of several exponential clocks to ring: sampling without waiting for the device.
        at = (p / torch.empty_like(p).exponential_(1)).argmax(-1, keepdim=True)
        return at if tokens is None else tokens.gather(-1, at)

    return in_torch(draw, lambda: (rand(dtype, n, d),))
