"""Launch keys, certificates, and which setting a launch takes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, CertificateError, UncertifiedKeyError
from nbxtensor.compiler.compile import compile_job
from nbxtensor.device import get
from nbxtensor.device.artifact import Target
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel.launch import CertificateWarning, Plan
from nbxtensor.kernel.public_call import running_call
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tuning import choose, log, tables
from nbxtensor.tuning.buckets import BUCKETS, bucket
from nbxtensor.tuning.certificate import DIGITS, Certificate, binary_hash, encode, parse, read_table, write_table
from nbxtensor.tuning.key import launch_key

X = np.random.default_rng(3).standard_normal((37, 1000), np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of tables; no plan made before or after is kept."""
    monkeypatch.setenv("NBX_TABLES", str(tmp_path))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")
    forget_plans()
    tables.forget()
    choose.forget_uses()
    yield tmp_path
    forget_plans()
    tables.forget()
    choose.forget_uses()


def put(folder: Path, arch: str, operator: str, *certificates: Certificate) -> None:
    path = folder / arch / f"{operator}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_table(certificates))
    tables.forget()
    forget_plans()


def softmax(device: str) -> np.ndarray:
    return np.asarray(nbx.nn.softmax(nbx.asarray(X, device=device)).to_device("cpu"))


def use_of(operator: str) -> choose.Use:
    (use,) = (u for u in choose.uses() if u.key.operator == operator)
    return use


def certify(device: str, setting: object, default: object) -> tuple[Certificate, list[Any]]:
    """A certificate for the softmax of X with a setting, made as the certifier makes it."""
    forget_plans()
    with choose.forced("softmax", "softmax", setting) as wish:
        softmax(device)
    forget_plans()
    ((key, plans),) = wish.taken
    found: dict[str, str] = {}
    for plan in plans:
        assert isinstance(plan, Plan)
        for aligned in plan.alignments:
            artifact = compile_job(plan.job(aligned))
            found[artifact.key[:DIGITS]] = binary_hash(artifact)
    proof = {"bits": "default", "runs": 1, "error": 0.5}
    certificate = Certificate(str(key), encode(setting), setting == default, found, proof, {}, "c", "d")
    return certificate, plans


