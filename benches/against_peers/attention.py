"""Attention: forward, backward, over a cache."""

from __future__ import annotations

import functools
from typing import Any

import peers
from cases import Case, NoPeer
from lazy import F, late, torch
from peers import Call, Make, Peer, gradient, in_torch, ints, op, rand, without

FLASH4 = "flash_attn.cute"
flash4_attention, flash4_of_lengths = late(FLASH4, "flash_attn_func"), late(FLASH4, "flash_attn_varlen_func")
BACKENDS = {"sdpa.flash2": "FLASH_ATTENTION", "sdpa.cudnn": "CUDNN_ATTENTION"}

without("flash-attn-4 multiplies 8 bits on Blackwell alone, the others nowhere", "attn.fwd_fp8")


def sdpa(backend: str, **options: Any) -> Call:
    """scaled_dot_product_attention by one of its backends."""

    def call(q: Any, k: Any, v: Any) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, **options)

    return call


def flash4(**options: Any) -> Call:
    """flash-attn-4, which may return more than its output."""

    def call(q: Any, k: Any, v: Any) -> Any:
        made = flash4_attention(q, k, v, **options)
        return made[0] if isinstance(made, tuple) else made

    return call


def of_three(dtype: str, q: tuple[int, ...], k: tuple[int, ...]) -> Make:
    """Queries, and keys and values."""
    return lambda: (rand(dtype, *q), rand(dtype, *k), rand(dtype, *k))


@op("attn.fwd", "attn.bwd")
def attention(case: Case) -> list[Peer]:
    b, heads, d = case.sizes("b", "h", "d")
    kv, length = case.get("kv", heads), case.get("s", 0)
    queries, keys = case.get("q", length), case.get("k", length)
    causal, dtype = case.one_of("causal", "full") == "causal", case.dtype()
    # Heads before positions, and flash-attn-4's the other way round.
    inputs = of_three(dtype, (b, heads, queries, d), (b, kv, keys, d))
    inputs4 = of_three(dtype, (b, queries, heads, d), (b, keys, kv, d))
    calls = [("flash4", flash4(causal=causal), inputs4, FLASH4)]
    # The diagonal of scaled_dot_product_attention starts at the first key; ours ends at the last.
    if not causal or queries == keys:
        calls += [(name, sdpa(kind, is_causal=causal, enable_gqa=kv != heads), inputs, "") for name, kind in BACKENDS.items()]
    if case.op == "attn.bwd":
        return [gradient(name, call, make, needs=needs) for name, call, make, needs in calls]
    return [Peer(*fields) for fields in calls]


@op("attn.decode")
def attention_decode(case: Case) -> list[Peer]:
    b, heads, kv, keys, d = case.sizes("b", "hq", "hkv", "ctx", "d")
    queries, page, dtype = case.get("q", 1), case.after("pages of", 0), case.dtype()
    if case.flag("cache"):
        case.dtype()
        raise NoPeer("caches of 8 bits are in none of their interfaces")
    if page:
        return [paged_decode(dtype, b, heads, kv, keys, d, page)]
    inputs4 = of_three(dtype, (b, queries, heads, d), (b, keys, kv, d))
    of_flash4 = Peer("flash4", flash4(causal=queries > 1), inputs4, FLASH4)
    if queries > 1:
        # They see keys up to their own positions, and the diagonal of scaled_dot_product_attention starts at the first key.
        return [of_flash4]
    inputs = of_three(dtype, (b, heads, 1, d), (b, kv, keys, d))
    return [*(Peer(name, sdpa(kind, enable_gqa=kv != heads), inputs) for name, kind in BACKENDS.items()), of_flash4]


def paged_decode(dtype: str, b: int, heads: int, kv: int, keys: int, d: int, page: int) -> Peer:
    """Caches in pages that a table finds."""
    pages = b * keys // page

    def make() -> tuple[Any, ...]:
        table = torch.randperm(pages, device=peers.DEVICE).to(torch.int32).reshape(b, -1)
        used = ints(keys, keys + 1, b, dtype="int32")
        return *of_three(dtype, (b, 1, heads, d), (pages, page, kv, d))(), table, used

    def call(q: Any, k: Any, v: Any, table: Any, used: Any) -> Any:
        return flash4_of_lengths(q, k, v, page_table=table, seqused_k=used)

    return Peer("flash4", call, make, FLASH4)


@op("attn.decode_append")
def attention_decode_append(case: Case) -> list[Peer]:
    b, heads, kv, keys, d = case.sizes("b", "hq", "hkv", "ctx", "d")
    dtype = case.dtype()

    def make() -> tuple[Any, ...]:
        new = of_three(dtype, (b, heads, 1, d), (b, kv, 1, d))()
        return *new, rand(dtype, b, kv, keys, d), rand(dtype, b, kv, keys, d), ints(keys - 1, keys, 1)

    def call(attend: Call, q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, at: Any) -> Any:
        # As a static cache of a model does it: both steps, one behind the other.
        k_cache.index_copy_(2, at, k)
        v_cache.index_copy_(2, at, v)
        return attend(q, k_cache, v_cache)

    attends = {name: sdpa(kind, enable_gqa=kv != heads) for name, kind in BACKENDS.items()}
    return [Peer(name, functools.partial(call, attend), make) for name, attend in attends.items()]


@op("attention.mask")
def attention_mask(case: Case) -> list[Peer]:
    b, heads, queries, keys = case.shape()
    # The diagonal hides what is past it in any case; a window also hides what is far before.
    case.flag("causal")
    window = case.get("left", -1)
    # Older results name how many keys are seen.
    window = case.get("window", window + 1) - 1
    dtype = case.dtype()

    def mask(scores: Any) -> Any:
        at = torch.arange(queries, device=scores.device)[:, None] + (keys - queries)
        of_key = torch.arange(keys, device=scores.device)
        hidden = of_key > at
        if window >= 0:
            hidden = hidden | (of_key < at - window)
        return scores.masked_fill(hidden, -30000.0)

    return in_torch(mask, lambda: (rand(dtype, b, heads, queries, keys),))
