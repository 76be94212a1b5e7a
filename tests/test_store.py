"""The artifact store: formats, damage, bounds, and places that cannot be written."""

import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from nbxtensor.base.errors import ArgumentError, CacheError
from nbxtensor.compiler.artifact_file import CorruptArtifactError, dump, load
from nbxtensor.compiler.store import ArtifactStore, CacheWarning, default_store
from nbxtensor.device.artifact import Artifact, Options, Resources, Target


def make(number: int = 0, size: int = 1000) -> Artifact:
    return Artifact(
        key=f"{number:064x}",
        target=Target("cuda", "sm_90"),
        symbol="some_kernel",
        signature=("*fp32", "i64"),
        constants={"BLOCK": 128, "FN": "a.b", "X": -0.0, "Y": float("inf"), "Z": None, "T": [1, 2]},
        options=Options(num_warps=8),
        resources=Resources(40, 0, 1024),
        compiler="test 1",
        binary=bytes((i * 7 + number) % 256 for i in range(size)),
    )


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "cache")


def files(store: ArtifactStore) -> list[str]:
    return sorted(p.name for p in (store.root / "v1").iterdir() if p.name != "lock")


def test_round_trip(store: ArtifactStore):
    assert store.get(make().key) is None
    store.put(make())
    assert store.get(make().key) == make()
    assert ArtifactStore(store.root).get(make().key) == make()
    assert files(store) == [make().key + ".nbx"]


@pytest.mark.parametrize("cut", [0, 1, 8, 40, 43, 44, 100, -1])
def test_truncated_files_are_refused(cut: int):
    content = dump(make())
    with pytest.raises(CorruptArtifactError):
        load(content[:cut])


def test_every_flipped_bit_is_found():
    content = dump(make(size=20))
    for at in range(len(content)):
        broken = bytearray(content)
        broken[at] ^= 1 << (at % 8)
        with pytest.raises(CorruptArtifactError):
            load(bytes(broken))


@pytest.mark.parametrize("damage", [b"", b"x", b"NBXART01" + b"\0" * 100, b"\0" * 5000])
def test_a_damaged_entry_is_dropped_and_rebuilt(store: ArtifactStore, damage: bytes):
    store.put(make())
    path = store.entries()[0].path
    path.write_bytes(damage)
    assert store.get(make().key) is None
    assert not path.exists()
    store.put(make())
    assert store.get(make().key) == make()


def test_an_entry_under_a_wrong_name_is_not_believed(store: ArtifactStore):
    store.put(make(1))
    path = store.entries()[0].path
    path.rename(path.with_name(make(2).key + ".nbx"))
    assert store.get(make(2).key) is None


def path_of(store: ArtifactStore, artifact: Artifact) -> Path:
    return store.root / "v1" / (artifact.key + ".nbx")


def test_what_cannot_be_read_is_replaced(store: ArtifactStore):
    store.put(make(1))
    path_of(store, make(2)).mkdir()
    path_of(store, make(3)).symlink_to(path_of(store, make(3)))
    for number in (2, 3):
        assert store.get(make(number).key) is None
        store.put(make(number))
        assert ArtifactStore(store.root).get(make(number).key) == make(number)


def test_a_folder_with_files_in_place_of_an_entry_disturbs_no_other(tmp_path: Path):
    store = ArtifactStore(tmp_path / "cache", limit=4000)
    store.put(make(1))
    folder = path_of(store, make(2))
    folder.mkdir()
    (folder / "note").write_text("")
    os.utime(folder, (0, 0))
    assert store.get(make(2).key) is None
    with pytest.warns(CacheWarning, match="memory only"):
        store.put(make(2))
    assert store.get(make(2).key) == make(2)
    for number in range(3, 8):
        store.put(make(number))
    assert ArtifactStore(store.root).get(make(7).key) == make(7)
    assert sum(e.nbytes for e in store.entries()) <= store.limit
    assert store.clear()[0] > 0
    assert files(store) == [folder.name]


def test_clear_goes_on_after_an_entry_that_stays(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch):
    for number in range(4):
        store.put(make(number))
    unlink = Path.unlink
    held = path_of(store, make(1))

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == held:
            raise PermissionError(1, "held")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CacheError, match="cache clear.*held"):
        store.clear()
    assert files(store) == [held.name]


def test_the_least_recently_used_go(tmp_path: Path):
    size = len(dump(make()))
    store = ArtifactStore(tmp_path, limit=10 * size)
    now = time.time()
    for number in range(10):
        store.put(make(number))
        os.utime(tmp_path / "v1" / (make(number).key + ".nbx"), (now - 1000 + number,) * 2)
    assert len(store.entries()) == 10
    assert store.get(make(0).key) is not None  # a use makes it the newest
    store.put(make(10))
    left = {int(p.split(".")[0], 16) for p in files(store)}
    assert left == {0, 3, 4, 5, 6, 7, 8, 9, 10}
    assert sum(e.nbytes for e in store.entries()) <= 10 * size


