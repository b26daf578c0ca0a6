#!/usr/bin/env python3
"""The perceptron of `warpsmith profile` under PyTorch's profiler, and the shares of both side by side.

    warpsmith profile --json > profile.json
    python3 profile_mlp.py profile.json

The same shapes, dtype and operations: product, bias and gelu a layer, and their gradients, each a call of its own as it is there. Shares
are of the time that kernels of one step take. Exits with 1 where one differs by more than five points.
"""

import json
import re
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

PARTS = ["product", "bias", "gelu", "gelu backward", "weight gradient", "bias gradient", "input gradient"]
POINTS = 5.0


def perceptron(layers, batch, width):
    """A step, as a function."""
    dtype, device = torch.bfloat16, "cuda"
    normal = lambda *shape: torch.randn(*shape, dtype=dtype, device=device)
    weights = [(normal(width, width) * 1.5 / width**0.5, normal(width) * 0.1) for _ in range(layers)]
    x, upstream = normal(batch, width), normal(batch, width)

    def part(name, call):
        with record_function(name):
            return call()

    def step():
        activations, before = [x], []
        for weight, bias in weights:
            product = part("product", lambda: activations[-1] @ weight.t())
            before.append(part("bias", lambda: product + bias))
            activations.append(part("gelu", lambda: torch.nn.functional.gelu(before[-1], approximate="tanh")))
        down = upstream
        for layer in reversed(range(layers)):
            gelu_backward = torch.ops.aten.gelu_backward
            dy = part("gelu backward", lambda: gelu_backward(down, before[layer], approximate="tanh"))
            part("weight gradient", lambda: dy.t() @ activations[layer])
            part("bias gradient", lambda: dy.sum(0))
            if layer > 0:
                down = part("input gradient", lambda: dy @ weights[layer][0])

    return step


def by_part(step):
    """Microseconds of the kernels of each part, of one step behind another."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        with record_function("ahead"):
            step()
        with record_function("step"):
            step()
        torch.cuda.synchronize()
    times = dict.fromkeys(PARTS, 0.0)
    inside = next(event for event in recorded.events() if event.name == "step" and event.cpu_children)
    pending = list(inside.cpu_children)
    while pending:
        event = pending.pop()
        if event.name in times:
            times[event.name] += kernels(event)
        else:
            pending += event.cpu_children
    return times, recorded


def kernels(event):
    own = sum(kernel.duration for kernel in event.kernels)
    return own + sum(kernels(child) for child in event.cpu_children)


def main():
    ours = json.load(open(sys.argv[1]))
    sizes = [int(n) for n in re.findall(r"=(\d+)", ours["case"])]
    times, recorded = by_part(perceptron(*sizes))
    print(recorded.key_averages().table(sort_by="self_cuda_time_total", row_limit=15))
    rows = {row["name"]: row for row in ours["profile"]["rows"]}
    steps = rows["product"]["calls"] / sizes[0]
    mine = {name: rows[name]["cuda_total_us"] / steps for name in PARTS}
    all_mine, all_theirs = sum(mine.values()), sum(times.values())
    print(f"{ours['case']}, {ours['device']}, by {ours['profile']['clock']}; PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{'part':18}{'Warpsmith us':>14}{'%':>8}{'PyTorch us':>14}{'%':>8}{'points':>8}")
    worst = 0.0
    for name in PARTS:
        share, theirs = 100 * mine[name] / all_mine, 100 * times[name] / all_theirs
        worst = max(worst, abs(share - theirs))
        print(f"{name:18}{mine[name]:14.1f}{share:8.1f}{times[name]:14.1f}{theirs:8.1f}{share - theirs:+8.1f}")
    print(f"{'all':18}{all_mine:14.1f}{'':8}{all_theirs:14.1f}")
    return int(worst > POINTS)


if __name__ == "__main__":
    sys.exit(main())
