"""``nbxtensor cache ls`` and ``nbxtensor cache clear``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbxtensor.cli.__main__ import main
from nbxtensor.compiler.store import ArtifactStore
from test_store import make


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "cache"


def test_an_empty_cache(place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["cache", "ls"]) == 0
    assert capsys.readouterr().out == f"0 kernels, 0 B of 1.0 GiB in {place}\n"
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed 0 kernels, 0 B\n"


def test_ls(place: Path, capsys: pytest.CaptureFixture[str]):
    store = ArtifactStore(place)
    store.put(make(1, size=3000))
    store.put(make(2, size=3000))
    os.utime(store.entries()[0].path, (10, 10))
    assert main(["cache", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["key", "kernel", "target", "size", "registers", "stack", "last", "used"]
    assert [line.split()[1:6] for line in lines[1:3]] == [["some_kernel", "sm_90", "3.3", "KiB", "40"]] * 2
    assert lines[3].startswith("2 kernels, 6.6 KiB of 1.0 GiB")


def test_ls_json(place: Path, capsys: pytest.CaptureFixture[str]):
    store = ArtifactStore(place)
    store.put(make(1))
    (place / "v1" / f"{2:064x}.nbx").write_bytes(b"junk")
    assert main(["cache", "ls", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["directory"] == str(place)
    whole = next(e for e in report["entries"] if e["key"] == make(1).key)
    assert (whole["kernel"], whole["registers"], whole["num_warps"]) == ("some_kernel", 40, 8)
    assert whole["constants"]["BLOCK"] == 128
    damaged = next(e for e in report["entries"] if e["key"] == make(2).key)
    assert damaged["damaged"] is True
    assert main(["cache", "ls"]) == 0
    assert "(damaged)" in capsys.readouterr().out


def test_clear(place: Path, capsys: pytest.CaptureFixture[str]):
    ArtifactStore(place).put(make(1))
    assert main(["cache", "clear", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["removed"] == 1
    assert report["bytes"] > 1000
    assert ArtifactStore(place).entries() == []


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["cache", "lss"], {}, "No such command"),
        (["cache", "ls", "--jsn"], {}, "No such option"),
        (["cache", "ls"], {"NBX_CACHE_BYTES": "much"}, "NBX_CACHE_BYTES"),
        (["cache", "ls"], {"NBX_CACHE_DIR": __file__}, "cannot list"),
    ],
)
def test_mistakes_give_one_line_and_status_2(arguments: list[str], environment: dict[str, str], words: str):
    done = subprocess.run(
        [sys.executable, "-m", "nbxtensor.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "src"), **environment},
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_looking_at_the_cache_brings_no_compiler(place: Path):
    program = (
        "import sys; from nbxtensor.cli.__main__ import main; main(['cache', 'ls', '--json']);"
        "print(*{'triton', 'llvmlite', 'onnx', 'cuda', 'rich'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "src")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "", done.stdout + done.stderr


def test_a_warning_is_one_line() -> None:
    environment = {**os.environ, "NBX_BOGUS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "nbxtensor.cli", "models", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("nbxtensor: ")
    assert "NBX_BOGUS" in lines[0]
