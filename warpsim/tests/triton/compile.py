"""Compiles the kernels of this folder to PTX: compile.py FOLDER NAME… writes FOLDER/NAME.ptx; without names, all.

The first line of a file says what a launch needs: `// shared BYTES threads N ctas N scratch BYTES`, then a
`swizzle N` for every tensor map among the parameters.
"""

import importlib
import multiprocessing
import os
import sys

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend
from triton._C.libtriton import ir


def compile(fn, arch, types, constants, options):
    """What `triton.compile` does up to the PTX, without the cache and without ptxas."""
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    signature = {name: types.get(name, "constexpr") for name in fn.arg_names}
    # Pointers and lengths are multiples of 16, as Triton finds out from the arguments of most launches.
    attrs = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(signature.values()) if t[0] in "*i"}
    source = ASTSource(fn, signature, {(fn.arg_names.index(k),): v for k, v in constants.items()}, attrs)
    options = backend.parse_options({"ptx_version": 94, **options})
    metadata = {}
    stages = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(target, options, functions, modules, context)
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == "ptx":
            break
    head = "// shared {} threads {} ctas {} scratch {}".format(
        metadata["shared"], 32 * metadata.get("num_warps", options.num_warps), options.num_ctas, metadata["global_scratch_size"]
    )
    return head + "".join(f" swizzle {d['swizzle']}" for d in metadata["tensordesc_meta"]) + "\n" + module


def kernels():
    found = {}
    for module in ("simple", "matmul"):
        found.update(importlib.import_module(module).KERNELS)
    return found


def write(folder, name):
    fn, arch, types, constants, options = kernels()[name]
    with open(os.path.join(folder, name + ".ptx"), "w") as file:
        file.write(compile(fn, arch, types, constants, options))


if __name__ == "__main__":
    folder, names = sys.argv[1], sys.argv[2:]
    # Forked, so that Triton is imported once.
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        pool.starmap(write, [(folder, name) for name in kernels() if not names or name in names], chunksize=1)
