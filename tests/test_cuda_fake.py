"""The CUDA device's own logic, on a driver that keeps account instead of computing. No GPU is needed."""

import gc
import os
import struct

import numpy as np
import pytest

from fake_cuda import CUresult, FakeDriver, Missing, artifact
from nbxtensor.base.errors import ArgumentError, DeviceError, LaunchError
from nbxtensor.device import cuda as cuda_module
from nbxtensor.device import cuda_driver
from nbxtensor.device.artifact import Target
from nbxtensor.device.cuda import CudaDevice, argument_layout, profile_of


def make(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, ordinal: int = 0) -> CudaDevice:
    monkeypatch.setattr(cuda_module, "open_driver", lambda: driver)
    return CudaDevice(ordinal)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def gpu(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    return make(driver, monkeypatch)


def test_facts(gpu: CudaDevice):
    assert gpu.name == "cuda:0"
    assert gpu.target == Target("cuda", "sm_90")
    assert gpu.profile.shared_bytes == 232448
    assert (gpu.computes, gpu.host_accessible) == (True, False)
    assert gpu.memory_info() == (1 << 30, 1 << 30)
    assert gpu.current_stream == 1


def test_profiles_of_architectures_without_one_of_their_own():
    assert profile_of(8, 7).arch == "sm_87"
    assert profile_of(8, 7).shared_bytes == profile_of(8, 6).shared_bytes
    assert profile_of(10, 3).shared_bytes == profile_of(10, 0).shared_bytes
    assert profile_of(8, 0).shared_bytes == 166912
    with pytest.raises(DeviceError, match="sm_90"):
        profile_of(6, 1)


def test_copies_of_all_sizes(gpu: CudaDevice):
    rng = np.random.default_rng(0)
    for size in (0, 1, 1000, 4 << 20, (4 << 20) + 1, (37 << 20) + 5):
        data = rng.integers(0, 256, size, dtype=np.uint8)
        buffer = gpu.allocate(size)
        gpu.copy_from_host(buffer.ptr, data.data)
        back = np.zeros_like(data)
        gpu.copy_to_host(back.data, buffer.ptr)
        assert np.array_equal(back, data)
    with pytest.raises(ArgumentError, match="read-only"):
        gpu.copy_to_host(memoryview(b"abc"), buffer.ptr)
    with pytest.raises(ArgumentError, match="contiguous"):
        gpu.copy_from_host(buffer.ptr, np.zeros(10, np.uint8)[::2].data)


def test_a_launch_packs_its_arguments_as_c_does(gpu: CudaDevice, driver: FakeDriver):
    kernel = gpu.load(artifact(("*fp32", "i1", "i64", "i8", "fp32", "i16", "fp64", "i32", "u64"), shared=100_000))
    assert driver.attributes["shared"] == 100_000
    gpu.launch(kernel, (3, 2, 1), (1 << 40, True, -5, -6, 1.5, -7, 2.5, -8, 2**64 - 1), 100)
    seen = driver.launches[-1]
    assert struct.unpack("Q?qbfhdiQQQ", seen["packed"]) == (1 << 40, 1, -5, -6, 1.5, -7, 2.5, -8, 2**64 - 1, 0, 0)
    assert (seen["grid"], seen["threads"], seen["shared"], seen["stream"]) == ((3, 2, 1), 256, 100_000, 1)
    assert gpu.load(artifact(shared=1)) is gpu.load(artifact(shared=1))
    before = len(driver.launches)
    gpu.launch(kernel, (3, 0, 1), (0,) * 9)
    assert len(driver.launches) == before


def test_values_that_do_not_fit(gpu: CudaDevice, driver: FakeDriver):
    kernel = gpu.load(artifact(("fp32", "i32")))
    gpu.launch(kernel, (1, 1, 1), (1e39, 1))
    assert struct.unpack("fiPP", driver.launches[-1]["packed"])[0] == float("inf")
    with pytest.raises(ArgumentError, match=r"does not fit; got 2147483648; allowed: i32"):
        gpu.launch(kernel, (1, 1, 1), (1.0, 1 << 31))
    with pytest.raises(ArgumentError, match="takes 2 arguments; got 3"):
        gpu.launch(kernel, (1, 1, 1), (1.0, 1, 1))
    with pytest.raises(DeviceError, match="fp8"):
        argument_layout(("fp8",))
    with pytest.raises(DeviceError, match="too many"):
        argument_layout(("i64",) * 600)


def test_a_failed_launch_is_explained_and_does_not_stick(gpu: CudaDevice, driver: FakeDriver):
    kernel = gpu.load(artifact())
    driver.next_status = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(LaunchError, match=r"some_kernel.*LAUNCH_OUT_OF_RESOURCES.*256 threads of 32 registers"):
        gpu.launch(kernel, (1, 1, 1), (0, 0))
    with pytest.raises(LaunchError, match=r"INVALID_VALUE.*\(1099511627776, 1, 1\)"):
        gpu.launch(kernel, (1 << 40, 1, 1), (0, 0))
    gpu.launch(kernel, (1, 1, 1), (0, 0))
    with pytest.raises(LaunchError, match="shared memory.*232448"):
        gpu.load(artifact(shared=300_000))
    with pytest.raises(DeviceError, match=r"another target; got sm_80; allowed: sm_90"):
        gpu.load(artifact(arch="sm_80"))


def test_a_fatal_error_says_that_it_sticks(gpu: CudaDevice, driver: FakeDriver):
    driver.next_status = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(LaunchError, match=r"ILLEGAL_ADDRESS.*start a new one"):
        gpu.synchronize()


def test_streams_are_ordered_on_entry_and_exit(gpu: CudaDevice, driver: FakeDriver):
    kernel, buffer = gpu.load(artifact()), gpu.allocate(10)
    stream = gpu.new_stream()
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 1))
    with gpu.stream(stream):
        assert gpu.current_stream == stream.handle
        gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 2))
        with gpu.stream(1):
            gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 3))
        gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 4))
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 5))
    assert [launch["stream"] for launch in driver.launches] == [1, stream.handle, 1, stream.handle, 1]
    assert driver.problems == []
    with pytest.raises(RuntimeError), gpu.stream(stream):
        raise RuntimeError
    assert gpu.current_stream == 1


