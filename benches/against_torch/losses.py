"""Losses of rows of logits."""

import math
import random

import torch
import torch.nn.functional as F

from common import EPS, HALF, WIDE, Want, ints, op, rand, size, wide


@op("cross_entropy", "cross_entropy_with_gradient", "cross_entropy_in_place", "cross_entropy_backward")
def cross_entropy(t, name):
    rows, classes = size(60), size(3000)
    logits, targets = rand(t, rows, classes, scale=3), ints(0, classes, rows)
    targets[torch.rand(rows) < 0.2] = -100
    smoothing, weights = random.choice([0, 0.1]), [None, torch.rand(classes) + 0.5][random.random() < 0.4]
    if (targets == -100).all():
        targets[0] = 0
    at = logits.to(WIDE).requires_grad_()
    options = {"label_smoothing": smoothing, "weight": None if weights is None else weights.to(WIDE)}
    losses = F.cross_entropy(at, targets.long(), reduction="none", **options)
    total = F.cross_entropy(at, targets.long(), **options)
    given = {"logits": logits, "targets": targets} | ({} if weights is None else {"class_weights": weights})
    settings = {"label_smoothing": smoothing}
    if name == "cross_entropy_backward":
        # Of each row by itself, not of their mean.
        dlosses = torch.randn(rows)
        losses.backward(dlosses.to(WIDE))
        return {**given, "dlosses": dlosses}, settings, {"gradient": Want(at.grad, 4e-6)}
    total.backward()
    lse = torch.where(targets == -100, 0, at.logsumexp(-1))
    wants = {"losses": Want(losses, 1e-5), "lse": Want(lse, 2e-6), "total": Want(total.reshape(1), 1e-5)}
    of_gradient = {"cross_entropy_with_gradient": "gradient", "cross_entropy_in_place": "logits"}
    return given, settings, wants | {of_gradient[n]: Want(at.grad, 1e-6) for n in of_gradient if n == name}


@op("entropy", "entropy_backward")
def entropy(t, name):
    rows, classes, temperature = size(60), size(3000), random.choice([1, 0.7])
    logits, dentropies = rand(t, rows, classes, scale=3), torch.randn(rows)
    at = logits.to(WIDE).requires_grad_()
    p = F.log_softmax(at / temperature, -1)
    h = -(p.exp() * p).sum(-1)
    if name == "entropy":
        return {"logits": logits}, {"temperature": temperature}, {"entropies": Want(h, 1e-5)}
    h.backward(dentropies.to(WIDE))
    return {"logits": logits, "dentropies": dentropies}, {"temperature": temperature}, {"gradient": Want(at.grad, 4e-6)}


def capped(logits, cap):
    return cap * torch.tanh(logits / cap) if cap else logits


@op("cross_entropy_with_gradient", "cross_entropy_backward")
def cross_entropy_of_capped(t, name):
    """With what PyTorch's function lacks."""
    rows, classes, cap, z_loss = size(60), size(3000), random.choice([0, 2, 30, 1e9]), random.choice([0, 0.01])
    logits, targets = rand(t, rows, classes, scale=3), ints(0, classes, rows)
    at = logits.to(WIDE).requires_grad_()
    x = capped(at, cap)
    losses = F.cross_entropy(x, targets.long(), reduction="none") + z_loss * x.logsumexp(-1) ** 2
    given, settings = {"logits": logits, "targets": targets}, {"z_loss": z_loss, "softcap": cap}
    if name == "cross_entropy_backward":
        dlosses = torch.randn(rows)
        losses.backward(dlosses.to(WIDE))
        return {**given, "dlosses": dlosses}, settings, {"gradient": Want(at.grad, 8e-6)}
    losses.sum().backward()
    wants = {"losses": Want(losses, 2e-5), "total": Want(losses.sum().reshape(1), 2e-5 * rows), "gradient": Want(at.grad, 4e-6)}
    return given, settings | {"sum": "true"}, wants


def divergence(student, teacher, which, beta, temperature):
    """Of each row, as on-policy distillation has it."""
    s, q = F.log_softmax(student / temperature, -1), F.log_softmax(teacher / temperature, -1)
    kl = lambda of, to: (of.exp() * (of - to)).sum(-1)  # noqa: E731
    if which != "jensen_shannon":
        return kl(q, s) if which == "forward" else kl(s, q)
    mixed = torch.logaddexp(q + math.log(beta), s + math.log1p(-beta))
    return beta * kl(q, mixed) + (1 - beta) * kl(s, mixed)


