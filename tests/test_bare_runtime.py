"""Without compilers: the wheel, numpy and ml_dtypes run packed operators; a few packages more run both models."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden_models
import nbxtensor as nbx
from nbxtensor.cli.pack_census import enter_model, operator_census
from nbxtensor.compiler.pack_build import Wanted, build
from nbxtensor.compiler.pack_file import write_pack
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import target_of
from nbxtensor.onnx.zoo.files import MAGIKA, model_file, models_dir
from test_wheel import wheel  # noqa: F401

ROOT = Path(__file__).parents[1]
COMPILERS = ("triton", "llvmlite")
EXTRAS = ("onnx", "tokenizers", "click", "rich", "safetensors", "cuda", "torch", "pytest")
NO_RUNTIME = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")

OPERATORS = """
import json, sys
from importlib.util import find_spec
import numpy as np
import nbxtensor as nbx

def results():
    x = np.random.default_rng(0).standard_normal((37, 1000), dtype=np.float32)
    t = nbx.asarray(x)
    found = [f(t) for f in (nbx.nn.softmax, nbx.nn.log_softmax, nbx.nn.sigmoid, nbx.nn.silu, nbx.sin, nbx.nn.softplus)]
    found += [t + t, t * 2.0, nbx.sum(t, axis=-1), nbx.sort(t), nbx.argsort(t), *nbx.topk(t, 5)]
    return [*found, *nbx.sort_with_indices(t), nbx.cumulative_sum(t, axis=-1), t.astype(nbx.bfloat16)]
"""
CALLS = (
    *("softmax(float32[37, 1000])", "log_softmax(float32[37, 1000])", "sigmoid(float32[37, 1000])"),
    *("silu(float32[37, 1000])", "sin(float32[37, 1000])", "softplus(float32[37, 1000])"),
    *(
        "add(float32[37, 1000], float32[37, 1000])",
        "multiply(float32[37, 1000], 2.0)",
        "sum(float32[37, 1000], axis=-1)",
    ),
    *("sort(float32[37, 1000])", "argsort(float32[37, 1000])", "topk(float32[37, 1000], 5)"),
    *("sort_with_indices(float32[37, 1000])", "cumulative_sum(float32[37, 1000], axis=-1)"),
    "astype(float32[37, 1000], bfloat16)",
)
BARE = """
absent = [n for n in %r if find_spec(n) is not None]
made = [np.asarray(r) for r in results()]
print(json.dumps({
    "absent": absent,
    "place": nbx.__file__,
    "bits": [[str(a.dtype), list(a.shape), a.tobytes().hex()] for a in made],
}))
"""
UNPACKED = """
import numpy as np, nbxtensor as nbx
try:
    nbx.nn.softmax(nbx.asarray(np.zeros((3, 40), np.float64)))
except nbx.base.errors.NotPackedError as error:
    print(error)
"""
MODELS = """
import json, sys
import golden_models
from importlib.util import find_spec
assert not [n for n in %r if find_spec(n) is not None]
print(json.dumps(golden_models.bits("cpu")))
"""


ON_A_GPU = """
from importlib.util import find_spec
import nbxtensor as nbx
print(find_spec("cuda.bindings.driver") is not None, find_spec("cuda.core") is not None)
try:
    print(nbx.ones((2, 3), device="cuda").device.name)
except nbx.base.errors.DeviceError as error:
    print(error)