def test_filling_a_store_looks_through_its_folder_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The work of a put must not grow with what is there, and the bound holds whoever writes."""
    looks: list[int] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(1) or scan(path))
    monkeypatch.setattr("nbxtensor.compiler.store._WRITERS", 4)
    size = len(dump(make()))
    stores = [ArtifactStore(tmp_path, limit=300 * size) for _ in range(3)]
    for number in range(270):
        stores[number % 3].put(make(number))
    assert len(looks) < 90
    for number in range(270, 700):
        stores[number % 3].put(make(number))
        assert len(os.listdir(tmp_path / "v1")) <= 300


def test_an_entry_larger_than_the_store_stays_in_memory(tmp_path: Path):
    store = ArtifactStore(tmp_path, limit=500)
    with pytest.warns(CacheWarning, match="NBX_CACHE_BYTES"):
        store.put(make())
    assert store.get(make().key) == make()
    assert store.entries() == []


def test_leftover_temporary_files_are_removed(store: ArtifactStore):
    store.put(make(0))
    old, young = (store.root / "v1" / f".tmp-1-{n}" for n in "ab")
    old.write_bytes(b"x" * 10)
    young.write_bytes(b"x" * 10)
    os.utime(old, (time.time() - 3600,) * 2)
    ArtifactStore(store.root).put(make(1))
    assert not old.exists()
    assert young.exists()
    store.clear()
    assert files(store) == []


def test_clear_and_entries(store: ArtifactStore):
    assert store.entries() == []
    assert store.clear() == (0, 0)
    for number in range(3):
        store.put(make(number))
    size = len(dump(make()))
    assert [e.nbytes for e in store.entries()] == [size] * 3
    assert store.read(store.entries()[0]) in [make(n) for n in range(3)]
    assert store.clear() == (3, 3 * size)
    assert store.entries() == []
    assert store.get(make(0).key) is None


def test_without_a_place_everything_stays_in_memory():
    for store in (ArtifactStore(None), ArtifactStore(Path("/nowhere"), limit=0)):
        store.put(make())
        assert store.get(make().key) == make()
        assert store.entries() == []
        with store.locked(make().key):
            pass


def test_an_unwritable_place_warns_once_and_works(tmp_path: Path):
    (tmp_path / "file").write_text("")
    store = ArtifactStore(tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning, match="memory only") as caught:
        _ = [store.put(make(number)) for number in range(3)]
    assert len(caught) == 1
    assert all(store.get(make(n).key) == make(n) for n in range(3))
    with store.locked(make().key):
        pass


_AS_NOBODY = """
import os, sys, warnings
sys.path[:0] = [{src!r}, {tests!r}]
from pathlib import Path
from nbxtensor.compiler.store import ArtifactStore, CacheWarning
from test_store import make
os.setgid(65534); os.setuid(65534)
store = ArtifactStore(Path(sys.argv[1]))
assert store.get(make(1).key) == make(1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    store.put(make(2)); store.put(make(3))
assert [w.category for w in caught] == [CacheWarning], caught
assert store.get(make(2).key) == make(2)
with store.locked(make(2).key):
    pass
try:
    store.clear()
except OSError as error:
    print(type(error).__name__, "cache clear" in str(error))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_read_only_directory_is_read_and_not_written():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder, "cache")
        ArtifactStore(root).put(make(1))
        for path in (root, root / "v1"):
            path.chmod(0o755)
        for path in (root / "v1").iterdir():
            path.chmod(0o644)
        here = Path(__file__).parent
        program = _AS_NOBODY.format(src=str(here.parent / "src"), tests=str(here))
        done = subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["CacheError", "True"]


def test_a_full_disk_leaves_no_part_of_an_entry(tmp_path: Path):
    """A limit on file sizes makes the write stop half-way, as a full disk does."""
    store = ArtifactStore(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.warns(CacheWarning, match="cannot be written"):
            store.put(make())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(store) == []
    assert store.get(make().key) == make()
    store.put(make(1))
    assert files(store) == [make(1).key + ".nbx"]


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("may not mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path):
    store = ArtifactStore(small_disk)
    with pytest.warns(CacheWarning, match="No space left"):
        _ = [store.put(make(n, size=15_000)) for n in range(8)]
    assert all(store.get(make(n).key) == make(n, size=15_000) for n in range(8))
    on_disk = len(store.entries())
    assert 2 <= on_disk < 8
    assert all(ArtifactStore(small_disk).get(e.path.stem) is not None for e in store.entries())
    assert len(files(store)) == on_disk


def test_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("NBX_CACHE_BYTES", "5K")
    assert default_store() is default_store()
    assert (default_store().root, default_store().limit) == (tmp_path / "here", 5120)
    monkeypatch.delenv("NBX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_store().root == tmp_path / "xdg" / "nbxtensor"
    monkeypatch.setenv("NBX_CACHE_BYTES", "much")
    with pytest.raises(ArgumentError, match="NBX_CACHE_BYTES"):
        default_store()


def test_no_home_is_not_fatal(monkeypatch: pytest.MonkeyPatch):
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("NBX_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert default_store().root is None


def test_a_warm_lookup_is_fast(store: ArtifactStore):
    artifacts = [make(n, size=20_000) for n in range(60)]
    for artifact in artifacts:
        store.put(artifact)
    best = min(_timed(store, artifacts) for _ in range(5))
    assert best < 0.060, f"{best * 1e3:.1f} ms for 60 lookups"


def _timed(store: ArtifactStore, artifacts: list[Artifact]) -> float:
    start = time.perf_counter()
    for artifact in artifacts:
        assert store.get(artifact.key) is not None
    return time.perf_counter() - start


def test_nothing_warns_in_normal_use(store: ArtifactStore):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(make())
        store.put(replace(make(), compiler="another"))
        assert store.get(make().key).compiler == "another"