def divergence_settings():
    return random.choice(["forward", "reverse", "jensen_shannon"]), random.choice([0.5, 0.1, 0.9]), random.choice([1, 2])


@op("kl_divergence", "kl_divergence_with_gradient", "kl_divergence_backward")
def kl_divergence(t, name):
    rows, classes, (which, beta, temperature) = size(60), size(3000), divergence_settings()
    student, teacher = rand(t, rows, classes, scale=2), rand(t, rows, classes, scale=2)
    targets = [None, ints(-1, 1, rows)][random.random() < 0.4]
    counted = torch.ones(rows, dtype=torch.bool) if targets is None else targets >= 0
    at = student.to(WIDE).requires_grad_()
    losses = torch.where(counted, divergence(at, teacher.to(WIDE), which, beta, temperature), 0)
    given = {"student": student, "teacher": teacher} | ({} if targets is None else {"targets": targets})
    settings = {"divergence": which, "beta": beta, "temperature": temperature, "ignore_index": -1}
    if name == "kl_divergence_backward":
        dlosses = torch.randn(rows)
        losses.backward(dlosses.to(WIDE))
        return {**given, "dlosses": dlosses}, settings, {"gradient": Want(at.grad, 1e-5)}
    total = losses.sum() / counted.sum().clamp(min=1)
    wants = {"losses": Want(losses, 2e-5), "total": Want(total.reshape(1), 2e-5)}
    if name == "kl_divergence_with_gradient":
        total.backward()
        wants["gradient"] = Want(at.grad, 1e-5 / counted.sum().clamp(min=1))
    return given, settings, wants


def behind_linear(t, at, loss, of_logits):
    """The gradients of a loss behind a linear layer, of which that by a logit is off by so much: both are rounded to 16 bits on the way."""
    loss.backward()
    return {
        f"d{name}": Want(x.grad, of_logits * other.detach().norm(dim=0).max() + 6 * EPS[t] * x.grad.abs() + 1e-6)
        for name, x, other in (("hidden", at[0], at[1]), ("weight", at[1], at[0]))
    }


@op("linear_kl_divergence_with_gradient", types=HALF)
def linear_kl_divergence(t):
    rows, classes, d, other, (which, beta, temperature) = size(60), size(700), size(200), size(200), divergence_settings()
    names = ("hidden", "weight", "teacher_hidden", "teacher_weight")
    given = dict(zip(names, (rand(t, rows, d), rand(t, classes, d, scale=0.1), rand(t, rows, other), rand(t, classes, other, scale=0.1))))
    at = wide(*given.values())
    student, teacher = at[0] @ at[1].T, at[2] @ at[3].T
    losses = divergence(student, teacher, which, beta, temperature)
    around = 8 * EPS[t] * (1 + student.abs().max() + teacher.abs().max())
    settings = {"divergence": which, "beta": beta, "temperature": temperature, "memory": random.choice([1 << 30, 3 * classes])}
    return given, settings, {"losses": Want(losses, around), **behind_linear(t, at, losses.mean(), around / rows)}


@op("linear_cross_entropy_with_gradient", types=HALF)
def linear_cross_entropy(t):
    rows, classes, d = size(60), size(700), size(200)
    hidden, weight = rand(t, rows, d), rand(t, classes, d, scale=0.2)
    targets = ints(0, classes, rows)
    at = wide(hidden, weight)
    loss = F.cross_entropy(at[0] @ at[1].T, targets.long())
    loss.backward()
    # The gradient of the logits is rounded to 16 bits before the products.
    around = [3 * EPS[t] * x.grad.abs().max() for x in at]
    return {"hidden": hidden, "weight": weight, "targets": targets}, {}, {
        "total": Want(loss.reshape(1), 2e-3),
        "dhidden": Want(at[0].grad, around[0] + 1e-6),
        "dweight": Want(at[1].grad, around[1] + 3 * EPS[t] * at[1].grad.abs() + 1e-6),
    }


@op("linear_log_probs", types=HALF)
def linear_log_probs(t):
    tokens, classes, d = size(60), size(700), size(200)
    hidden, weight, targets = rand(t, tokens, d), rand(t, classes, d, scale=0.2), ints(0, classes, tokens)
    logits = hidden.to(WIDE) @ weight.to(WIDE).T
    log_probs = F.log_softmax(logits, -1).gather(1, targets.long()[:, None])[:, 0]
    # Logits are rounded to 16 bits on the way.
    around = 2 * EPS[t] * logits.abs().amax(-1)
    return {"hidden": hidden, "weight": weight, "targets": targets}, {}, {"log_probs": Want(log_probs, around + 1e-5)}


