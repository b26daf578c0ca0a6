"""Attention: forward, backward, over a cache."""

import math
import random

import torch

from common import EPS, WIDE, Want, ints, op, rand, size, wide


def scores_of(q, k, scale, softcap, slopes):
    """[…, heads, queries, keys], the diagonal's end at the last query and key."""
    scores = q @ k.transpose(-1, -2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        scores = scores - slopes.to(WIDE)[:, None, None] * ahead(q.shape[-2], k.shape[-2]).abs()
    return scores


def ahead(queries, keys):
    """How far past where a query stands each key is."""
    return torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)


def weights_of(scores, sinks):
    """The softmax and logsumexp of rows that may see nothing, and then are zeros and −∞."""
    if sinks is not None:
        column = sinks.to(WIDE)[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), -1)
    lse = scores.logsumexp(-1)
    p = torch.where(lse.isinf()[..., None], 0.0, (scores - lse[..., None].nan_to_num(neginf=0)).exp())
    return p if sinks is None else p[..., :-1], lse


@op("attention", "attention_backward")
def attention(t, name):
    batch, kv, group, d = random.randint(1, 2), random.randint(1, 2), random.randint(1, 3), random.choice([32, 64, 96, 128, 192])
    queries, keys, heads = size(200), size(200), kv * group
    q, k, v = rand(t, batch, heads, queries, d), rand(t, batch, kv, keys, d), rand(t, batch, kv, keys, d)
    maybe = lambda value: value if random.random() < 0.3 else None  # noqa: E731
    given, settings = {"q": q, "k": k, "v": v}, {}
    slopes, sinks, softcap = maybe(torch.rand(heads) / 4), maybe(torch.randn(heads)), maybe(random.choice([5.0, 1e6]))
    lengths, causal, left, right = maybe(ints(0, keys + 1, batch)), random.random() < 0.5, maybe(random.randint(0, 60)), maybe(random.randint(0, 60))
    optional = {"slopes": slopes, "sinks": sinks, "key_lengths": lengths}
    given |= {key: x for key, x in optional.items() if x is not None}
    settings |= {"causal": str(causal).lower()} | ({"softcap": softcap} if softcap else {}) | {side: n for side, n in (("left", left), ("right", right)) if n is not None}
    at = wide(*(x for x in (q, k, v, sinks) if x is not None))
    outs = []
    for b in range(batch):
        k_b, v_b = (x[b].repeat_interleave(group, 0) for x in at[1:3])
        scores = scores_of(at[0][b], k_b, 1 / math.sqrt(d), softcap, slopes)
        past = ahead(queries, keys)
        # Padding does not move where queries stand.
        seen = (torch.arange(keys) < (keys if lengths is None else lengths[b])).expand(queries, keys)
        if causal:
            seen = seen & (past <= 0)
        if left is not None:
            seen = seen & (past >= -left)
        if right is not None:
            seen = seen & (past <= right)
        p, lse = weights_of(scores.masked_fill(~seen, float("-inf")), None if sinks is None else at[3])
        outs.append((p @ v_b, lse))
    o, lse = (torch.stack(x) for x in zip(*outs))
    if name == "attention":
        # Weights are rounded to 16 bits before the product.
        return given, settings, {"o": Want(o, (EPS[t] + 4e-6) * v.abs().max().item()), "lse": Want(lse, 2e-5)}
    d_o = rand(t, *o.shape)
    o.backward(d_o.to(WIDE))
    names = ("dq", "dk", "dv") if sinks is None else ("dq", "dk", "dv", "dsinks")
    gradients = [torch.zeros_like(x) if x.grad is None else x.grad.nan_to_num() for x in at]
    wants = {n: Want(x, 6 * EPS[t] * x.abs().max() + 2e-5) for n, x in zip(names, gradients)}
    if sinks is not None:
        # D is a sum of products of 16-bit numbers.
        wants["dsinks"].around = wants["dsinks"].around + 8 * EPS[t] * math.sqrt(batch * queries)
    return {**given, "o": o.detach().to(t), "lse": lse.detach().float(), "d_o": d_o}, settings, wants


@op("attention_decode", "attention_decode_append")
def attention_decode(t, name):
    batch, kv, group, d = random.randint(1, 3), random.randint(1, 2), random.randint(1, 5), random.choice([64, 128])
    new, most, page = random.randint(1, 3), random.randint(4, 300), random.choice([0, 16])
    append = name == "attention_decode_append"
    q, k, v = rand(t, batch, new, kv * group, d), rand(t, batch, most, kv, d), rand(t, batch, most, kv, d)
    maybe = lambda value: value if random.random() < 0.3 else None  # noqa: E731
    softcap, left, sinks = maybe(random.choice([5.0, 1e6])), maybe(random.randint(0, 60)), maybe(torch.randn(kv * group))
    # The keys that are there in the end.
    lengths = ints(new, most + 1, batch)
    o, lse = torch.zeros(q.shape, dtype=WIDE), torch.zeros(batch, kv * group, new, dtype=WIDE)
    for b, n in enumerate(lengths.tolist()):
        keys, values = (x[b, :n].to(WIDE).repeat_interleave(group, 1).transpose(0, 1) for x in (k, v))
        scores, past = scores_of(q[b].to(WIDE).transpose(0, 1), keys, 1 / math.sqrt(d), softcap, None), ahead(new, n)
        unseen = (past > 0) if left is None else (past > 0) | (past < -left)
        p, lse[b] = weights_of(scores.masked_fill(unseen, float("-inf")), sinks)
        o[b] = (p @ values).transpose(0, 1)
    caches = {"k_cache": k, "v_cache": v}
    given = {"q": q, "lengths_after" if append else "lengths": lengths} | ({} if sinks is None else {"sinks": sinks})
    settings = {key: n for key, n in (("softcap", softcap), ("left", left)) if n is not None}
    wants = {"o": Want(o, (EPS[t] + 4e-6) * v.abs().max().item()), "lse": Want(lse, 2e-5)}
    if append:
        at = torch.stack([torch.arange(n - new, n) for n in lengths.tolist()])
        rows = torch.arange(batch)[:, None]
        given |= {"k": k[rows, at], "v": v[rows, at]}
        wants |= {key: Want(cache.to(WIDE), exact=True) for key, cache in caches.items()}
        # What lies where the new ones go is of no matter.
        caches = {key: cache.clone().index_put((rows, at), torch.tensor(7.0).to(t)) for key, cache in caches.items()}
    elif page:
        pages = -(-most // page)
        order = torch.randperm(batch * pages)
        padded = {key: torch.nn.functional.pad(cache.float(), (0, 0, 0, 0, 0, pages * page - most)).to(t) for key, cache in caches.items()}
        caches = {key: cache.reshape(batch * pages, page, kv, d)[order.argsort()] for key, cache in padded.items()}
        given["page_table"] = order.reshape(batch, pages).to(torch.int32)
        caches = {key: torch.empty_like(cache).index_copy(0, order, padded[key].reshape(batch * pages, page, kv, d)) for key, cache in caches.items()}
    return given | caches, settings, wants
