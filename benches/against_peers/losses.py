"""Losses of rows of logits, and of a linear layer."""

from __future__ import annotations

import re
from typing import Any

from cases import Case
from lazy import F, late
from peers import COMPILED, Call, Make, Peer, both_ways, compiled, gradient, gradients, in_torch, ints, op, rand, without

LIGER, QUACK = "liger_kernel", "quack"
liger_function = late("liger_kernel.ops.cross_entropy", "LigerCrossEntropyFunction.apply")
liger_linear_function = late("liger_kernel.ops.fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction.apply")
quack_cross_entropy = late("quack.cross_entropy", "cross_entropy")
quack_linear = late("quack.linear_cross_entropy", "chunked_linear_cross_entropy")

without("of sequences that lie one behind the other: none of the libraries has it", "loss.dpo", "loss.grpo")
without("Liger's losses are of sequences of one length, and divide otherwise", "loss.linear_dpo_fwd", "loss.linear_dpo_fwd_bwd")
without("Liger's losses are of sequences of one length, and divide otherwise", "loss.linear_grpo_fwd", "loss.linear_grpo_fwd_bwd")


def first(made: Any) -> Any:
    """Liger's functions return the loss, and what else was asked for."""
    return made[0] if isinstance(made, tuple) else made


def liger_cross_entropy(x: Any, targets: Any) -> Any:
    """The mean; the gradient takes the place of x."""
    return first(liger_function(x, targets, None, -100, 0.0, 0.0, "mean", None, False))


def liger_linear_cross_entropy(x: Any, weight: Any, targets: Any) -> Any:
    """The mean of the losses of a linear layer."""
    return first(liger_linear_function(x, weight, targets))


def cross_entropy_of(x: Any, targets: Any) -> Any:
    """The mean, in f32."""
    return F.cross_entropy(x.float(), targets)


def entropy_of(x: Any) -> Any:
    """The entropy of each row."""
    log_p = F.log_softmax(x.float(), -1)
    return -(log_p.exp() * log_p).sum(-1)


def divergence_of(student: Any, teacher: Any) -> Any:
    """The mean divergence of the student from the teacher."""
    log_p, log_q = F.log_softmax(student.float(), -1), F.log_softmax(teacher.float(), -1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)


def leaves(make: Make, of: int) -> Make:
    """With gradients wanted of the first."""

    def made() -> tuple[Any, ...]:
        inputs = make()
        return *(x.requires_grad_() for x in inputs[:of]), *inputs[of:]

    return made


def in_parts(part: str, function: Call, make: Make, of: int) -> list[Peer]:
    """A loss in PyTorch: forward, backward, or both."""
    if part == "fwd":
        return in_torch(function, make)
    if part == "bwd":
        return gradients(function, make, of)
    wanted = leaves(make, of)
    return [Peer("torch", both_ways(function, of), wanted), Peer(COMPILED, both_ways(compiled(function), of), wanted)]


def part_of(case: Case) -> str:
    """`fwd`, `bwd`, `fwd_bwd` or `fwd_bwd_in_place`."""
    return re.sub(r"^.*?_(?=fwd|bwd)", "", case.op)


@op("loss.ce_fwd", "loss.ce_bwd", "loss.ce_fwd_bwd", "loss.ce_fwd_bwd_in_place")
def cross_entropy(case: Case) -> list[Peer]:
    tokens, vocab = case.sizes("tokens", "vocab")
    part, dtype = part_of(case), case.dtype()
    make = lambda: (rand(dtype, tokens, vocab), ints(0, vocab, tokens))  # noqa: E731
    found = in_parts(part.removesuffix("_in_place"), cross_entropy_of, make, 1)
    in_place = part.endswith("_in_place")
    of_quack = lambda x, targets: quack_cross_entropy(x, targets, inplace_backward=in_place)  # noqa: E731
    if part == "fwd":
        return [*found, Peer("liger", liger_cross_entropy, make, LIGER), Peer("quack", of_quack, make, QUACK)]
    if part == "bwd":
        # By the end of its forward, Liger has computed the gradient.
        return [*found, gradient("quack", of_quack, make, 1, QUACK)]
    # What writes into its input has one of its own.
    own, shared = leaves(make, 1), leaves(make, 1)
    of_copy = lambda x, targets: liger_cross_entropy(x.clone(), targets)  # noqa: E731
    name, of_liger = ("liger", liger_cross_entropy) if in_place else ("liger(+clone)", of_copy)
    others = [Peer(name, both_ways(of_liger), own, LIGER), Peer("quack", both_ways(of_quack), shared, QUACK)]
    return [*found, *others]