@pytest.mark.parametrize("kind", list(BUCKETS))
def test_buckets_are_monotone_and_bounded(kind: str) -> None:
    exact, steps = BUCKETS[kind].exact, BUCKETS[kind].steps
    sizes = [*range(5000), *(2**k + d for k in range(10, 40) for d in (-1, 0, 1, 2**k // 3))]
    found = [bucket(kind, n) for n in sorted(sizes)]
    assert found == sorted(found)
    for n in sizes:
        b = bucket(kind, n)
        assert b >= n
        assert bucket(kind, b) == b
        assert b == n if n <= exact else (b - n) * steps < n


def test_one_bucket_is_one_key() -> None:
    def key(count: int, length: int) -> str:
        return str(
            launch_key("softmax", "rows", {"count": count, "length": length}, ("float32",), Target("cuda", "sm_90"))
        )

    assert key(65536, 1024) == "softmax|rows|count=65536,length=1024|-|float32|sm_90"
    assert key(60000, 1000) == key(65536, 1024)
    assert len({key(65536, n) for n in range(512, 1025)}) == 5
    assert key(4, 16) != key(5, 16)
    assert key(4, 16) != key(4, 17)


def test_launch_census_and_forms_give_one_key(device: str, folder: Path) -> None:
    softmax(device)
    with choose.observed() as seen:
        nbx.nn.softmax(nbx.asarray(X, device=NullDevice(get(device).target)))
    assert [u.key for u in choose.uses() if u.key.operator == "softmax"] == list(seen)
    assert choose.uses()[-1].candidates == next(iter(seen.values())).candidates


def test_an_unknown_key_takes_the_default_and_is_counted(device: str, folder: Path) -> None:
    softmax(device)
    forget_plans()
    softmax(device)
    use = use_of("softmax")
    assert (use.status, use.setting, use.count) == ("uncertified", use.candidates[0], 2)


def test_a_certified_setting_is_taken_and_changes_no_bit(device: str, folder: Path) -> None:
    expected = softmax(device)
    candidates = use_of("softmax").candidates
    assert len(candidates) > 1
    for setting in candidates:
        certificate, _ = certify(device, setting, candidates[0])
        put(folder, get(device).target.arch, "softmax", certificate)
        choose.forget_uses()
        np.testing.assert_array_equal(softmax(device), expected)
        assert (use_of("softmax").status, use_of("softmax").setting) == ("certified", setting)


@pytest.mark.parametrize("fault", ["sources", "code", "setting"])
def test_a_stale_certificate_is_reported_and_not_used(device: str, folder: Path, fault: str) -> None:
    softmax(device)
    default, other, *_ = use_of("softmax").candidates
    certificate, _ = certify(device, other, default)
    if fault == "sources":
        certificate = replace(certificate, artifacts={"0" * DIGITS: "0" * DIGITS})
    elif fault == "code":
        certificate = replace(certificate, artifacts=dict.fromkeys(certificate.artifacts, "0" * DIGITS))
    else:
        certificate = replace(certificate, setting={**certificate.setting, "num_warps": 3})
    put(folder, get(device).target.arch, "softmax", certificate)
    choose.forget_uses()
    softmax(device)
    use = use_of("softmax")
    assert (use.status, use.setting) == ("stale", default)
    reasons = {"sources": "other sources", "code": "not what was proved", "setting": "not a candidate"}
    assert reasons[fault] in use.reason


def test_certified_only(device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = nbx.asarray(X, device=device)
    expected = np.asarray(nbx.nn.softmax(x).to_device("cpu"))
    default = use_of("softmax").candidates[0]
    certificate, _ = certify(device, default, default)
    monkeypatch.setenv("NBX_CERTIFIED_ONLY", "1")
    forget_plans()
    with pytest.raises(
        UncertifiedKeyError, match=r"nbx\.softmax: .*softmax\|softmax\|count=64.*nbxtensor certify --op 'softmax\("
    ):
        nbx.nn.softmax(x)
    put(folder, get(device).target.arch, "softmax", certificate)
    np.testing.assert_array_equal(np.asarray(nbx.nn.softmax(x).to_device("cpu")), expected)
    monkeypatch.setenv("NBX_CERTIFIED_ONLY", "yes")
    with pytest.raises(ArgumentError, match="NBX_CERTIFIED_ONLY"):
        nbx.sum(x)


def test_tables_round_trip_and_merge() -> None:
    one = Certificate("a|b", {"x": 1}, False, {"k1": "h1"}, {"runs": 3}, {"us": 1.5}, "triton 3.6", "570")
    two = replace(one, artifacts={"k2": "h2"})
    other = replace(one, key="a|c")
    text = write_table([other, two, one])
    assert [json.loads(line)["key"] for line in text.splitlines()] == ["a|b", "a|c"]
    assert read_table(text, "t")["a|b"].artifacts == {"k1": "h1", "k2": "h2"}
    assert write_table(read_table(text, "t").values()) == text
    newer = replace(one, setting={"x": 2}, artifacts={"k3": "h3"})
    assert read_table(one.line() + "\n" + newer.line(), "t")["a|b"] == newer


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '"a"', "null", '{"key": 1}', "\x00", '{"key":"a","setting":{},"tie":0}']
)
def test_a_damaged_line_is_named(line: str) -> None:
    with pytest.raises(CertificateError, match="line 2 of somewhere"):
        read_table(f"\n{line}\n", "somewhere")
    good = Certificate("a", {}, True, {}, {}, {}, "", "").line()
    for name in json.loads(good):
        broken = {**json.loads(good), name: 7}
        with pytest.raises(CertificateError):
            parse(json.dumps(broken), "here")


def test_a_damaged_table_warns_and_counts_for_nothing(device: str, folder: Path) -> None:
    path = folder / get(device).target.arch / "softmax.json"
    path.parent.mkdir(parents=True)
    path.write_text("not a table\n")
    with pytest.warns(tables.TableWarning, match=r"softmax\.json"):
        softmax(device)
    assert use_of("softmax").status == "uncertified"


def test_every_launch_has_a_key(folder: Path) -> None:
    """Plans are made under a key, whatever the operator."""
    null = NullDevice(Target("cpu", "x86-64-v3"))
    x = nbx.asarray(X, device=null)
    with choose.observed() as seen:
        nbx.add(x, x)
        nbx.add(x, nbx.permute_dims(x[:, :37], (1, 0))[:, :1])
        nbx.sum(x)
        nbx.argmax(x, axis=1)
        nbx.matmul(x, nbx.permute_dims(x, (1, 0)))
        nbx.take(x, nbx.arange(3, device=null), axis=0)
        nbx.cumulative_sum(x, axis=1)
        nbx.sort(x)
        nbx.topk(x, 3)
        nbx.nn.layer_norm(x)
        nbx.nn.max_pool(x.reshape(1, 1, 37, 1000), (2, 2))
        nbx.nn.conv(x.reshape(1, 1, 37, 1000), nbx.zeros((8, 1, 3, 3), device=null))
    operators = {key.operator for key in seen}
    assert operators >= {
        "pointwise",
        "reduce",
        "argmax",
        "matmul",
        "gather",
        "arange",
        "scan",
        "sort",
        "norm",
        "window",
    }
    assert all(1 <= len(use.candidates) <= 8 for use in seen.values())


def test_launches_without_a_certificate_are_logged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CACHE_DIR", str(folder / "cache"))
    code = "import nbxtensor as nbx; nbx.sum(nbx.ones((3, 5))); nbx.sum(nbx.ones((3, 5), device='null'))"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    (entry,) = (one for one in log.read_log() if one.key.startswith("reduce"))
    assert (entry.count, entry.status) == (2, "uncertified")
    assert entry.command == f"nbxtensor certify --op 'sum(float32[3, 5])' --arch {get('cpu').target.arch}"
    with log.log_path().open("a") as file:
        file.write("{damaged\n" + json.dumps({"key": "x"}) + "\n")
    assert entry in log.read_log()
    log.append([replace(entry, key=f"k{i}", count=1) for i in range(4 * log.MOST_BYTES // 300)])
    assert log.log_path().stat().st_size <= log.MOST_BYTES
    log.clear_log()
    assert log.read_log() == []
    (folder / "cache").chmod(0o500)
    log.append([entry])  # a folder that cannot be written is no error
    (folder / "cache").chmod(0o700)


def test_a_certificate_that_does_not_cover_hides_none_that_does(
    device: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax(device)
    default, other, *_ = use_of("softmax").candidates
    certificate, _ = certify(device, other, default)
    arch = get(device).target.arch
    put(folder, arch, "softmax", replace(certificate, artifacts={"0" * DIGITS: "0" * DIGITS}))
    monkeypatch.setattr(tables, "SHIPPED", folder / "shipped")
    put(folder / "shipped", arch, "softmax", certificate)
    choose.forget_uses()
    softmax(device)
    assert (use_of("softmax").status, use_of("softmax").setting) == ("certified", other)


def test_a_table_that_never_ends_and_one_that_is_too_deep(device: str, folder: Path) -> None:
    path = folder / get(device).target.arch / "softmax.json"
    path.parent.mkdir(parents=True)
    path.write_text("[" * 200_000)
    with pytest.warns(tables.TableWarning, match=r"softmax\.json is not JSON"):
        softmax(device)
    path.unlink()
    os.mkfifo(path)
    forget_plans()
    tables.forget()
    with pytest.warns(tables.TableWarning, match="not a plain file"):
        softmax(device)


def test_without_a_home_the_shipped_tables_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "folders", lambda: (folder / "shipped",))
    softmax("cpu")
    assert use_of("softmax").status == "uncertified"


def test_the_call_in_progress_is_told_from_others_of_its_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions made by one factory share their code; the command for a pack names the one that was called."""
    seen: list[str] = []
    original = Plan.__init__

    def watched(self: Plan, *args: Any, **kwargs: Any) -> None:
        seen.append(running_call())
        original(self, *args, **kwargs)

    monkeypatch.setattr(Plan, "__init__", watched)
    x = nbx.asarray(X, device=NullDevice(Target("cpu", "x86-64-v3")))
    for name in ("logical_and", "logical_or", "logical_xor"):
        seen.clear()
        getattr(nbx, name)(x, x)
        assert seen[0].startswith(f"{name}(")


def test_misaligned_code_that_was_not_proved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    softmax("cpu")
    default = use_of("softmax").candidates[0]
    certificate, (plan, *_) = certify("cpu", default, default)
    put(folder, get("cpu").target.arch, "softmax", certificate)

    def misaligned(self: Plan, *_: Any) -> None:
        """The first run, of a plan whose certificate lacks the code for such pointers."""
        self.trust(replace(certificate, artifacts={}))
        self._bind(False)

    monkeypatch.setattr(Plan, "_first", misaligned)
    with pytest.warns(CertificateWarning, match="no multiple of 16 is not what was certified"):
        softmax("cpu")
    monkeypatch.setenv("NBX_CERTIFIED_ONLY", "1")
    command = r"run: nbxtensor certify --op 'softmax\(float32\[37, 1000\]\)' --arch "
    with pytest.raises(UncertifiedKeyError, match=f"nbx.softmax: .* no multiple of 16 .*{command}"):
        softmax("cpu")
    plan.trust(certificate)
    plan._bind(False)
