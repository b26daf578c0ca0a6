"""Downloads nvcc 13.0 from PyPI and unpacks what `nvcc -ptx` needs: fetch.py FOLDER makes FOLDER/nvidia/cu13."""

import os
import subprocess
import sys
import zipfile

WHEELS = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
]
FOLDERS = ("nvidia/cu13/bin/", "nvidia/cu13/nvvm/", "nvidia/cu13/include/")
# What only comes after the PTX; ptxas does not, nvcc runs it on some sources all the same.
UNUSED = ("bin/nvlink", "bin/fatbinary", "bin/bin2c")

folder = sys.argv[1]
pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "30"]
options = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder]
done = subprocess.run(pip + options + WHEELS)
if done.returncode != 0:
    sys.exit("pip cannot download " + ", ".join(WHEELS))
for name in [n for n in os.listdir(folder) if n.endswith(".whl")]:
    wheel = os.path.join(folder, name)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.startswith(FOLDERS) and not member.endswith(UNUSED):
                path = archive.extract(member, folder)
                if "/bin/" in member:
                    os.chmod(path, 0o755)
    os.remove(wheel)
