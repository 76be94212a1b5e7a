import warnings
from pathlib import Path

import pytest

from nbxtensor.base import knobs
from nbxtensor.base.errors import ArgumentError


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(knobs, "_checked_names", False)
    for name in knobs.REGISTRY:
        monkeypatch.delenv(name, raising=False)


def test_every_entry_says_what_it_is():
    for name, knob in knobs.REGISTRY.items():
        assert name == knob.name
        assert name.startswith("NBX_")
        assert knob.doc
        assert knob.allowed


def test_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert knobs.device.get() == "cpu"
    assert knobs.cache_dir.get() == tmp_path / "nbxtensor"
    assert knobs.num_threads.get() >= 1
    assert knobs.cpu_level.get() is None
    monkeypatch.setenv("NBX_NUM_THREADS", "")
    assert knobs.num_threads.get() >= 1


@pytest.mark.parametrize(
    ("knob", "text", "value"),
    [
        (knobs.cache_bytes, "1000", 1000),
        (knobs.cache_bytes, "2K", 2048),
        (knobs.cache_bytes, "3 MiB", 3 * 2**20),
        (knobs.cache_bytes, "5gb", 5 * 2**30),
        (knobs.cache_dir, "/x/y", Path("/x/y")),
        (knobs.num_threads, "3", 3),
        (knobs.cpu_level, "x86-64-v3", "x86-64-v3"),
        (knobs.device, "cuda:1", "cuda:1"),
    ],
)
def test_values(knob, text, value):
    with knob.override(text):
        assert knob.get() == value
    assert knob.get() != value


@pytest.mark.parametrize(
    ("knob", "text"),
    [
        (knobs.cache_bytes, "much"),
        (knobs.cache_bytes, "-1"),
        (knobs.cache_bytes, "1.5G"),
        (knobs.num_threads, "0"),
        (knobs.num_threads, "4097"),
        (knobs.num_threads, "all"),
        (knobs.cpu_level, "x86-64-v2"),
        (knobs.packs, "~nobody-has-this-name/x.nbxpack"),
    ],
)
def test_bad_values(knob, text):
    with knob.override(text), pytest.raises(ArgumentError, match=f"{knob.name}: the variable has a bad value; got"):
        knob.get()


def test_override_restores(monkeypatch):
    monkeypatch.setenv("NBX_DEVICE", "null")
    with knobs.device.override("cuda"):
        assert knobs.device.get() == "cuda"
    assert knobs.device.get() == "null"


def test_a_misspelt_name_gives_one_warning(monkeypatch):
    monkeypatch.setenv("NBX_DEVCIE", "cuda")
    with pytest.warns(UserWarning, match="NBX_DEVCIE is not a switch of nbxtensor; did you mean NBX_DEVICE"):
        knobs.device.get()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        knobs.device.get()
