"""Operators against PyTorch in f64, on random input of random shapes: the references of `verify` are ours, these are not.

usage: python3 benches/against_torch WARPSMITH [--backend sim] [--rounds N] [--seed N] [OP ...]

WARPSMITH is the command, built with `cargo build --release -p warpsmith --features cli`. Needs PyTorch, of any build, and safetensors. A
line an operator and type: the greatest error as a share of what is tolerated, and below it what was not as PyTorch has it.
"""

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch
from safetensors.torch import load_file, save_file

import attention, elements, few_bits, layout, losses, products, rows  # noqa: E401, F401
from common import OPS, name_of


def run(command, backend, name, given, settings):
    """What the operator makes of tensors by name, or what it says instead."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
        save_file({name: x.contiguous() for name, x in given.items()}, source)
        chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        call = [command, "run", name, "--backend", backend, "--input", source, "--output", made, *chosen]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        return load_file(made) if done.returncode == 0 else (done.stderr or done.stdout).strip()


def rounds(args, name, make, t):
    """The problems first: they are of one random generator."""
    for turn in range(args.rounds):
        random.seed(f"{args.seed} {name} {make.__name__} {t} {turn}")
        torch.manual_seed(random.getrandbits(60))
        yield make(t, name) if make.__code__.co_argcount == 2 else make(t)


def check(args, name, given, settings, wants):
    """The greatest share, and what there is to say."""
    made = run(args.warpsmith, args.backend, name, given, settings)
    problem = f"{({key: list(x.shape) for key, x in given.items()})} {settings}"
    if isinstance(made, str):
        return math.inf, [f"{problem}: {made}"]
    shares = {output: want.share(made[output]) for output, want in wants.items()}
    return max(shares.values()), [f"{problem}: `{output}`, {share:.3g}" for output, share in shares.items() if share > 1]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("warpsmith")
    args.add_argument("--backend", default="cuda")
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("ops", nargs="*")
    args = args.parse_intermixed_args()
    if unknown := set(args.ops) - {name for name, _, _ in OPS}:
        sys.exit(f"no function for {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for name, make, types in OPS:
            for t in types if not args.ops or name in args.ops else ():
                problems = list(rounds(args, name, make, t))
                found = list(threads.map(lambda problem: check(args, name, *problem), problems))
                worst = max(share for share, _ in found)
                bad += worst > 1
                print(f"{name} {name_of(t)}: {worst:.3g}", *(line for _, said in found for line in said), sep="\n    ", flush=True)
    print(f"{bad} not as PyTorch has them" if bad else "all as PyTorch has them")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
