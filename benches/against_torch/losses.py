"""Losses of rows of logits."""

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


@op("kl_divergence", "kl_divergence_with_gradient", "kl_divergence_backward")
def kl_divergence(t, name):
    rows, classes, temperature = size(60), size(3000), random.choice([1, 2])
    student, teacher = rand(t, rows, classes, scale=2), rand(t, rows, classes, scale=2)
    which = random.choice(["forward", "reverse"])
    at = student.to(WIDE).requires_grad_()
    s, q = F.log_softmax(at / temperature, -1), F.log_softmax(teacher.to(WIDE) / temperature, -1)
    losses = (F.kl_div(s, q, reduction="none", log_target=True) if which == "forward" else F.kl_div(q, s, reduction="none", log_target=True)).sum(-1)
    given, settings = {"student": student, "teacher": teacher}, {"divergence": which, "temperature": temperature}
    if name == "kl_divergence_backward":
        dlosses = torch.randn(rows)
        losses.backward(dlosses.to(WIDE))
        return {**given, "dlosses": dlosses}, settings, {"gradient": Want(at.grad, 1e-5)}
    wants = {"losses": Want(losses, 2e-5), "total": Want(losses.mean().reshape(1), 2e-5)}
    if name == "kl_divergence_with_gradient":
        losses.mean().backward()
        wants["gradient"] = Want(at.grad, 1e-5 / rows)
    return given, settings, wants


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


@op("dpo", types=(torch.float32,))
def dpo(t):
    pairs, beta = random.randint(1, 20), random.choice([0.1, 0.5])
    counts = torch.randint(1, 40, (2 * pairs,))
    offsets = torch.cat((torch.zeros(1, dtype=torch.long), counts.cumsum(0)))
    log_probs, reference = -rand(t, int(offsets[-1])).abs(), -rand(t, 2 * pairs).abs() * 10
    at = log_probs.to(WIDE).requires_grad_()
    sums = torch.stack([at[a:b].sum() for a, b in zip(offsets, offsets[1:])])
    ratios = sums - reference.to(WIDE)
    losses = -F.logsigmoid(beta * (ratios[:pairs] - ratios[pairs:]))
    losses.mean().backward()
    given = {"log_probs": log_probs, "offsets": offsets.to(torch.int32), "reference": reference}
    wants = {"losses": Want(losses, 1e-5), "sums": Want(sums, 1e-5), "total": Want(losses.mean().reshape(1), 1e-5), "gradient": Want(at.grad, 1e-6)}
    return given, {"beta": beta}, wants
