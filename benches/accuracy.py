"""Errors against f64 of Warpsmith, PyTorch and the libraries that it calls, on the same inputs: the logsumexp of attention, and
cross-entropy with its gradient in f32.

usage: accuracy.py WARPSMITH      the command, built with `cargo build --release -p warpsmith --features cli`

Needs a GPU, PyTorch and safetensors. A line an input and implementation: the greatest error, and of the logsumexp the mean as well.
"""

import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

GPU = "cuda"


def warpsmith(command, op, inputs, *settings):
    """What the operator makes of tensors by name."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
        save_file({name: tensor.cpu().contiguous() for name, tensor in inputs.items()}, given)
        chosen = [word for setting in settings for word in ("--set", setting)]
        call = [command, "run", op, "--backend", "cuda", "--input", given, "--output", made, *chosen]
        subprocess.run(call, check=True, capture_output=True)
        return {name: tensor.to(GPU) for name, tensor in load_file(made).items()}


def greatest(got, want):
    return (got.double() - want).abs().max().item()


def attention(command):
    heads, d = 2, 64
    spreads = {"normal": lambda *shape: torch.randn(*shape, device=GPU), "uniform": lambda *shape: 2 * torch.rand(*shape, device=GPU) - 1}
    for spread, draw in spreads.items():
        for tokens in (2048, 8192, 16384):
            torch.manual_seed(0)
            q, k, v = (draw(1, heads, tokens, d).bfloat16() for _ in range(3))
            scores = (q[0, h].double() @ k[0, h].double().T / d**0.5 for h in range(heads))
            want = torch.stack([torch.logsumexp(of_head, 1) for of_head in scores])[None]
            rows = {
                variant: warpsmith(command, "attention", {"q": q, "k": k, "v": v}, f"variant={variant}")["lse"]
                for variant in ("hopper", "mma")
            }
            rows["FlashAttention 2"] = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[1]
            rows["cuDNN"] = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True)[1].reshape(1, heads, tokens)
            for name, lse in rows.items():
                mean = (lse.double() - want).mean().item()
                print(f"attention lse, {spread}, {tokens} tokens, {name}: {greatest(lse, want):.2e}, mean {mean:+.1e}", flush=True)


def cross_entropy(command):
    of_torch = torch.nn.functional.cross_entropy
    for seed in (0, 1):
        for classes in (4096, 32768, 131072):
            for scale in (1, 10):
                torch.manual_seed(seed)
                logits = torch.randn(256, classes, device=GPU) * scale
                targets = torch.randint(0, classes, (256,), device=GPU)
                exact, single = logits.double().requires_grad_(), logits.clone().requires_grad_()
                want = of_torch(exact, targets, reduction="none")
                want.mean().backward()
                of_torch(single, targets).backward()
                ours = warpsmith(command, "cross_entropy_with_gradient", {"logits": logits, "targets": targets.int()})
                rows = {
                    "Warpsmith": (ours["losses"], ours["gradient"]),
                    "PyTorch": (of_torch(logits, targets, reduction="none"), single.grad),
                }
                for name, (losses, gradient) in rows.items():
                    errors = f"losses {greatest(losses, want):.3e}, gradient {greatest(gradient, exact.grad):.4e}"
                    print(f"cross_entropy f32, {classes} classes, times {scale}, seed {seed}, {name}: {errors}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    attention(sys.argv[1])
    cross_entropy(sys.argv[1])