@op("linear_entropy_with_gradient", types=HALF)
def linear_entropy(t):
    rows, classes, d = size(60), size(700), size(200)
    hidden, weight, dentropies = rand(t, rows, d), rand(t, classes, d, scale=0.2), torch.randn(rows)
    at = wide(hidden, weight)
    logits = at[0] @ at[1].T
    p = F.log_softmax(logits, -1)
    h = -(p.exp() * p).sum(-1)
    h.backward(dentropies.to(WIDE))
    # Logits and their gradient are rounded to 16 bits on the way.
    of_logits = 3 * EPS[t] * (1 + logits.abs().max()) * dentropies.abs().max()
    around = [of_logits * x.to(WIDE).norm(dim=0).max() + 6 * EPS[t] * g.grad.abs() for x, g in ((weight, at[0]), (hidden, at[1]))]
    return {"hidden": hidden, "weight": weight, "dentropies": dentropies}, {}, {
        "entropies": Want(h, 4 * EPS[t] * logits.abs().amax(-1) * (1 + h.abs()) + 1e-5),
        "dhidden": Want(at[0].grad, around[0] + 1e-6),
        "dweight": Want(at[1].grad, around[1] + 1e-6),
    }


def of_pairs(sums, reference, beta, smoothing):
    """The losses of preferences, the chosen answers' sums first, some of which are the wrong way round."""
    chosen, rejected = (sums - reference.to(WIDE)).chunk(2)
    margin = beta * (chosen - rejected)
    return -(1 - smoothing) * F.logsigmoid(margin) - smoothing * F.logsigmoid(-margin)


def sequences(count, most):
    """Where each begins; some have no tokens."""
    offsets = torch.cat((torch.zeros(1, dtype=torch.long), torch.randint(0, most, (count,)).cumsum(0)))
    offsets[1:] += 1
    return offsets, torch.repeat_interleave(torch.arange(count), offsets.diff())


def in_groups(log_probs, old, reference, advantages, which, settings):
    """The losses of tokens of GRPO, of which `counted` count, by their sequences."""
    ratios = (log_probs - (log_probs.detach() if old is None else old.to(WIDE))).exp()
    clipped = ratios.clamp(1 - settings["clip_low"], 1 + settings["clip_high"])
    each = advantages.to(WIDE)[which]
    losses = -torch.minimum(ratios * each, clipped * each)
    if reference is not None:
        ahead = reference.to(WIDE) - log_probs
        losses = losses + settings["beta"] * (ahead.exp() - ahead - 1)
    return losses


def share_of_tokens(which, counted, count, normalised, divisor):
    """What each token's loss is multiplied by in the total."""
    if normalised == "constant":
        return counted / divisor
    if normalised == "tokens":
        return counted / counted.sum().clamp(min=1)
    of_sequences = torch.zeros(count, dtype=WIDE).index_add(0, which, counted)
    return counted / of_sequences.clamp(min=1)[which] / count


def grpo_settings():
    settings = {"clip_low": random.choice([0.2, 0.1]), "clip_high": random.choice([0.2, 0.28]), "beta": random.choice([0.04, 0.5])}
    return settings | {"normalised": random.choice(["sequences", "tokens", "constant"]), "divisor": 8}


@op("grpo", types=(torch.float32,))
def grpo(t):
    count, settings = random.randint(1, 20), grpo_settings()
    offsets, which = sequences(count, 40)
    tokens = len(which)
    log_probs, advantages, targets = -rand(t, tokens).abs(), rand(t, count), ints(-1, 3, tokens)
    near = lambda: [None, log_probs + rand(t, tokens, scale=0.3)][random.random() < 0.6]  # noqa: E731
    old, reference = near(), near()
    at = log_probs.to(WIDE).requires_grad_()
    counted = (targets >= 0).to(WIDE)
    share = share_of_tokens(which, counted, count, settings["normalised"], settings["divisor"])
    losses = in_groups(at, old, reference, advantages, which, settings) * share
    losses.sum().backward()
    optional = {name: x for name, x in (("old", old), ("reference", reference)) if x is not None}
    given = {"log_probs": log_probs, "targets": targets, "advantages": advantages, "offsets": offsets.to(torch.int32), **optional}
    wants = {"losses": Want(losses, 4e-6), "total": Want(losses.sum().reshape(1), 2e-5), "gradient": Want(at.grad, 4e-6)}
    return given, settings | {"ignore_index": -1}, wants


