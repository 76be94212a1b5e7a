"""What the command line prints to: streams that are closed, and encodings that lack what a path holds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbxtensor.tuning.tables import SHIPPED

PROGRAM = [sys.executable, "-m", "nbxtensor.cli"]
LIST = ["certify", "--list", "--op", "softmax(float32[65536, 1024])", "--arch", "sm_90"]


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict", "latin-1:strict"])
def test_paths_of_any_bytes_are_printed(encoding: str, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\xfe \xe2\x86\x92"
    (table := Path(os.fsdecode(folder)) / "sm_90" / "softmax.json").parent.mkdir(parents=True)
    table.write_bytes((SHIPPED / "sm_90" / "softmax.json").read_bytes())
    knobs = {
        **os.environ,
        "NBX_TABLES": os.fsdecode(folder),
        "PYTHONIOENCODING": encoding,
        "NBX_CACHE_DIR": str(tmp_path),
    }
    for verb in (LIST, ["info"]):
        done = subprocess.run([*PROGRAM, *verb], env=knobs, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"softmax" in done.stdout


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams(closed: tuple[int, ...], tmp_path: Path) -> None:
    """What would have been printed is lost; nothing else is written to, and the JSON is nothing but JSON."""
    shut = "import os, sys; [os.close(n) for n in map(int, sys.argv[1])]; os.execv(sys.executable, sys.argv[2:])"
    names = "".join(map(str, closed))
    asked = ["certify", "--op", "exp(float32[7])", "--json"]
    knobs = {**os.environ, "NBX_TABLES": str(tmp_path / "tables"), "NBX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", shut, names, *PROGRAM, *asked], env=knobs, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if 1 not in closed:
        assert json.loads(done.stdout)["keys"][0]["verdict"] in ("tie", "chosen")
    (table,) = (tmp_path / "tables").rglob("*.json")
    assert json.loads(table.read_text())["setting"]