@op("loss.entropy_fwd", "loss.entropy_bwd")
def entropy(case: Case) -> list[Peer]:
    tokens, vocab = case.sizes("tokens", "vocab")
    dtype = case.dtype()
    return in_parts(part_of(case), entropy_of, lambda: (rand(dtype, tokens, vocab),), 1)


@op("loss.kl_fwd", "loss.kl_bwd", "loss.kl_fwd_bwd")
def kl_divergence(case: Case) -> list[Peer]:
    tokens, vocab = case.sizes("tokens", "vocab")
    dtype = case.dtype()
    make = lambda: (rand(dtype, tokens, vocab), rand(dtype, tokens, vocab))  # noqa: E731
    return in_parts(part_of(case), divergence_of, make, 1)


def weights(dtype: str, vocab: int, hidden: int) -> Any:
    """A head whose logits are about as large as hidden states."""
    return rand(dtype, vocab, hidden, std=hidden**-0.5)


@op("loss.linear_ce_fwd", "loss.linear_ce_bwd", "loss.linear_ce_fwd_bwd")
def linear_cross_entropy(case: Case) -> list[Peer]:
    tokens, hidden, vocab = case.sizes("tokens", "hidden", "vocab")
    part, dtype = part_of(case), case.dtype()
    make = lambda: (rand(dtype, tokens, hidden), weights(dtype, vocab, hidden), ints(0, vocab, tokens))  # noqa: E731
    found = in_parts(part, lambda x, weight, targets: cross_entropy_of(F.linear(x, weight), targets), make, 2)
    others = {"liger": (liger_linear_cross_entropy, LIGER), "quack": (quack_linear, QUACK)}
    if part == "bwd":
        # By the end of their forward, both have computed the gradients.
        return found
    if part == "fwd":
        return [*found, *(Peer(name, call, make, needs) for name, (call, needs) in others.items())]
    wanted = leaves(make, 2)
    return [*found, *(Peer(name, both_ways(call, 2), wanted, needs) for name, (call, needs) in others.items())]


@op("loss.linear_entropy_fwd", "loss.linear_entropy_fwd_bwd")
def linear_entropy(case: Case) -> list[Peer]:
    tokens, hidden, vocab = case.sizes("tokens", "hidden", "vocab")
    part, dtype = part_of(case), case.dtype()
    function: Call = lambda x, weight: entropy_of(F.linear(x, weight))  # noqa: E731
    if part == "fwd_bwd":
        rows, function = function, lambda x, weight: rows(x, weight).sum()
    return in_parts(part, function, lambda: (rand(dtype, tokens, hidden), weights(dtype, vocab, hidden)), 2)


@op("loss.linear_kl_fwd", "loss.linear_kl_bwd", "loss.linear_kl_fwd_bwd")
def linear_divergence(case: Case) -> list[Peer]:
    tokens, hidden, of_teacher, vocab = case.sizes("tokens", "hidden", "teacher", "vocab")
    dtype = case.dtype()

    def make() -> tuple[Any, ...]:
        student = rand(dtype, tokens, hidden), weights(dtype, vocab, hidden)
        return *student, rand(dtype, tokens, of_teacher), weights(dtype, vocab, of_teacher)

    def divergence(x: Any, weight: Any, teacher: Any, teacher_weight: Any) -> Any:
        return divergence_of(F.linear(x, weight), F.linear(teacher, teacher_weight))

    return in_parts(part_of(case), divergence, make, 2)


@op("loss.linear_log_probs")
def linear_log_probs(case: Case) -> list[Peer]:
    tokens, hidden, vocab = case.sizes("tokens", "hidden", "vocab")
    dtype = case.dtype()

    def log_probs(x: Any, weight: Any, targets: Any) -> Any:
        return -F.cross_entropy(F.linear(x, weight).float(), targets, reduction="none")

    return in_torch(log_probs, lambda: (rand(dtype, tokens, hidden), weights(dtype, vocab, hidden), ints(0, vocab, tokens)))
