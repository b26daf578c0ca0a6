"""Downloads Triton from PyPI and unpacks what compiling for NVIDIA to PTX needs: fetch.py FOLDER makes FOLDER/triton."""

import os
import subprocess
import sys
import zipfile

WHEEL = "triton==3.9.0"
# The assembler, the profiler, the other vendor's compiler.
UNUSED = (
    "triton/backends/amd/lib/",
    "triton/backends/nvidia/bin/",
    "triton/backends/nvidia/include/",
    "triton/backends/nvidia/lib/cupti",
    "triton/_C/libproton",
    "triton/profiler/",
    "triton/instrumentation/",
    "triton/plugins/",
    "triton/FileCheck",
)

folder = sys.argv[1]
pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "30"]
options = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder]
if subprocess.run(pip + options + [WHEEL]).returncode != 0:
    sys.exit("pip cannot download " + WHEEL)
(wheel,) = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".whl")]
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(folder, [n for n in archive.namelist() if not n.startswith(UNUSED)])
os.remove(wheel)
