"""The runtime that is shipped alone: what is in its wheel, and what a deployment does with it."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.building.providers import PROVIDERS
from tilewright.runtime.part_loader import BUILT_IN, LOADERS

from .graph.test_shipping import layers, x_of
from .graph.test_stored_partition import chain
from .graph.test_stored_partition import x_of as x_of_chain

SERIAL = "cpu -threads=1"
MAX_BYTES = 400_000
PACKAGES = ("base", "runtime", "target")
pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


def run(*command: str | Path, cwd: Path) -> str:
    """What a process prints, which sees nothing of this checkout."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={"PATH": ""}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*words: str | Path, cwd: Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy, since building leaves files beside the sources."""
    copy, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    caches = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for name in (*PACKAGES, "packaging"):
        shutil.copytree(root / name, copy / name, ignore=caches, symlinks=True)
    shutil.copy(root / "LICENSE", copy)
    options = ("--quiet", "--no-deps", "--no-build-isolation")
    pip("wheel", *options, "-w", made, copy / "packaging/runtime", cwd=copy)
    (path,) = made.glob("*.whl")
    return path


def test_the_wheel_has_the_sources_of_three_packages_and_needs_numpy(
    root: Path, wheel: Path
) -> None:
    assert wheel.stat().st_size <= MAX_BYTES
    sources = {
        f"{name}/{path.name}": path.read_bytes()
        for name in PACKAGES
        for path in (root / name).glob("*.py")
    }
    own = {name: (root / "packaging/runtime" / name).read_bytes() for name in ("__init__.py",)}
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    info = f"tilewright_runtime-{tw.__version__}.dist-info"
    told = BytesParser().parsebytes(found[f"{info}/METADATA"])
    assert found[f"{info}/licenses/LICENSE"] == (root / "LICENSE").read_bytes()
    inside = {name: code for name, code in found.items() if not name.startswith(f"{info}/")}
    assert inside.pop("tilewright_runtime/py.typed") == b""
    assert inside == {f"tilewright_runtime/{n}": code for n, code in {**sources, **own}.items()}
    needed = [text for text in told.get_all("Requires-Dist", ()) if "extra ==" not in text]
    assert needed == ["numpy<3,>=2.0"]


VENDOR = """
import numpy as np

try:
    import tilewright as tw
except ImportError:
    import tilewright_runtime as tw

@tw.register_provider
class Vendor(tw.Provider):
    name = "vendor"

    def refusal(self, node):
        return None if node.operator == "tanh" else "it has tanh only"

    def version(self):
        return "1.0"

    def compile(self, part, target):
        return self.load(self.store(part, target), target)

    def store(self, part, target):
        return part.nodes[0].operator.encode()

    def load(self, content, target: tw.Target):
        return getattr(np, content.decode())
"""


class Shipped(NamedTuple):
    """A folder with a kernel, a model, one of which a user's provider runs a part, arguments of
    them, and the results where they were built."""

    folder: Path
    product: np.ndarray
    outputs: tuple[np.ndarray, ...]
    chained: np.ndarray


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "vendor.py").write_text(VENDOR)
    runpy.run_path(str(folder / "vendor.py"))
    rng = np.random.default_rng(0)
    func, graph = ops.matmul_func(16, 12, 8), layers()
    built = tw.build(func, SERIAL, allow=("default",))
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 12)))
    c = np.empty((16, 12), np.float32)
    built(a, b, c)
    x = x_of(graph)
    for name, array in {"a": a, "b": b, "x": x}.items():
        np.save(folder / f"{name}.npy", array)
    for program, name in ((func, "matmul.so"), (graph, "layers.so")):
        tw.build_library(program, folder / name, SERIAL, allow=("default",))
    options: dict[str, Any] = {
        "providers": ["tilewright", "vendor"],
        "placement": {"tanh": "vendor"},
    }
    parted = chain("exp", "tanh", "negative")
    tw.build_library(parted, folder / "chain.so", SERIAL, allow=("default",), **options)
    chained = tw.load(folder / "chain.so")(x_of_chain())
    del PROVIDERS["vendor"], LOADERS["vendor"]
    return Shipped(folder, c, tw.build(graph, SERIAL, allow=("default",))(x), chained)


