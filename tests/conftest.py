"""One option picks the device that the tests run on: ``pytest --device cuda``."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device that the tests run on: cpu (default), cuda, cuda:1")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Name of the device under test."""
    return request.config.getoption("--device")


def _gpu_is_missing(name: str) -> str:
    """Why tests marked ``gpu`` cannot run, or nothing."""
    if not name.startswith("cuda"):
        return "needs a GPU: run pytest with --device cuda"
    from nbxtensor.device import discover

    return "" if "cuda:0" in discover() else "this machine has no GPU that works"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    reason = _gpu_is_missing(config.getoption("--device"))
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