class Torch:
    cuda_stream = 77


class CuPy:
    ptr = 0


class Core:
    def __cuda_stream__(self):
        return 0, 99


def test_streams_of_other_libraries(gpu: CudaDevice):
    for stream, handle in ((Torch(), 77), (CuPy(), 1), (Core(), 99), (55, 55), (0, 1)):
        with gpu.stream(stream):
            assert gpu.current_stream == handle
    for bad in ("s", True, -1, None, object()):
        with pytest.raises(ArgumentError, match="not a CUDA stream"), gpu.stream(bad):
            pass


def test_hand_over_orders_a_consumer_behind_the_current_stream(gpu: CudaDevice, driver: FakeDriver):
    kernel, buffer = gpu.load(artifact()), gpu.allocate(10)
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 1))
    gpu.hand_over(Torch())
    driver._use(buffer.ptr, 2, 77)
    assert driver.problems == []
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 3))
    assert len(driver.problems) == 1, "the account must be able to find a fault"


def test_several_gpus_leave_the_current_one_alone(monkeypatch: pytest.MonkeyPatch):
    driver = FakeDriver(gpus=2)
    one = make(driver, monkeypatch, 1)
    driver.contexts = [100]
    kernel, buffer = one.load(artifact()), one.allocate(10)
    with one.stream(one.new_stream()):
        one.launch(kernel, (1, 1, 1), (buffer.ptr, 1))
    one.synchronize()
    del buffer
    one.trim()
    assert driver.launches[-1]["context"] == 101
    assert driver.contexts == [100]
    with pytest.raises(DeviceError, match=r"no such GPU; got cuda:2; allowed: cpu, cuda:0, cuda:1"):
        make(driver, monkeypatch, 2)


def test_a_forked_process_is_told(gpu: CudaDevice, driver: FakeDriver):
    kernel, buffer = gpu.load(artifact()), gpu.allocate(10)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = 0
        for attempt in (
            lambda: gpu.allocate(10),
            lambda: gpu.launch(kernel, (1, 1, 1), (0, 0)),
            lambda: gpu.copy_from_host(buffer.ptr, memoryview(b"abc")),
            lambda: gpu.copy_to_host(memoryview(bytearray(3)), buffer.ptr),
            gpu.synchronize,
            gpu.memory_info,
            gpu.new_stream,
            lambda: gpu.current_stream,
            lambda: gpu.load(artifact(shared=5)),
        ):
            try:
                attempt()
            except DeviceError as error:
                told += "forked" in str(error)
            except BaseException:
                pass
        used = driver.used
        del buffer
        gc.collect()
        os.write(write, bytes([told, driver.used == used]))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 2) == bytes([9, 1])
    os.close(read)
    os.close(write)
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 0))


def test_a_fork_before_the_first_use_is_harmless_and_one_after_it_is_known(monkeypatch: pytest.MonkeyPatch):
    def child_sees_lost() -> bool:
        pid = os.fork()
        if pid == 0:
            os._exit(cuda_driver.lost())
        return bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    monkeypatch.setattr(cuda_driver, "_bindings", FakeDriver)
    monkeypatch.setattr(cuda_driver, "_used", False)
    cuda_driver._initialised.cache_clear()
    assert not child_sees_lost()
    cuda_driver.open_driver()
    assert child_sees_lost()
    assert not cuda_driver.lost()
    cuda_driver._initialised.cache_clear()


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (Missing(100), "sees no GPU.*CUDA_VISIBLE_DEVICES.*device 'cpu'"),
        (Missing(0, 11040), "too old; got CUDA 11; allowed: 12 or newer; update the driver"),
        (Missing(803), "too old"),
        (Missing(999), "did not start: CUDA_ERROR_UNKNOWN"),
        (Missing(0, error=RuntimeError("libcuda")), "no NVIDIA driver was found"),
    ],
)
def test_no_gpu_is_explained(monkeypatch: pytest.MonkeyPatch, driver: Missing, words: str):
    cuda_driver._initialised.cache_clear()
    monkeypatch.setattr(cuda_driver, "_bindings", lambda: driver)
    with pytest.raises(DeviceError, match=words):
        CudaDevice(0)
    assert cuda_module.discover() == []
    cuda_driver._initialised.cache_clear()


def test_a_missing_package_is_explained(monkeypatch: pytest.MonkeyPatch):
    cuda_driver._initialised.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceError, match=r"install nbxtensor\[cuda\]"):
        CudaDevice(0)
    cuda_driver._initialised.cache_clear()
