"""``nbxtensor doctor`` and ``nbxtensor info`` on NVIDIA GPUs, which tests/fake_cuda.py plays."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nbxtensor.cli.trial as trial
from doctor_tools import check, problem, texts, warning
from fake_cuda import FakeDriver, Missing
from nbxtensor.certify.run import driver_of
from nbxtensor.cli import gpus
from nbxtensor.cli.__main__ import main
from nbxtensor.cli.checks import devices
from nbxtensor.cli.checks.core import Machine
from nbxtensor.compiler import packs
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.device import cuda_driver
from nbxtensor.device.artifact import Target
from nbxtensor.device.profile import known_profiles, load_profile
from test_store import make

Use = Callable[[Any], None]


@pytest.fixture(autouse=True)
def machine(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Puts a driver in place of the real one, on a machine that has a GPU; every kernel is right."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "present", lambda package: True)
    monkeypatch.setattr(gpus, "TRACES", (tmp_path,))

    def use(driver: Any) -> None:
        cuda_driver._initialised.cache_clear()
        monkeypatch.setattr(cuda_driver, "_bindings", lambda: driver)
        monkeypatch.setattr(cuda_driver, "_used", False)

    yield use
    cuda_driver._initialised.cache_clear()


def cubin(abi: int) -> bytes:
    return b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(55)


def test_a_gpu_that_is_well(machine: Use, capsys: pytest.CaptureFixture[str]) -> None:
    machine(FakeDriver(gpus=2))
    found = check("gpus")
    assert found.status == "ok", found
    assert found.facts["driver"] == "CUDA 13.0"
    first, second = found.facts["gpus"]
    assert (first["name"], second["name"], first["model"], first["target"]) == (
        "cuda:0",
        "cuda:1",
        "NVIDIA H200",
        "sm_90",
    )
    assert round(first["peak_bandwidth"] / 1e9) == 4917
    assert check("a kernel").facts["devices"] == {"cpu": "right", "cuda:0": "right", "cuda:1": "right"}
    assert Machine().arches[1:] == ["sm_90"]
    assert main(["doctor"]) == 0
    capsys.readouterr()
    assert main(["info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["devices"][1]
    assert shown == {
        "name": "cuda:0",
        "model": "NVIDIA H200",
        "target": "sm_90",
        "memory": 1 << 30,
        "copy_bandwidth": 4.244e12,
    }
    assert main(["info"]) == 0
    assert "4244 GB/s" in capsys.readouterr().out


def test_certificates_name_the_gpu_and_its_driver(machine: Use) -> None:
    machine(FakeDriver(gpus=2))
    device: Any = SimpleNamespace(name="cuda:1", host_accessible=False)
    assert driver_of(device) == "NVIDIA H200, CUDA 13.0"


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (Missing(0, 11040), r"too old; got CUDA 11; allowed: 12 or newer -> update the driver"),
        (Missing(803), "too old"),
        (Missing(999), "did not start: CUDA_ERROR_UNKNOWN"),
        (Missing(0, error=RuntimeError("libcuda")), "no NVIDIA driver was found"),
        (Missing(100), "sees no GPU"),
    ],
)
def test_a_driver_that_does_not_work(
    machine: Use, driver: Missing, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(driver)
    assert re.search(f"there is an NVIDIA GPU that cannot be used: .*{words}", problem("gpus"))
    assert main(["doctor"]) == 1
    monkeypatch.setattr(devices, "machine_has_gpu", lambda: False)
    assert check("gpus").summary == "no GPU"
    monkeypatch.setenv("NBX_DEVICE", "cuda")
    assert re.search(f"NBX_DEVICE asks for a GPU, but .*{words}", problem("gpus"))


def test_a_gpu_without_packages(machine: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise cuda_driver.DeviceError("device", "the package cuda-bindings is needed", mend="install nbxtensor[cuda]")

    machine(None)
    monkeypatch.setattr(cuda_driver, "_bindings", absent)
    monkeypatch.setattr(devices, "present", lambda package: not package.startswith("cuda"))
    assert re.search(r"cuda-bindings is needed -> pip install 'nbxtensor\[cuda\]'", warning("gpus"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert check("gpus").status == "ok"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    machine(FakeDriver())
    assert check("gpus").status == "ok"  # the driver and its bindings are enough


def test_a_gpu_is_seen_on_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "TRACES", ())
    monkeypatch.setattr(gpus, "PCI_DEVICES", tmp_path / "bus")
    assert not gpus.machine_has_gpu()
    for number, (vendor, kind) in enumerate((("0x8086", "0x030000"), ("0x10de", "0x040300"))):
        folder = tmp_path / "bus" / str(number)
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    assert not gpus.machine_has_gpu()
    (tmp_path / "bus" / "1" / "class").write_text("0x030200\n")
    assert gpus.machine_has_gpu()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"WARP_SIZE": 64}, "warp size 64, profile 32"),
        ({"MAX_REGISTERS_PER_BLOCK": 4096}, "4096 registers per block, profile 255 per thread"),
        ({"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 49152}, "49152 bytes of shared memory, profile 232448"),
        ({"MEMORY_CLOCK_RATE": 100_000}, "memory of at most 154 GB/s, profile 4244 GB/s"),
        ({"MEMORY_CLOCK_RATE": 100_000_000}, "memory of at most 153600 GB/s"),
        ({"MULTIPROCESSOR_COUNT": 0}, "0 multiprocessors"),
        ({"memory": 0}, "memory of 0 bytes"),
        ({"COMPUTE_MODE": 2}, "prohibited.*nvidia-smi -i 0"),
        ({"pools": 0}, "no memory pools"),
        ({"capability": (6, 1)}, "has no profile: .*sm_61"),
    ],
)
def test_impossible_facts(machine: Use, facts: dict[str, Any], words: str) -> None:
    machine(FakeDriver(**facts))
    assert re.search(rf"cuda:0 \(NVIDIA H200, sm_\d+\).*{words}", problem("gpus"))


def test_facts_that_are_as_good_as_the_profile(machine: Use) -> None:
    machine(FakeDriver(MEMORY_CLOCK_RATE=0, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=300_000))
    assert check("gpus").status == "ok"
    machine(FakeDriver(capability=(8, 7)))
    assert check("gpus").status == "ok"
    machine(FakeDriver(MEMORY_CLOCK_RATE=2_000_000))  # another GPU of the architecture
    assert check("gpus").status == "ok"


@pytest.mark.parametrize(
    "wrong",
    [
        {"warp_size": 0},
        {"warp_size": 33},
        {"registers_per_thread": 0},
        {"registers_per_thread": 100_000},
        {"shared_bytes": -1},
        {"shared_bytes": 0},
        {"reduce_tile_max": 0},
        {"loop_bits": 16},
        {"copy_bandwidth": -1.0},
        {"copy_bandwidth": float("nan")},
        {"copy_bandwidth": 4.2e15},
        {"dtypes": frozenset()},
        {"dtypes": frozenset({"float128"})},
    ],
)
def test_impossible_profiles(wrong: dict[str, Any], machine: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = replace(load_profile("sm_90"), **wrong)
    assert len(list(devices.profile_faults(profile))) == 1
    assert list(devices.profile_faults(load_profile("sm_90"))) == []
    machine(FakeDriver())
    monkeypatch.setattr(devices, "profile_of", lambda major, minor: profile)
    assert any("the profile of sm_90 has impossible facts" in text for text in texts(check("gpus"), "problem"))


def test_the_profiles_are_possible() -> None:
    for arch in known_profiles():
        assert list(devices.profile_faults(load_profile(arch))) == []


def test_a_driver_too_old_for_binaries(machine: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path / "cache")
    store.put(replace(make(1), binary=cubin(7)))
    store.put(replace(make(2), binary=cubin(8), target=Target("cuda", "sm_100")))
    machine(FakeDriver(version=12080))
    assert check("gpus").status == "ok"
    store.put(replace(make(3), binary=cubin(8)))
    text = problem("gpus")
    assert "the driver is too old for kernels in the kernel cache: it knows CUDA 12.8, they need CUDA 13.0" in text
    assert "update the driver" in text
    machine(FakeDriver(version=13000))
    assert check("gpus").status == "ok"
    store.clear()

    class FakePack:
        path = Path("/a.nbxpack")

        def artifacts(self) -> Iterator[Any]:
            yield replace(make(3), binary=cubin(9))

    monkeypatch.setattr(packs, "in_use", lambda: [FakePack()])
    assert check("gpus").status == "ok"
    machine(FakeDriver(version=12080))
    assert "the driver is too old for kernels in /a.nbxpack" in problem("gpus")


def test_what_is_no_cubin_needs_no_driver() -> None:
    assert gpus.needed_cuda(b"") == gpus.needed_cuda(b"\x7fELF\x02\x01\x01\x00\x08") == 0
    assert gpus.needed_cuda(cubin(7)) == 12000


def test_a_gpu_that_fails_in_the_trial(machine: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(FakeDriver())
    monkeypatch.setattr(
        trial,
        "try_device",
        lambda name: trial.Outcome("dead; reset it", "reset it") if name != "cpu" else trial.Outcome(),
    )
    assert problem("a kernel") == "a sum on cuda:0 failed: dead -> reset it"
    monkeypatch.setenv("NBX_DEVICE", "cuda:7")
    assert [text[:15] for text in texts(check("a kernel"), "problem")] == ["a sum on cuda:0", "a sum on cuda:7"]


def test_a_driver_that_fails_halfway(machine: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(driver, "cuDeviceTotalMem", lambda device: (700, 0), raising=False)
    machine(driver)
    assert "asking for the GPU's memory" in problem("gpus")
    assert Machine().gpus == []
