"""From a fresh process to its first result: a softmax out of a pack, out of the cache, compiled; and both models.

Figures are of whole processes, the interpreter's start and NumPy's import included. In the processes that use the pack
Triton and LLVM cannot be imported, and the cache is empty.

    python -m bench.packs --device cuda --models --json OUT.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness import OURS, Row, report

ROOT = Path(__file__).parents[1]
ALONE = "import sys; sys.modules['triton'] = sys.modules['llvmlite'] = None\n"
SOFTMAX = """
import numpy as np
import nbxtensor as nbx
x = (np.arange(64000, dtype=np.int64) * 7919 % 1000 / 100 - 5).astype(np.float32).reshape(64, 1000)
y = np.asarray(nbx.nn.softmax(nbx.asarray(x, device={device!r})).to_device("cpu"))
e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
assert np.allclose(y, e / e.sum(-1, keepdims=True), rtol=2e-6)
"""
CONTEXT = """
from cuda.bindings import driver
def call(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) > 1 else None
call(driver.cuInit(0))
call(driver.cuDevicePrimaryCtxRetain(call(driver.cuDeviceGet(0))))
"""
MODELS = """
import json, sys
import golden_models
print(json.dumps(golden_models.bits({device!r})))
"""


class Fresh:
    """Runs programs in fresh interpreters whose kernels come from a pack or from an empty folder."""

    def __init__(self, folder: Path, pack: Path) -> None:
        self.folder = folder
        self.pack = pack
        self._count = 0

    def seconds(self, program: str, *, packed: bool = False, cache: Path | None = None) -> tuple[float, str]:
        """Time of the whole process, and what it printed."""
        self._count += 1
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_CORETYPE")}
        paths = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT), env.get("PYTHONPATH", "")]
        env |= {
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "NBX_CACHE_DIR": str(cache or self.folder / f"empty{self._count}"),
            "NBX_PACKS": str(self.pack) if packed else "",
            "NBX_TABLES": str(self.folder / "none"),
        }
        begin = time.perf_counter()
        code = (ALONE if packed else "") + program
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        taken = time.perf_counter() - begin
        if done.returncode:
            raise SystemExit(done.stderr)
        return taken, done.stdout

    def median(self, program: str, runs: int, *, packed: bool = False, cache: Path | None = None) -> float:
        """Median of several runs after one that fills what the system and the interpreter keep."""
        self.seconds(program, packed=packed, cache=cache)
        return statistics.median(self.seconds(program, packed=packed, cache=cache)[0] for _ in range(runs))


def write(path: Path, arch: str, models: bool) -> int:
    """Make the pack of everything that is measured; gives its size."""
    import golden_models
    import nbxtensor as nbx
    from nbxtensor.cli.pack_census import enter_model, operator_census
    from nbxtensor.compiler.pack_build import Wanted, build
    from nbxtensor.compiler.pack_file import write_pack
    from nbxtensor.device.null import NullDevice
    from nbxtensor.device.profile import target_of
    from nbxtensor.onnx.zoo.files import model_file

    census = Wanted()
    operator_census(census, [arch], ["softmax(float32[64, 1000])"])
    if models:
        device = NullDevice(target_of(arch))
        for name, file, inputs in golden_models.cases():
            shapes = {key: value.shape for key, value in inputs.items()}
            enter_model(census, nbx.onnx.load(model_file(file), device), device, shapes, name)
    built = build(census, nbx.__version__)
    return write_pack(path, built.items, built.manifest, {})


def softmax_rows(fresh: Fresh, device: str, runs: int) -> list[Row]:
    """The same softmax in fresh processes."""
    program = SOFTMAX.format(device=device)
    rows = [
        Row("python", "starts", 0, {OURS: fresh.median("", runs)}),
        Row("python", "imports numpy", 0, {OURS: fresh.median("import numpy", runs)}),
    ]
    if device != "cpu":
        rows.append(Row("python", "makes a CUDA context", 0, {OURS: fresh.median(CONTEXT, runs)}))
    warm = fresh.folder / "warm"
    compiled = statistics.median(fresh.seconds(program)[0] for _ in range(3))
    return [
        *rows,
        Row("softmax", "from a pack", 0, {OURS: fresh.median(program, runs, packed=True)}),
        Row("softmax", "warm cache", 0, {OURS: fresh.median(program, runs, cache=warm)}),
        Row("softmax", "empty cache, compiled", 0, {OURS: compiled}),
    ]


def model_rows(fresh: Fresh, device: str) -> list[Row]:
    """Both models on all inputs of the golden file, from the pack, in one fresh process; their bits are compared."""
    fresh.seconds(MODELS.format(device=device), packed=True)
    taken, printed = fresh.seconds(MODELS.format(device=device), packed=True)
    golden = json.loads((ROOT / "tests/golden/models.json").read_text())["cases"]
    found = json.loads(printed)
    wrong = sorted(name for name in golden if found.get(name) != golden[name])
    print(f"{len(golden) - len(wrong)} of {len(golden)} model cases from the pack have the golden bits")
    if wrong:
        raise SystemExit(f"other bits: {', '.join(wrong)}")
    return [Row("both models", "from a pack, all cases", 0, {OURS: taken})]


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cpu")
    options.add_argument("--runs", type=int, default=9)
    options.add_argument("--pack", type=Path, metavar="FILE", help="take this pack, instead of making one")
    options.add_argument("--models", action="store_true", help="both models too (their files must be there)")
    options.add_argument("--json", type=Path, metavar="OUT", help="write the rows and the machine's facts there")
    chosen = options.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests"))
    from nbxtensor.device import get

    arch = get(chosen.device).target.arch
    with tempfile.TemporaryDirectory() as folder:
        pack: Path = chosen.pack or Path(folder, "bench.nbxpack")
        size = pack.stat().st_size if chosen.pack else write(pack, arch, chosen.models)
        fresh = Fresh(Path(folder), pack.absolute())
        rows = softmax_rows(fresh, chosen.device, chosen.runs)
        rows += model_rows(fresh, chosen.device) if chosen.models else []
    report(f"Fresh processes on {chosen.device} ({arch})", rows, chosen, pack_bytes=size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
