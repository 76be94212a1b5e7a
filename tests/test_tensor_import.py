"""What `import nbxtensor` brings, and what it costs."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

import nbxtensor as nbx

LATE = [
    "triton",
    "llvmlite",
    "onnx",
    "cuda",
    "rich",
    "click",
    "ml_dtypes",
    "tokenizers",
    "safetensors",
    "torch",
    "importlib.metadata",
]
USE = """
x = nbx.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
y = x[1, ::-1].reshape(3, 1)
assert np.asarray(y).tolist() == [[5], [4], [3]] and np.from_dlpack(x).shape == (2, 3)
repr(x), nbx.empty(3, "bfloat16"), nbx.from_dlpack(np.zeros(2)), nbx.result_type(nbx.bfloat16, 1.0)
"""


def run(code: str):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("use", ["", USE], ids=["import", "use"])
def test_heavy_packages_stay_out(use):
    code = f"import sys, json, numpy as np\nimport nbxtensor as nbx\n{use}\nprint(json.dumps(sorted(sys.modules)))"
    loaded = run(code)
    assert [name for name in LATE if name in loaded] == []


def test_ml_dtypes_comes_when_it_is_needed():
    code = (
        "import sys, nbxtensor as nbx\nnbx.asarray([1.0], 'bfloat16')\nprint(str('ml_dtypes' in sys.modules).lower())"
    )
    assert run(code) is True


def test_import_time():
    """At most 40 ms beyond NumPy; where NumPy itself takes longer than 80 ms, the machine is slow: half of that."""
    code = (
        "import time\na = time.process_time()\nimport numpy\nb = time.process_time()\nimport nbxtensor\n"
        "nbxtensor.Tensor, nbxtensor.asarray, nbxtensor.float32\nprint([b - a, time.process_time() - b])"
    )
    runs = [run(code) for _ in range(3)]
    numpy, ours = (min(column) for column in zip(*runs, strict=True))
    assert ours < max(0.04, numpy / 2), f"{1e3 * ours:.0f} ms beyond NumPy's {1e3 * numpy:.0f} ms"


def test_every_public_name_is_there():
    for name in dir(nbx):
        getattr(nbx, name)
    assert {"asarray", "from_dlpack", "float32", "bool", "Tensor", "reshape", "pi", "newaxis", "nn"} <= set(dir(nbx))
    assert nbx.newaxis is None
    assert nbx.float32 is import_module("nbxtensor.base.dtypes").float32
    with pytest.raises(AttributeError, match="module 'nbxtensor' has no attribute 'flaot32'"):
        nbx.flaot32  # type: ignore[attr-defined]  # noqa: B018


def test_type_stubs_name_what_is_loaded():
    """The names under TYPE_CHECKING and the table of lazy imports agree."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(nbx.__file__).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    typed = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for name in nbx._MODULES:
        assert typed.pop(name) == "nbxtensor"
    assert typed == nbx._HOME
