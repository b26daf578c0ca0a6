"""Optimizers."""

from __future__ import annotations

from typing import Any

from cases import Case
from lazy import torch
from peers import Peer, in_torch, op, rand, uniform

OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}


def clip(grads: Any, norm: Any) -> None:
    """Scales gradients down to a norm of 1, by a norm that is known."""
    grads.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))


@op("optim.adamw", "optim.adamw_master")
def adamw(case: Case) -> list[Peer]:
    (n,), clipped, of_grads = case.sizes("n"), case.flag("clipped"), case.dtype()
    rounded = case.dtype() if case.flag("to") else of_grads
    master = case.op == "optim.adamw_master"
    stored = "float32" if master else of_grads

    def make() -> tuple[Any, ...]:
        weights = torch.nn.Parameter(rand(stored, n))
        optimizer = torch.optim.AdamW([weights], fused=True, **OPTIONS)
        return optimizer, weights, rand(of_grads, n), rand(rounded, n) if master else None, uniform(1)

    def step(optimizer: Any, weights: Any, grads: Any, params: Any, norm: Any) -> None:
        if clipped:
            clip(grads, norm)
        # The optimizer takes gradients of the weights' type alone, and its moments have that type, where ours are in f32.
        weights.grad = grads.to(weights.dtype)
        optimizer.step()
        if params is not None:
            params.copy_(weights.detach())

    return [Peer("torch.fused", step, make)]


@op("optim.clip_grad")
def clip_grad(case: Case) -> list[Peer]:
    (n,), dtype = case.sizes("n"), case.dtype()
    return in_torch(clip, lambda: (rand(dtype, n), uniform(1)))
