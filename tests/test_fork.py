"""A process that is forked while another thread holds a lock of the package goes on working."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compile_kernels import fill_kernel
from nbxtensor.compiler import compile as compiler
from nbxtensor.compiler import packs
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.pack_file import write_pack
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.device import get, registry
from nbxtensor.device.artifact import Options, Target
from nbxtensor.tuning import tables

PATIENCE = 30
"""Seconds after which a child that waits for a lock is ended."""


def read_a_table(folder: Path) -> bool:
    tables.forget()
    return list(tables.named_tables("x86-64-v3", "softmax").values()) == [{}]


def open_a_device(folder: Path) -> bool:
    return get("null:sm_75").target.arch == "sm_75"


def use_a_pack(folder: Path) -> bool:
    return packs.use(folder / "a.nbxpack") in packs.in_use()


def compile_a_kernel(folder: Path) -> bool:
    constants = (("VALUE", 77), ("BLOCK", 128))
    target = Target("cpu", "x86-64-v3")
    job = Job(fill_kernel, (("out_ptr", "*fp32"),), constants, Options(), frozenset(), target)
    return compile_job(job, ArtifactStore(folder / "store")).key == job.key


CASES: dict[str, tuple[Any, str, Callable[[Path], bool]]] = {
    "tables": (tables, "_lock", read_a_table),
    "packs": (packs, "_lock", use_a_pack),
    "devices": (registry, "_lock", open_a_device),
    "compiling": (compiler, "_compiling", compile_a_kernel),
    **{
        f"{owner.__name__}.{name}": (vars(owner)[name], "lock", compile_a_kernel)
        for owner, name in ((Job, "key"), (Job, "identity"), (KernelFunction, "source_hash"))
        if hasattr(vars(owner)[name], "lock")
    },
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_child_does_not_wait_for_a_thread_of_its_parent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, lock, work = CASES[name]
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "tables"))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(packs, "SHIPPED", tmp_path / "none")
    table = tmp_path / "tables" / "x86-64-v3" / "softmax.json"
    table.parent.mkdir(parents=True)
    table.write_text("")
    write_pack(tmp_path / "a.nbxpack", [], {}, {})
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with getattr(module, lock):
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE)
            code = 0 if work(tmp_path) else 2
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done.set()
    thread.join()
    tables.forget()
    assert status == 0
