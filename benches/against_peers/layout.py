"""What moves elements: transposes, heads, embeddings, RoPE."""

from __future__ import annotations

import math
from typing import Any

import peers
from cases import Case
from lazy import F, late, torch
from peers import Peer, gradients, in_torch, ints, op, rand, without
from rows import rms_norm

QUACK = "quack"
quack_rotary = late("quack.rotary", "apply_rotary_emb")

without("behind sequences of several lengths: none of the libraries has it", "cache.append_kv", "cache.append_kv_paged", "cache.append_kv_quantized")


@op("layout.transpose")
def transpose(case: Case) -> list[Peer]:
    rows, columns = case.shape()
    dtype = case.dtype()
    make = lambda: (ints(-9, 10, rows, columns, dtype=dtype) if dtype == "int8" else rand(dtype, rows, columns),)  # noqa: E731
    return in_torch(lambda x: x.t().contiguous(), make)


@op("layout.permute_heads")
def permute_heads(case: Case) -> list[Peer]:
    case.one_of("bshd", "bhsd")
    dims, dtype = case.shape(), case.dtype()
    return in_torch(lambda x: x.transpose(1, 2).contiguous(), lambda: (rand(dtype, *dims),))


@op("layout.repeat_kv")
def repeat_kv(case: Case) -> list[Peer]:
    case.flag("to")
    (batch, kv, length, d), heads, dtype = case.shape(), case.before("heads", 0), case.dtype()

    def repeat(x: Any) -> Any:
        # As models of Hugging Face have it.
        return x[:, :, None].expand(batch, kv, heads // kv, length, d).reshape(batch, heads, length, d)

    return in_torch(repeat, lambda: (rand(dtype, batch, kv, length, d),))


def tokens_of(count: int, vocab: int, as_text: bool) -> Any:
    """Tokens that are all as frequent, or of which the i-th is 1 / i as frequent as the first."""
    if not as_text:
        return ints(0, vocab, count)
    # The integral of the frequencies, inverted.
    exponents = torch.rand(count, device=peers.DEVICE, dtype=torch.float64) * math.log(vocab + 1)
    return exponents.exp().long() - 1


@op("embedding.forward", "embedding.backward")
def embedding(case: Case) -> list[Peer]:
    count, vocab, d = case.sizes("tokens", "vocab", "d")
    as_text, dtype = case.flag("as in text"), case.dtype()
    make = lambda: (rand(dtype, vocab, d), tokens_of(count, vocab, as_text))  # noqa: E731
    look_up = lambda table, tokens: F.embedding(tokens, table)  # noqa: E731
    return in_torch(look_up, make) if case.op == "embedding.forward" else gradients(look_up, make, 1)


def rotated(x: Any, cos: Any, sin: Any, positions: Any, interleaved: bool) -> Any:
    """RoPE of tokens, heads and d."""
    c, s = cos[positions][:, None], sin[positions][:, None]
    wide = x.float()
    if interleaved:
        a, b = wide[..., 0::2], wide[..., 1::2]
        return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2).to(x.dtype)
    a, b = wide.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def tables(tokens: int, d: int) -> tuple[Any, Any, Any]:
    """Cosines and sines of angles, and positions."""
    return rand("float32", tokens, d // 2), rand("float32", tokens, d // 2), torch.arange(tokens, device=peers.DEVICE)


@op("rope.forward", "rope.backward")
def rope(case: Case) -> list[Peer]:
    tokens, heads, d = case.sizes("tokens", "heads", "d")
    interleaved, dtype = case.one_of("halves", "interleaved") == "interleaved", case.dtype()
    back = case.op == "rope.backward"

    def make() -> tuple[Any, ...]:
        return rand(dtype, tokens, heads, d), *tables(tokens, d)

    def turn(x: Any, cos: Any, sin: Any, positions: Any) -> Any:
        # The gradient turns back.
        return rotated(x, cos, -sin if back else sin, positions, interleaved)

    def turn_by_quack(x: Any, cos: Any, sin: Any, positions: Any) -> Any:
        return quack_rotary(x[None], cos, sin, interleaved)

    of_quack = [] if back else [Peer("quack", turn_by_quack, make, QUACK)]
    return [*in_torch(turn, make), *of_quack]


@op("rope.qk_norm", "rope.qk_norm_backward")
def qk_norm_rope(case: Case) -> list[Peer]:
    tokens, heads, kv, d = case.sizes("tokens", "heads", "kv_heads", "d")
    interleaved, dtype = case.one_of("halves", "interleaved") == "interleaved", case.dtype()

    def make() -> tuple[Any, ...]:
        heads_of_both = rand(dtype, tokens, heads, d), rand(dtype, tokens, kv, d)
        return *heads_of_both, rand(dtype, d), rand(dtype, d), *tables(tokens, d)

    def turn(q: Any, k: Any, q_weight: Any, k_weight: Any, cos: Any, sin: Any, positions: Any) -> Any:
        pairs = ((q, q_weight), (k, k_weight))
        return tuple(rotated(rms_norm(x, weight), cos, sin, positions, interleaved) for x, weight in pairs)

    return in_torch(turn, make) if case.op == "rope.qk_norm" else gradients(turn, make, 4)


@op("rope.table")
def rope_table(case: Case) -> list[Peer]:
    positions, (d,) = case.before("positions", 0), case.sizes("d")

    def make() -> tuple[Any, ...]:
        return (10000.0 ** -(torch.arange(0, d, 2, device=peers.DEVICE) / d), torch.arange(positions, device=peers.DEVICE).float())

    def table(frequencies: Any, at: Any) -> Any:
        angles = torch.outer(at, frequencies)
        return angles.cos(), angles.sin()

    return in_torch(table, make)
