"""Where files are written: refused before the work if they cannot be, whole or not at all, and through links."""

import errno
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from nbxtensor.base.errors import ArgumentError, CertificateError
from nbxtensor.base.files import replace_file
from nbxtensor.certify import store
from nbxtensor.certify.prove import Prover
from nbxtensor.cli import outputs
from nbxtensor.cli.app import run
from nbxtensor.compiler import pack_build
from nbxtensor.compiler.pack_file import Pack, write_pack
from nbxtensor.onnx.model import Model
from nbxtensor.tuning import log, tables
from nbxtensor.tuning.certificate import Certificate
from onnx_graphs import graph

MODEL = "model.onnx"


def certificate(key: str) -> Certificate:
    return Certificate(key, {"x": 1}, False, {"a": "1"}, {"calls": ["exp(float32[3])"], "error": 0.5}, {}, "c", "d")


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# Refused before the work


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file, a link that leads nowhere and a model; the work itself must not begin."""
    (tmp_path / "file").write_text("")
    (tmp_path / "lost").symlink_to(tmp_path / "gone")
    (tmp_path / "folder.nbxpack").mkdir()
    made = graph([helper.make_node("Add", ["x", "x"], ["y"])], {"x": np.zeros((2, 3), np.float32)}, ["y"])
    (tmp_path / MODEL).write_bytes(made.SerializeToString())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "tables"))
    tables.forget()

    def begun(*arguments: Any, **named: Any) -> Any:
        pytest.fail("the work was begun")

    monkeypatch.setattr(Prover, "__init__", begun)
    monkeypatch.setattr(pack_build, "compile_many", begun)
    monkeypatch.setattr(Model, "specialize", begun)
    yield tmp_path
    tables.forget()


VERBS = {
    "certify": ("certify", "--op", "exp", "--shapes", "100", "--device", "cpu", "--output"),
    "run": ("run", MODEL, "--device", "cpu", "--output-dir"),
    "pack": ("pack", "--arch", "x86-64-v3", "--ops", "exp(float32[100])", "-o"),
}
WRONG = {
    "no folder can be made": ("/proc/nowhere/x.nbxpack", "No such file or directory|there is no folder /proc/nowhere"),
    "below a file": ("file/x.nbxpack", "file is no folder"),
    "below a link that leads nowhere": ("lost/x.nbxpack", "leads nowhere|there is no folder .*gone"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("verb", VERBS)
def test_what_cannot_be_written_is_refused_first(
    verb: str, wrong: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(place)
    path, reason = WRONG[wrong]
    assert run([*VERBS[verb], path]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert re.search(f"{path}.* cannot be written: .*({reason}).*(-o|--output|make that folder)", err), err
    assert everything(place) == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_full_and_read_only_disks(
    verb: str, code: int, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(place)

    def refused(**where: Any) -> Any:
        assert os.path.isdir(where["dir"])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(outputs.tempfile, "TemporaryFile", refused)
    assert run([*VERBS[verb], "new.nbxpack"]) == 2
    err = capsys.readouterr().err
    assert os.strerror(code) in err
    assert ("free some space" in err) == (code in (errno.ENOSPC, errno.EDQUOT))
    assert everything(place) == before


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("folder.nbxpack", "it is a folder"),
        ("missing/x.nbxpack", "there is no folder .*missing; make that folder"),
        ("n" * 300 + ".nbxpack", "File name too long"),
    ],
)
def test_packs_that_cannot_be_written(path: str, reason: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*VERBS["pack"], path]) == 2
    assert re.search(f"cannot be written: {reason}", capsys.readouterr().err)


@pytest.mark.filterwarnings("ignore::nbxtensor.tuning.tables.TableWarning")
@pytest.mark.parametrize("how", ["a folder", "a link into a folder that is gone", "the arch is a file"])
def test_tables_that_cannot_be_replaced(how: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from nbxtensor.device import get

    folder = place / "tables" / get("cpu").target.arch
    if how == "the arch is a file":
        folder.parent.mkdir()
        folder.write_text("")
    else:
        folder.mkdir(parents=True)
        table = folder / "pointwise.json"
        table.mkdir() if how == "a folder" else table.symlink_to(place / "gone" / "t.json")
    assert run(VERBS["certify"][:-1]) == 2
    assert re.search("cannot be written: .*--output, NBX_TABLES", capsys.readouterr().err)


def test_listing_needs_no_place_to_write(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*VERBS["certify"], "file/x", "--list"]) in (0, 2)
    assert "cannot be written" not in capsys.readouterr().err


def test_no_home(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NBX_TABLES", "NBX_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert run(VERBS["certify"][:-1]) == 2
    assert "there is no home for tables; name a folder: --output" in capsys.readouterr().err


def test_a_folder_that_can_be_made_is_not_made_by_asking(tmp_path: Path) -> None:
    outputs.require_folder(tmp_path / "a" / "b", "x", "y")
    outputs.require_file(tmp_path / "a.nbxpack", "x", "y")
    assert everything(tmp_path) == set()


# Links


def test_a_table_is_written_through_links(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "tables" / "arch"
    kept.mkdir()
    folder.mkdir(parents=True)
    (kept / "mine.json").write_text(certificate("a").line() + "\n")
    (kept / "mine.json").chmod(0o640)
    (folder / "first.json").symlink_to(kept / "mine.json")
    (folder / "op.json").symlink_to("first.json")
    store.add(tmp_path / "tables", "arch", "op", certificate("b"), fresh=False)
    assert os.readlink(folder / "op.json") == "first.json"
    assert (folder / "first.json").is_symlink()
    assert set(store.read(kept / "mine.json")) == {"a", "b"}
    assert (kept / "mine.json").stat().st_mode & 0o777 == 0o640
    assert everything(tmp_path) == {
        *("kept", "kept/mine.json", "kept/.lock", "tables", "tables/arch"),
        *("tables/arch/first.json", "tables/arch/op.json"),
    }


def test_a_table_is_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "op.json").symlink_to("../op.json")
    store.add(tmp_path, "arch", "op", certificate("b"), fresh=False)
    assert (tmp_path / "arch" / "op.json").is_symlink()
    assert set(store.read(tmp_path / "op.json")) == {"b"}


def test_a_pack_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.nbxpack").symlink_to("real.nbxpack")
    write_pack(tmp_path / "link.nbxpack", [], {}, {})
    assert os.readlink(tmp_path / "link.nbxpack") == "real.nbxpack"
    assert Pack(tmp_path / "real.nbxpack").identities == []


def test_the_log_is_packed_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path))
    (tmp_path / "uncertified.jsonl").symlink_to("elsewhere")
    key = log.OpenKey("k", "uncertified", "", "nbxtensor certify", 1)
    log.append([key] * (log.MOST_BYTES // 60))
    assert (tmp_path / "uncertified.jsonl").is_symlink()
    assert len((tmp_path / "elsewhere").read_text().splitlines()) == 1


# Whole or not at all


@pytest.mark.parametrize("fault", ["fsync", "rename"])
def test_a_file_that_cannot_be_written_stays_what_it_was(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def full(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if fault == "fsync" else (Path, "replace")), full)
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{path}'")):
        replace_file(path, b"after")
    assert (path.read_bytes(), everything(tmp_path)) == (b"before", {"file"})
    with pytest.raises(OSError, match="No space left"):
        store.add(tmp_path, "arch", "op", certificate("b"), fresh=False)
    assert everything(tmp_path / "arch") == {".lock"}


def test_a_table_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "arch" / "op.json").mkdir(parents=True)
    with pytest.raises((OSError, CertificateError)):
        store.add(tmp_path, "arch", "op", certificate("b"), fresh=False)


# Folders that several users write to


@pytest.mark.parametrize(("mode", "wanted"), [(0o755, 0o600), (0o775, 0o660), (0o777, 0o666)])
def test_who_may_write_tables_may_lock_them(mode: int, wanted: int, tmp_path: Path) -> None:
    (folder := tmp_path / "sm_90").mkdir()
    folder.chmod(mode)
    store.add(tmp_path, "sm_90", "exp", certificate("k"), fresh=False)
    assert (folder / store.LOCK).stat().st_mode & 0o777 == wanted


def test_a_lock_of_another_user_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "sm_90").mkdir()
    outputs.require_tables(tmp_path, "sm_90", ["exp"], "certify")
    (folder / store.LOCK).touch()
    outputs.require_tables(tmp_path, "sm_90", ["exp"], "certify")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != store.LOCK)
    with pytest.raises(ArgumentError, match=r"\.lock cannot be written: Permission denied; ask its owner"):
        outputs.require_tables(tmp_path, "sm_90", ["exp"], "certify")


# What verify says where there is no such GPU


def test_verify_on_another_architecture_says_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("verify", "certify"):
        assert run([verb, "--arch", "sm_70"]) == 2
        err = capsys.readouterr().err
        assert "no device here has this architecture; got sm_70" in err
        (command,) = re.findall(r"nbxtensor (certify --list --arch sm_70) shows its keys", err)
        assert run([*shlex.split(command), "--op", "exp"]) == 0
        assert "exp" in capsys.readouterr().out
