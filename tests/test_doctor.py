"""``nbxtensor doctor``: what it finds about software, settings, processors, certificates and packs."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbxtensor.cli.trial as trial
from doctor_tools import SOURCE, check, doctor, problem, process, texts, warning
from nbxtensor.base import knobs
from nbxtensor.base.errors import NbxError
from nbxtensor.cli.__main__ import main
from nbxtensor.cli.checks import certificates, devices, software
from nbxtensor.cli.checks.core import Check, Machine, run_check
from nbxtensor.cli.doctor import CHECKS
from nbxtensor.compiler import packs
from nbxtensor.compiler.jobs import compiler_version
from nbxtensor.device import cpu_level
from nbxtensor.tuning import log
from nbxtensor.tuning.certificate import Certificate, write_table

pytestmark = pytest.mark.usefixtures("place")

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def blocking(folder: Path, *names: str) -> Path:
    """A folder that keeps every process with it on its path from importing these packages."""
    (folder / "sitecustomize.py").write_text(BLOCK.format(names=names))
    return folder


# The command


def test_a_machine_that_is_well(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"0 problems, 0 warnings, {len(CHECKS)} ok"
    assert all(any(line.split()[:1] == ["ok"] and name in line for line in lines) for name in CHECKS)
    assert not place.exists()


def test_json_and_exit_status_in_a_process(place: Path) -> None:
    status, rows = doctor()
    assert status == 0, [row for row in rows.values() if row["status"] != "ok"]
    assert list(rows) == list(CHECKS)
    for row in rows.values():
        assert set(row) == {"name", "status", "facts", "findings"}
        assert row["status"] == "ok" or row["name"] == "certificates"  # the shipped ones may be of another compiler
    tried = rows["a kernel"]["facts"]["devices"]
    assert tried["cpu"] == "right"
    assert set(tried.values()) == {"right"}
    assert log.read_log() == []
    status, rows = doctor(NBX_NUM_THREADS="none", NBX_CERTIFIED_ONLY="1")
    assert status == 1
    assert rows["settings"]["status"] == "problem"
    (finding,) = rows["settings"]["findings"]
    assert set(finding) == {"status", "text", "mend"}
    assert "NBX_NUM_THREADS" in finding["text"]


def test_counts_and_the_worst_status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_DEVISE", "cpu")
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "warning"
    assert report["counts"] == {"ok": len(CHECKS) - 1, "warning": 1, "problem": 0}
    monkeypatch.setenv("NBX_CACHE_BYTES", "much")
    assert main(["doctor"]) == 1
    assert "problem" in capsys.readouterr().out


def test_no_check_crashes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(check: Check, machine: Machine) -> None:
        check.facts["before"] = 1
        raise ZeroDivisionError("planted")

    for name in CHECKS:
        monkeypatch.setitem(CHECKS, name, broken)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.count("could not be done: ZeroDivisionError: planted") == len(CHECKS)


def test_an_error_of_ours_keeps_its_mend_apart_and_ctrl_c_goes_through() -> None:
    def refused(check: Check, machine: Machine) -> None:
        raise NbxError("f", "it is bad", got=3, mend="make it good")

    def interrupted(check: Check, machine: Machine) -> None:
        raise KeyboardInterrupt

    (finding,) = run_check("x", refused, Machine()).findings
    assert (finding.text, finding.mend) == ("f: it is bad; got 3", "make it good")
    with pytest.raises(KeyboardInterrupt):
        run_check("x", interrupted, Machine())


# Software


def test_the_ranges_are_those_of_the_project() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, packages in software.RANGES.items():
        stated = dict(re.fullmatch(r"([\w-]+)(.*)", row).groups() for row in extras[extra])
        assert stated == packages
    assert project["requires-python"] == ">={}.{}".format(*software.PYTHONS[0])
    pythons = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d", c)]
    assert pythons[-1] == "{}.{}".format(*software.PYTHONS[1])


@pytest.mark.parametrize(
    ("version", "fits"),
    [("3.6", True), ("3.6.0", True), ("3.9.1+git12", True), ("3.10", False), ("3.5.9", False), ("3.10.0rc1", False)],
)
def test_ranges(version: str, fits: bool) -> None:
    assert software.within(version, ">=3.6,<3.10") is fits


def test_versions_that_were_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    real = software.installed_version
    monkeypatch.setattr(software, "installed_version", lambda p: "3.12.0" if p == "triton" else real(p))
    assert re.search(r"triton 3\.12\.0 is outside.*>=3.6,<3.10.*pip install 'triton", warning("packages"))
    monkeypatch.setattr(software, "PYTHONS", ((3, 1), (3, 2)))
    assert "was not tried" in warning("python")


def test_without_compilers(tmp_path: Path, place: Path) -> None:
    status, out, err = process("doctor", "--json", path=blocking(tmp_path, "triton", "llvmlite"))
    rows = {row["name"]: row for row in json.loads(out)["checks"]}
    assert [name for name, row in rows.items() if row["status"] != "ok"] == ["compilers"]
    (finding,) = rows["compilers"]["findings"]
    shipped = rows["packs"]["facts"]["packs"] != []
    assert (status, err) == (0 if shipped else 1, "")
    assert finding["status"] == ("warning" if shipped else "problem")
    assert "triton and llvmlite" in finding["text"]
    assert "pip install 'nbxtensor[compile]'" in finding["mend"]
    assert rows["a kernel"]["facts"]["devices"]["cpu"].startswith("right" if shipped else "not tried")
    assert rows["packages"]["facts"]["triton"] is None


def test_without_compilers_but_with_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "present", lambda package: package != "llvmlite")
    assert "llvmlite" in problem("compilers")
    monkeypatch.setattr(packs, "in_use", lambda: [object()])
    assert re.search(r"llvmlite cannot be found; only.*pip install 'nbxtensor\[compile\]'", warning("compilers"))


def test_a_compiler_that_cannot_be_imported(tmp_path: Path, place: Path) -> None:
    broken = tmp_path / "triton"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libgone.so: cannot open shared object file')")
    _, out, _ = process("doctor", "--json", path=tmp_path)
    (row,) = (row for row in json.loads(out)["checks"] if row["name"] == "compilers")
    assert "triton cannot be imported: ImportError: libgone.so" in row["findings"][0]["text"]
    assert row["findings"][0]["mend"].startswith("pip install --force-reinstall triton llvmlite")


def test_no_rich_and_no_onnx_are_needed(tmp_path: Path, place: Path) -> None:
    status, out, err = process("doctor", path=blocking(tmp_path, "rich", "onnx", "tokenizers", "cuda"))
    assert (status, err) == (0, ""), out
    assert "not installed: cuda-bindings, onnx, rich, tokenizers" in out


def test_no_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(software.tempfile, "gettempdir", refuse)
    assert "set TMPDIR" in problem("compilers")


# Settings and processor


def test_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CACHE_BITES", "3")
    assert re.search("NBX_CACHE_BITES is not a switch.*did you mean NBX_CACHE_BYTES", warning("settings"))
    monkeypatch.setenv("NBX_CACHE_BITES", "")
    monkeypatch.setenv("NBX_CPU_LEVEL", "x86-64-v9")
    monkeypatch.setenv("NBX_TABLES", "~nobody-of-this-name/tables")
    first, second = texts(check("settings"), "problem")
    assert re.search("NBX_CPU_LEVEL: .*bad value.*x86-64-v9.*correct or unset NBX_CPU_LEVEL", first)
    assert "NBX_TABLES" in second
    assert check("settings").facts["NBX_CPU_LEVEL"] == "x86-64-v9"


@pytest.mark.parametrize("cpu_max", ["50000 100000", "10000 100000"])
def test_less_than_a_processor(cpu_max: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "CGROUP", tmp_path)
    assert check("threads").status == "ok"
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert check("threads").status == "ok"
    (tmp_path / "cpu.max").write_text(cpu_max)
    assert f"{int(cpu_max.split()[0]) / 100000:.2f} of a processor" in warning("threads")


def test_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_NUM_THREADS", str(10 * knobs.usable_cpus()))
    assert "unset NBX_NUM_THREADS" in warning("threads")


def test_an_old_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = frozenset(("sse4_2", "avx"))
    monkeypatch.setattr(cpu_level, "cpu_flags", lambda: flags)
    monkeypatch.setattr(devices, "cpu_flags", lambda: flags)
    assert re.search(r"older than x86-64-v3; got one without .*avx2.* -> use an x86-64 processor", problem("processor"))


def test_a_level_that_the_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = cpu_level.LEVELS["x86-64-v3"]
    monkeypatch.setattr(cpu_level, "cpu_flags", lambda: flags)
    monkeypatch.setattr(devices, "cpu_flags", lambda: flags)
    monkeypatch.setenv("NBX_CPU_LEVEL", "x86-64-v4")
    assert "unset NBX_CPU_LEVEL" in problem("processor")


def test_memory_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "memory_info", lambda: (0, 0))
    assert "0 bytes free of 0" in problem("processor")


# The trial


def test_a_wrong_sum_and_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "try_device", trial.attempt)
    monkeypatch.setenv("NBX_DEVICE", "frob")
    assert re.search("a sum on frob failed: device: no device has this name", problem("a kernel"))
    monkeypatch.setenv("NBX_DEVICE", "cpu")
    assert check("a kernel").facts["devices"]["cpu"] == "right"
    monkeypatch.setattr(trial.np, "array_equal", lambda a, b: False)
    monkeypatch.setattr(trial.np, "flatnonzero", lambda a: [3])
    assert "wrong: 3.0 + 3.0 gave 6.0" in texts(check("a kernel"), "problem")[0]


def test_a_trial_that_dies_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    custom = tmp_path / "sitecustomize.py"
    custom.write_text("import os, sys\nif sys.argv == ['-m', 'cpu']: os.abort()")
    assert "killed by signal 6" in trial.try_device("cpu").error
    custom.write_text("import time\ntime.sleep(60)")
    assert "no answer within 0.5 s" in trial.try_device("cpu", 0.5).error
    custom.write_text("import sys, atexit\nprint('half a line'); sys.exit(3)")
    assert "died" in trial.try_device("cpu").error


# Certificates and packs


def certificate(key: str, compiler: str) -> Certificate:
    return Certificate(key, {"0": 1}, True, {"0" * 16: "1" * 16}, {}, {}, compiler, "d")


def write(folder: Path, *found: Certificate) -> Path:
    path = folder / "tables" / "x86-64-v3" / "softmax.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_table(found))
    return path


def test_stale_tables(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CPU_LEVEL", "x86-64-v3")
    here = compiler_version("cpu")
    write(place, certificate("a", here))
    assert check("certificates").status == "ok"
    write(place, certificate("a", here), certificate("b", "triton 1"), certificate("c", "triton 1"))
    assert re.search(
        r"2 certificates for x86-64-v3 are stale.*triton 1.*-> nbxtensor certify --arch x86-64-v3",
        warning("certificates"),
    )
    assert check("certificates").facts["certificates"] == 3
    monkeypatch.setattr(packs, "in_use", lambda: [FakePack(place, {"compilers": {"cpu": "triton 1"}})])
    assert check("certificates").status == "ok"
    monkeypatch.undo()
    monkeypatch.setenv("NBX_CACHE_DIR", str(place))
    monkeypatch.setattr(certificates, "present", lambda package: False)
    assert check("certificates").status == "ok"


@pytest.mark.parametrize("content", [b"{}\n", b"\xff\xfe", b'{"key":'])
def test_damaged_tables(place: Path, content: bytes) -> None:
    path = write(place, certificate("a", "c"))
    path.write_bytes(content)
    assert str(path) in problem("certificates")


def test_tables_that_cannot_be_listed_or_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(place, certificate("a", "c"))
    path.unlink()
    path.mkdir()
    assert "Is a directory" in problem("certificates")
    monkeypatch.setenv("NBX_TABLES", __file__)
    assert "cannot be listed (Not a directory)" in problem("certificates")


def test_stale_launches(place: Path) -> None:
    log.append([log.OpenKey("k1", "uncertified", "", "nbxtensor certify --op a", 2)])
    assert check("launches").status == "ok"
    log.append([log.OpenKey(k, "stale", "other sources", f"nbxtensor certify --op {k}", 1) for k in ("k2", "k3")])
    text = warning("launches")
    assert re.search(
        r"k2 \(other sources\), and 1 more -> nbxtensor certify --op k2; then nbxtensor info --clear", text
    )
    assert {k: v for k, v in check("launches").facts.items() if k != "log"} == {"uncertified": 1, "stale": 2}


class FakePack:
    def __init__(self, path: Path, manifest: dict[str, object], error: Exception | None = None) -> None:
        self.path, self.manifest, self.error = path, manifest, error

    def artifacts(self) -> Iterator[object]:
        yield object()
        if self.error:
            raise self.error


def test_packs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FakePack(Path("/w.nbxpack"), {"library": "0"})
    damaged = FakePack(Path("/d.nbxpack"), {}, NbxError("pack", "/d.nbxpack: it is damaged", mend="copy it again"))
    gone = FakePack(Path("/g.nbxpack"), {}, OSError(5, "Input/output error"))
    monkeypatch.setattr(packs, "in_use", lambda: [whole, damaged, gone])
    found = check("packs")
    assert texts(found, "problem") == [
        "pack: /d.nbxpack: it is damaged -> copy it again",
        "/g.nbxpack cannot be read (Input/output error) -> name another file in NBX_PACKS",
    ]
    assert found.facts["packs"] == [{"path": "/w.nbxpack", "kernels": 1, "manifest": {"library": "0"}}]

    def refuse() -> list[FakePack]:
        raise NbxError("pack", "cannot read /m.nbxpack", mend="name another")

    monkeypatch.setattr(packs, "in_use", refuse)
    assert "cannot read /m.nbxpack" in problem("packs")


def test_doctor_imports_no_compiler(place: Path) -> None:
    program = (
        "import sys; import nbxtensor.cli.trial as t; t.try_device = t.try_import = lambda name: t.Outcome()\n"
        "from nbxtensor.cli.__main__ import main; assert main(['doctor', '--json']) == 0\n"
        "print(*{'triton', 'llvmlite', 'onnx', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "", done.stdout + done.stderr