DEPLOYED = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import tilewright_runtime as tw

a, b, x = (np.load(f"{name}.npy") for name in "abx")
kernel, model = tw.load("matmul.so"), tw.load("layers.so", counting=True)
c = np.empty((16, 12), np.float32)
kernel(a, b, c)
kernel.warm_up()
model.warm_up()
with ThreadPoolExecutor(8) as pool:
    tops = {top.tobytes() for _, top in pool.map(model, [x] * 100)}
print(kernel.ready, model.ready, model.report().calls, len(tops))
try:
    tw.load("chain.so")
except tw.ProviderError as error:
    print(error.data["provider"])
import vendor
parted = tw.load("chain.so")
parted.warm_up()
print(parted.ready, parted.evidence.elsewhere, tw.verify("chain.so").passed)
np.savez("results.npz", c, *model(x), parted(np.linspace(-1, 1, 64, dtype=np.float32)))
try:
    kernel(a, b, b)
except tw.ArgumentError as error:
    print(error._render_traceback_()[-1].startswith("tilewright_runtime."))
try:
    tw.load("matmul.so", keys=["release.pub"])
except tw.TrustError as error:
    print(error.hint)
try:
    kernel._repr_html_()
except NotImplementedError:  # by which IPython knows that there is nothing to show
    print("no picture")
files = {name for name, module in sys.modules.items() if getattr(module, "__file__", None)}
loaded = {name.partition(".")[0] for name in files} - sys.stdlib_module_names
print(*sorted(name for name in loaded if not name.startswith("_")))
"""


def check_results(shipped: Shipped) -> None:
    with np.load(shipped.folder / "results.npz") as results:
        for wanted, found in zip(
            (shipped.product, *shipped.outputs, shipped.chained), results.values(), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.timeout(120)
def test_a_deployment_has_numpy_and_the_wheel_alone(
    wheel: Path, shipped: Shipped, tmp_path: Path
) -> None:
    """A new environment, as a user makes it; numpy is that of this one, by links."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", purelib, cwd=tmp_path).strip())
    numpy = distribution("numpy")
    for name in {path.parts[0] for path in numpy.files or ()} - {".."}:
        (site / name).symlink_to(Path(str(numpy.locate_file(name))))
    pip("--python", python, "install", "--no-index", "--no-compile", wheel, cwd=tmp_path)
    assert pip("--python", python, "check", cwd=tmp_path) == "No broken requirements found.\n"
    told = run(python, "-c", DEPLOYED, cwd=shipped.folder).splitlines()
    sign = "pip install 'tilewright-runtime[sign]'"
    vendor = ["vendor", "True ('tanh by vendor',) True"]
    loaded = "numpy tilewright_runtime vendor"
    assert told == ["True True 101 1", *vendor, "True", sign, "no picture", loaded]
    check_results(shipped)


def test_names_of_providers_that_are_built_in() -> None:
    """The runtime refuses them too, although it has only some of these providers."""
    assert frozenset(PROVIDERS) == BUILT_IN


BESIDE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import tilewright as tw
import tilewright_runtime as runtime

assert runtime.load is not tw.load and runtime.__version__ == tw.__version__
a, b = (np.load(f"{name}.npy") for name in "ab")
products = []
for library in (runtime, tw):
    kernel = library.load("matmul.so")
    products.append(np.empty((16, 12), np.float32))
    kernel(a, b, products[-1])
np.testing.assert_array_equal(products[0], products[1])
"""


def test_a_process_may_have_both(wheel: Path, shipped: Shipped) -> None:
    """They share neither files nor names, and import from an archive works too."""
    assert run(sys.executable, "-c", BESIDE, wheel, cwd=shipped.folder) == ""