"""


class Bare:
    """An environment with the wheel and what it needs, and nothing else."""

    def __init__(self, folder: Path, built: Path) -> None:
        self.folder = folder
        self.python = folder / "venv/bin/python"
        self.packs = ""
        self.run(sys.executable, "-m", "venv", folder / "venv")
        self.install(built)

    def install(self, *names: object) -> None:
        self.run(self.python, "-m", "pip", "install", "-q", "--no-compile", *names)

    def run(self, *command: object, status: int = 0, **variables: str) -> str:
        hidden = ("PYTHON", "NBX_", "VIRTUAL_ENV", "PIP_TARGET")
        env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)} | {
            "NBX_CACHE_DIR": str(self.folder / "cache"),
            "NBX_MODELS_DIR": str(models_dir()),
            "NBX_PACKS": self.packs,
            **variables,
        }
        done = subprocess.run(
            [*map(str, command)], cwd=self.folder, env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + (done.stderr if status else "")

    def megabytes(self) -> float:
        """Size of what is installed, without the tools that install it and without bytecode."""
        (site,) = self.folder.glob("venv/lib/python*/site-packages")
        files = [
            p
            for p in site.rglob("*")
            if p.is_file() and p.suffix != ".pyc" and not p.relative_to(site).parts[0].startswith(NO_RUNTIME)
        ]
        return sum(p.stat().st_size for p in files) / 1e6


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with the operators above and both models, for this processor."""
    arch = str(nbx.asarray(0.0, device="cpu").device.target)
    census = Wanted()
    operator_census(census, [arch], CALLS)
    device = NullDevice(target_of(arch))
    for name, file, inputs in golden_models.cases():
        model = nbx.onnx.load(model_file(file), device)
        enter_model(census, model, device, {k: v.shape for k, v in inputs.items()}, name)
    built = build(census, nbx.__version__)
    path = tmp_path_factory.mktemp("packs") / "test.nbxpack"
    write_pack(path, built.items, built.manifest, {})
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path, packed: Path) -> Bare:  # noqa: F811
    made = Bare(tmp_path_factory.mktemp("bare"), wheel)
    made.packs = str(packed)
    return made


def test_packed_operators_run_with_numpy_and_ml_dtypes_alone(bare: Bare) -> None:
    report = json.loads(bare.run(bare.python, "-c", OPERATORS + BARE % ((*COMPILERS, *EXTRAS),)))
    assert report["absent"] == []
    assert "site-packages" in report["place"]
    scope: dict[str, Any] = {}
    exec(OPERATORS, scope)  # the same calls, compiled
    expected = [np.asarray(r) for r in scope["results"]()]
    assert report["bits"] == [[str(a.dtype), list(a.shape), a.tobytes().hex()] for a in expected]
    assert not (bare.folder / "cache/v1").exists()


def test_an_unpacked_kernel_is_an_error_with_two_ways_out(bare: Bare) -> None:
    text = bare.run(bare.python, "-c", UNPACKED)
    for words in ("softmax", "triton and llvmlite", "nbxtensor[compile]", "softmax(float64[3, 40]", bare.packs):
        assert words in text, text


def test_a_damaged_pack_is_an_error(bare: Bare, tmp_path: Path) -> None:
    broken = tmp_path / "broken.nbxpack"
    broken.write_bytes(Path(bare.packs).read_bytes()[:-100])
    text = bare.run(bare.python, "-c", OPERATORS + "results()", status=1, NBX_PACKS=str(broken))
    assert f"PackError: pack: {broken}: the file is cut off" in text
    assert "nbxtensor pack" in text


def test_operators_take_less_than_90_megabytes(bare: Bare) -> None:
    assert bare.megabytes() < 90


@pytest.fixture(scope="module")
def with_models(bare: Bare) -> Bare:
    bare.install("onnx>=1.17,<2", "tokenizers>=0.20,<1", "click>=8.1,<9", "rich>=13,<16")
    return bare


def test_both_models_run_from_a_pack_with_the_same_bits(with_models: Bare) -> None:
    tests = str(ROOT / "tests")
    found = json.loads(with_models.run(with_models.python, "-c", MODELS % (COMPILERS,), PYTHONPATH=tests))
    golden = json.loads((ROOT / "tests/golden/models.json").read_text())
    assert found == golden["cases"]


def test_the_command_line_runs_a_model_from_a_pack(with_models: Bare) -> None:
    command = [
        with_models.python,
        "-m",
        "nbxtensor.cli",
        "run",
        model_file(MAGIKA),
        "--json",
        "--pack",
        with_models.packs,
    ]
    report = json.loads(with_models.run(*command, NBX_PACKS=""))
    assert report["outputs"][0]["shape"] == [1, 214]
    text = with_models.run(*command[:-2], "--dim", "unk__214=33", status=2, NBX_PACKS="")
    assert "in no pack" in text
    assert f"--model {model_file(MAGIKA)}" in text


@pytest.mark.slow
def test_the_extra_for_gpus_is_small_and_enough(tmp_path: Path, wheel: Path) -> None:  # noqa: F811
    made = Bare(tmp_path, wheel)
    made.install(f"{wheel}[cuda]")
    assert made.megabytes() < 110
    found = made.run(made.python, "-c", ON_A_GPU)
    assert found.split("\n")[0] == "True False"
    assert "cuda:0" in found or "no NVIDIA driver was found" in found or "sees no GPU" in found
