"""``nbxtensor doctor``: homes and caches that are read-only, full, in the way, damaged or open to others."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doctor_tools import check, problem, texts, warning
from nbxtensor.cli.__main__ import main
from nbxtensor.cli.checks import places
from nbxtensor.cli.checks.scan import scan_store
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.tuning import log, tables
from test_store import make

pytestmark = pytest.mark.usefixtures("place")

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts small disks; skips where that is not allowed."""
    mounted: list[Path] = []

    def disk(options: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("may not mount")
        mounted.append(folder)
        return folder

    yield disk
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_cache_that_is_well(place: Path) -> None:
    assert [check(name).status for name in ("home", "cache", "cached kernels")] == ["ok"] * 3
    assert not place.exists()
    ArtifactStore(place).put(make(1))
    (found, entries) = check("cache"), check("cached kernels")
    assert (found.status, entries.status) == ("ok", "ok")
    assert found.facts["exists"] is True
    assert found.facts["free"] > 0
    assert entries.facts["entries"] == 1
    assert sorted(p.name for p in place.iterdir()) == ["v1"]


def test_a_read_only_home(mount: Mount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    home = mount("ro")
    monkeypatch.setenv("HOME", str(home))
    found = check("home")
    assert (found.status, found.facts["writable"]) == ("ok", False)  # the cache is elsewhere
    monkeypatch.delenv("NBX_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert re.search(rf"home folder {home} cannot be written \(Read-only.*-> set NBX_CACHE_DIR", problem("home"))
    assert re.search("cache .* cannot be written .Read-only.* -> set NBX_CACHE_DIR", problem("cache"))
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "2 problems, 0 warnings" in shown
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.parent))
    assert [check(name).status for name in ("home", "cache")] == ["ok", "ok"]


def test_a_writable_cache_in_a_read_only_home(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    home = mount("size=1m")
    (home / ".cache").mkdir()
    inner = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(home / ".cache")]
    subprocess.run(inner, check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("NBX_CACHE_DIR")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert [check(name).status for name in ("home", "cache")] == ["ok", "ok"]
    finally:
        subprocess.run(["umount", str(home / ".cache")], check=True)


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert check("home").status == "ok"
    monkeypatch.delenv("NBX_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert "there is none" in problem("home")
    assert "memory only" in problem("cache")
    assert [check(name).status for name in ("cached kernels", "certificates", "launches")] == ["ok"] * 3
    assert len(tables.folders()) == 1
    log.append([log.OpenKey("k", "uncertified", "", "c", 1)])
    log.clear_log()
    assert log.read_log() == []


def test_a_full_disk(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = mount("size=4m,mode=755")
    monkeypatch.setenv("NBX_CACHE_DIR", str(disk / "cache"))
    assert "nearly full" in warning("cache")
    store = ArtifactStore(disk / "cache")
    store.put(make(1))
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb") as file:
        file.write(bytes(8 << 20))
    text = problem("cache")
    assert re.search(r"cannot be written \(No space left on device\).* -> free some space", text)
    assert main(["doctor"]) == 1
    filler.write_bytes(bytes((3 << 20) + (500 << 10)))
    assert re.search(r"disk of the kernel cache .* is full \(\d.* KiB left\) -> free some space", problem("cache"))


def test_no_more_files(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = mount("size=100m,nr_inodes=3,mode=755")
    monkeypatch.setenv("NBX_CACHE_DIR", str(disk))
    assert check("cache").status == "ok"
    (disk / "a").touch()
    (disk / "b").touch()
    assert "No space left" in problem("cache")
    monkeypatch.setattr(places, "write_error", lambda folder: None)
    assert "no file can be made" in problem("cache")


@pytest.mark.parametrize("below", ["", "deep/cache"])
def test_a_file_in_the_way(place: Path, below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_text("")
    monkeypatch.setenv("NBX_CACHE_DIR", str(place / below))
    assert f"{place} is not a folder -> set NBX_CACHE_DIR" in problem("cache")
    assert check("cached kernels").status == "problem"
    assert main(["doctor"]) == 1


def test_a_link_that_leads_nowhere(place: Path) -> None:
    place.symlink_to(place.parent / "gone")
    assert "a link that leads nowhere" in problem("cache")


def test_a_read_only_folder_inside_of_the_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ArtifactStore(place).put(make(1))
    real = places.write_error
    refused = PermissionError(13, "Permission denied")
    monkeypatch.setattr(places, "write_error", lambda folder: refused if folder.name == "v1" else real(folder))
    assert "cannot be written (Permission denied)" in problem("cache")


def test_a_cache_that_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CACHE_BYTES", "0")
    assert "every process compiles" in warning("cache")


def test_a_cache_that_others_may_write(place: Path) -> None:
    ArtifactStore(place).put(make(1))
    (place / "v1").chmod(0o777)
    assert f"chmod go-w '{place / 'v1'}'" in warning("cache")
    (place / "v1").chmod(0o755)
    assert check("cache").status == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_a_cache_of_another_user(place: Path) -> None:
    ArtifactStore(place).put(make(1))
    os.chown(place / "v1", 65534, 65534)
    assert "belongs to another user" in warning("cache")


def test_damaged_entries(place: Path) -> None:
    store = ArtifactStore(place)
    for number in range(5):
        store.put(make(number))
    paths = [entry.path for entry in store.entries()]
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[:-1])
    text = problem("cached kernels")
    assert f"1 entry of the kernel cache is damaged, such as {paths[0]} -> rm that file" in text
    paths[1].write_bytes(b"")
    changed = bytearray(paths[2].read_bytes())
    changed[-5] ^= 1
    paths[2].write_bytes(changed)
    paths[3].write_bytes(content)  # whole, but under another key
    text = problem("cached kernels")
    assert "4 entries of the kernel cache are damaged" in text
    assert "nbxtensor cache clear" in text
    assert sorted(check("cached kernels").facts["damaged"]) == sorted(map(str, paths[:4]))
    assert all(path.exists() for path in paths)
    assert main(["doctor"]) == 1


def test_a_cache_too_large_to_read_in_time(place: Path) -> None:
    store = ArtifactStore(place)
    for number in range(3):
        store.put(make(number))
    found = scan_store(store, seconds=-1)
    assert (found.entries, found.read) == (3, 1)


def test_texts_are_complete(place: Path) -> None:
    place.write_text("")
    assert len(texts(check("cached kernels"), "problem")) == 1
