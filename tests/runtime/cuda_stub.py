"""Builds `cuda_stub.c`, a driver's library for machines without one."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda_stub.c")
_DEFAULT = Path("/usr/local/cuda")


def toolkit_headers() -> Path | None:
    """The folder of the toolkit's cuda.h; `None` where there is none."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parents[1], _DEFAULT]
    folders = [Path(root, "include") for root in roots if root]
    return next((folder for folder in folders if Path(folder, "cuda.h").exists()), None)


def missing_tools() -> str | None:
    """What building takes and this machine lacks."""
    if toolkit_headers() is None:
        return "the toolkit's cuda.h"
    return next((tool for tool in ("gcc", "nm") if shutil.which(tool) is None), None)


def build_stub(folder: Path) -> Path:
    """The library, in a folder.

    Functions that pycuda is linked against and the stub lacks are there too, and refuse.
    """
    library, rest = folder / "libcuda.so.1", folder / "rest.c"
    headers = toolkit_headers()
    assert headers is not None
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-I{headers}"]
    command += ["-Wl,-soname,libcuda.so.1", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    missing = sorted(_symbols(_pycuda(), "--undefined-only") - _symbols(library, "--defined-only"))
    if missing:
        refused = "".join(f"int {name}(void) {{ return 801; }}\n" for name in missing)
        rest.write_text(refused)
        subprocess.run([*command, str(rest)], check=True, timeout=60)
    return library


def _pycuda() -> Path | None:
    """pycuda's extension, where it is installed."""
    spec = find_spec("pycuda")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_driver*.so"))


def _symbols(library: Path | None, which: str) -> set[str]:
    """The names of the driver's functions that a library defines, or takes from elsewhere."""
    if library is None:
        return set()
    command = ["nm", "-D", which, str(library)]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    names = {line.split()[-1].partition("@")[0] for line in run.stdout.splitlines()}
    return {name for name in names if name.startswith("cu") and name[2:3].isupper()}