@op("linear_grpo_with_gradient", types=HALF)
def linear_grpo(t):
    count, classes, d, settings = random.randint(1, 6), size(300), size(100), grpo_settings()
    offsets, which = sequences(count, 12)
    tokens = len(which)
    hidden, weight, targets, advantages = rand(t, tokens, d), rand(t, classes, d, scale=0.1), ints(0, classes, tokens), rand(torch.float32, count)
    at = wide(hidden, weight)
    logits = at[0] @ at[1].T
    log_probs = F.log_softmax(logits, -1).gather(1, targets.long()[:, None])[:, 0]
    share = share_of_tokens(which, torch.ones(tokens, dtype=WIDE), count, settings["normalised"], settings["divisor"])
    reference = [None, (log_probs.detach() + torch.randn(tokens) * 0.3).float()][random.random() < 0.5]
    losses = in_groups(log_probs, None, reference, advantages, which, settings) * share
    given = {"hidden": hidden, "weight": weight, "targets": targets, "advantages": advantages, "offsets": offsets.to(torch.int32)}
    given |= {} if reference is None else {"reference": reference}
    around = EPS[t] * (1 + logits.abs().max().detach()) * (2 + advantages.abs().max()) * share.max() * 4
    return given, settings | {"memory": random.choice([1 << 30, 3 * classes])}, {"losses": Want(losses, around), **behind_linear(t, at, losses.sum(), around)}


@op("dpo", types=(torch.float32,))
def dpo(t):
    pairs, beta, smoothing, total = random.randint(1, 20), random.choice([0.1, 0.5]), random.choice([0, 0.1]), random.choice(["mean", "sum"])
    offsets, _ = sequences(2 * pairs, 40)
    log_probs, reference = -rand(t, int(offsets[-1])).abs(), [torch.zeros(2 * pairs), -rand(t, 2 * pairs).abs() * 10][random.random() < 0.7]
    at = log_probs.to(WIDE).requires_grad_()
    sums = torch.stack([at[a:b].sum() for a, b in zip(offsets, offsets[1:])])
    losses = of_pairs(sums, reference, beta, smoothing)
    of_all = getattr(losses, total)()
    of_all.backward()
    given = {"log_probs": log_probs, "offsets": offsets.to(torch.int32)} | ({"reference": reference} if reference.any() else {})
    settings = {"beta": beta, "label_smoothing": smoothing, "sum": str(total == "sum").lower()}
    wants = {"losses": Want(losses, 1e-5), "sums": Want(sums, 1e-5), "total": Want(of_all.reshape(1), 1e-5 * pairs), "gradient": Want(at.grad, 1e-6)}
    return given, settings, wants


@op("linear_dpo_with_gradient", types=HALF)
def linear_dpo(t):
    pairs, classes, d, beta, smoothing = random.randint(1, 4), size(300), size(100), random.choice([0.1, 0.5]), random.choice([0, 0.1])
    offsets, which = sequences(2 * pairs, 12)
    tokens = len(which)
    hidden, weight, targets = rand(t, tokens, d), rand(t, classes, d, scale=0.1), ints(0, classes, tokens)
    at = wide(hidden, weight)
    logits = at[0] @ at[1].T
    log_probs = F.log_softmax(logits, -1).gather(1, targets.long()[:, None])[:, 0]
    sums = torch.zeros(2 * pairs, dtype=WIDE).index_add(0, which, log_probs)
    losses = of_pairs(sums, torch.zeros(2 * pairs), beta, smoothing)
    of_token = 2 * EPS[t] * (1 + logits.abs().max().detach())
    of_sums = of_token * 12
    given = {"hidden": hidden, "weight": weight, "targets": targets, "offsets": offsets.to(torch.int32)}
    settings = {"beta": beta, "label_smoothing": smoothing, "memory": random.choice([1 << 30, 3 * classes])}
    wants = {"losses": Want(losses, 2 * beta * of_sums), "sums": Want(sums, of_sums), **behind_linear(t, at, losses.mean(), beta * (of_sums + of_token))}
    return given, settings, wants
