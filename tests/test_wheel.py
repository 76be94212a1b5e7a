"""The wheel in an empty environment: what it holds, what it brings, and that it computes."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACK = "nbxtensor/packs/default.nbxpack"

PROGRAM = """
import importlib.util
import numpy as np
import nbxtensor as nbx

assert importlib.util.find_spec("torch") is None
assert "site-packages" in nbx.__file__, nbx.__file__
x = np.random.default_rng(0).standard_normal((37, 1000), dtype=np.float32)
y = np.asarray(nbx.nn.softmax(nbx.asarray(x)))
e = np.exp(x.astype(np.float64))
np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=2e-6)
print("ok")
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run `command` without what the surrounding environment says about Python; returns its output."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k not in ("VIRTUAL_ENV", "PIP_TARGET")}
    env["NBX_CACHE_DIR"] = str(cwd / "cache")
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {n for n in names if not n.split("/")[0].endswith(".dist-info")}
    source = {
        str(p.relative_to(ROOT / "src"))
        for p in (ROOT / "src/nbxtensor").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert package - {PACK} == source
    assert "nbxtensor/py.typed" in names
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.getinfo(PACK).compress_size if PACK in names else 0
    assert packed <= 10_000_000
    assert wheel.stat().st_size - packed < 2_000_000


def test_what_an_extra_brings(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        needed = [line for line in archive.read(name).decode().splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needed if line.endswith("extra == 'cuda'")] == [
        "Requires-Dist: cuda-bindings<14,>=12.9; extra == 'cuda'"
    ]
    assert not any("cuda-core" in line or "torch" in line for line in needed)


def test_softmax_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", "--no-compile", f"{wheel}[compile]", cwd=tmp_path)
    installed = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    assert {line.split("==")[0].lower().replace("_", "-") for line in installed.split()} <= {
        "nbxtensor", "numpy", "ml-dtypes", "triton", "llvmlite", "pip", "setuptools",
    }  # fmt: skip
    assert run(python, "-c", PROGRAM, cwd=tmp_path).split() == ["ok"]
