"""Options: ``--device cuda`` picks the device that the tests run on, ``--fuzz 5000`` how long the fuzzer runs."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, however slow the machine is at the moment.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device that the tests run on: cpu (default), cuda, cuda:1")
    parser.addoption("--fuzz", default=200, type=int, help="kernels that the fuzzer generates (200)")
    parser.addoption("--fuzz-first", default=0, type=int, help="seed of the first of them (0)")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Name of the device under test."""
    return request.config.getoption("--device")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For the doctor: a cache of its own, no other switch, no certificates, no packs, and kernels that are right."""
    from nbxtensor.cli import trial  # few tests need these
    from nbxtensor.compiler import packs
    from nbxtensor.tuning import tables

    for name in [n for n in os.environ if n.startswith("NBX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "try_device", lambda name: trial.Outcome())
    monkeypatch.setattr(trial, "try_import", lambda packages: trial.Outcome())
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(packs, "in_use", tuple)
    return tmp_path / "cache"


def _gpu_is_missing(name: str) -> str:
    """Why tests marked ``gpu`` cannot run, or nothing."""
    if not name.startswith("cuda"):
        return "needs a GPU: run pytest with --device cuda"
    from nbxtensor.device import discover

    return "" if "cuda:0" in discover() else "this machine has no GPU that works"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("-m"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    reason = _gpu_is_missing(config.getoption("--device"))
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
