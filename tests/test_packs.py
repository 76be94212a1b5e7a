"""Which packs are looked into, in which order, and what happens where a kernel is in none."""

import ast
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nbxtensor as nbx
from compile_kernels import fill_kernel
from nbxtensor.base.errors import DTypeError, MissingDependencyError, NotPackedError, PackError
from nbxtensor.cli.pack_census import operator_census
from nbxtensor.compiler import available, packs
from nbxtensor.compiler import compile as compiler
from nbxtensor.compiler.compile import compile_job, compile_many
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.pack_build import Wanted
from nbxtensor.compiler.pack_file import Item, write_pack
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.device.artifact import Artifact, Options, Resources, Target
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel.declare import operators
from nbxtensor.kernel.launch import Plan
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tuning import choose, tables
from nbxtensor.tuning.certificate import DIGITS, Certificate, encode, write_table

KEY = "ab" * 32


SM_90 = Target("cuda", "sm_90")


def job(value: int = 0, target: Target = SM_90) -> Job:
    constants = (("VALUE", value), ("BLOCK", 128))
    return Job(fill_kernel, (("out_ptr", "*fp32"),), constants, Options(), frozenset(), target)


def artifact(of: Job, key: str = KEY, **changes: object) -> Artifact:
    made = Artifact(
        key=key,
        target=of.target,
        symbol="fill_kernel",
        signature=of.flat_signature,
        constants={},
        options=of.options,
        resources=Resources(1, 0, 0),
        compiler="another compiler",
        binary=b"binary",
    )
    return replace(made, **changes)


def pack(path: Path, *pairs: tuple[Job, Artifact]) -> Path:
    write_pack(path, [Item(j.identity, a) for j, a in pairs], {}, {})
    return path


@pytest.fixture(autouse=True)
def nothing_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NBX_PACKS", raising=False)
    monkeypatch.setattr(packs, "_named", ())
    monkeypatch.setattr(packs, "SHIPPED", tmp_path / "shipped")


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "cache")


@pytest.fixture
def no_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (available, compiler):
        monkeypatch.setattr(module, "missing_compilers", lambda kind: ["triton"])
    monkeypatch.setattr(compiler, "compile_fresh", lambda job: pytest.fail("compiled"))


def test_a_packed_artifact_is_used_and_keeps_its_key(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, no_compilers: None
):
    """Whatever compiler is installed: none is, here."""
    monkeypatch.setenv("NBX_PACKS", str(pack(tmp_path / "a.nbxpack", (job(), artifact(job())))))
    found = compile_job(job(), store)
    assert found == artifact(job())
    assert found.key == KEY != job().key
    assert compile_many([job(), job()], store=store) == [found, found]
    assert store.entries() == []


def test_the_order(tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch):
    def one(name: str, number: int) -> Path:
        return pack(tmp_path / name, (job(), artifact(job(), f"{number:064x}")))

    (tmp_path / "shipped").mkdir()
    store.put(artifact(job(), job().key))
    assert compile_job(job(), store).key == job().key
    one("shipped/z.nbxpack", 3)
    packs._opened_all.cache_clear()  # as in a new process
    assert compile_job(job(), store).key == f"{3:064x}"
    monkeypatch.setenv("NBX_PACKS", os.pathsep.join(map(str, (one("b.nbxpack", 2), one("a.nbxpack", 9)))))
    assert compile_job(job(), store).key == f"{2:064x}"
    packs.use(one("c.nbxpack", 1))
    assert compile_job(job(), store).key == f"{1:064x}"
    assert [p.path.name for p in packs.in_use()] == ["c.nbxpack", "b.nbxpack", "a.nbxpack", "z.nbxpack"]
    packs.use(tmp_path / "c.nbxpack")
    assert len(packs.in_use()) == 4


def test_a_folder_of_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setenv("NBX_PACKS", str(folder))
    with pytest.raises(PackError, match=r"NBX_PACKS.*holds no pack.*folder"):
        packs.in_use()
    pack(folder / "b.nbxpack", (job(1), artifact(job(1))))
    pack(folder / "a.nbxpack")
    (folder / "note.txt").write_text("not a pack")
    assert [p.path.name for p in packs.in_use()] == ["a.nbxpack", "b.nbxpack"]


def test_a_pack_for_another_target_does_not_match(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
):
    other = job(target=Target("cuda", "sm_80"))
    monkeypatch.setenv("NBX_PACKS", str(pack(tmp_path / "a.nbxpack", (other, artifact(other)))))
    assert packs.find(other) is not None
    assert packs.find(job()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"target": Target("cuda", "sm_80")},
        {"signature": ("*fp32", "i64")},
        {"options": Options(num_warps=8)},
    ],
)
def test_another_kernel_under_an_identity_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
):
    path = pack(tmp_path / "a.nbxpack", (job(), artifact(job(), **change)))
    monkeypatch.setenv("NBX_PACKS", str(path))
    with pytest.raises(PackError, match=rf"{re.escape(str(path))}.*another kernel.*fill_kernel"):
        compile_job(job())


@pytest.mark.parametrize("how", ["named", "knob", "shipped"])
def test_a_damaged_pack_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str):
    path = pack(tmp_path / "a.nbxpack", (job(), artifact(job())))
    path.write_bytes(path.read_bytes()[:-1])
    if how == "knob":
        monkeypatch.setenv("NBX_PACKS", str(path))
    if how == "shipped":
        monkeypatch.setattr(packs, "SHIPPED", tmp_path)
    with pytest.raises(PackError, match=rf"{re.escape(str(path))}: .*make it again"):
        packs.use(path) if how == "named" else compile_job(job())


def test_a_missing_pack_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NBX_PACKS", str(tmp_path / "absent.nbxpack"))
    with pytest.raises(PackError, match=r"absent\.nbxpack.*No such file"):
        compile_job(job())


def test_a_pack_is_made_of_what_is_compiled_here(tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NBX_PACKS", str(pack(tmp_path / "a.nbxpack", (job(), artifact(job())))))
    store.put(artifact(job(), job().key))
    (found,) = compile_many([job()], store=store, from_packs=False)
    assert found.key == job().key


def test_a_certificate_holds_for_a_packed_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_compilers: None):
    """It names the key that the pack keeps; the variant for other alignments need not be packed."""
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "none"))
    device = NullDevice(Target("cuda", "sm_90"))

    def statuses() -> set[str]:
        forget_plans()
        device.clear()
        with choose.observed() as seen:
            nbx.nn.softmax(nbx.empty((37, 1000), nbx.float32, device))
        return {use.status for use in seen.values()}

    statuses()
    ((launch),) = device.calls
    with choose.observed() as seen:
        forget_plans()
        nbx.nn.softmax(nbx.empty((37, 1000), nbx.float32, device))
    ((key, use),) = seen.items()
    one = Certificate(str(key), encode(use.setting), True, {KEY[:DIGITS]: "0"}, {}, {}, "c", "d")
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "tables")
    (tmp_path / "tables/sm_90").mkdir(parents=True)
    (tmp_path / "tables/sm_90/softmax.json").write_text(write_table([one]))
    tables.forget()
    try:
        assert statuses() == {"stale"}
        path = pack(tmp_path / "a.nbxpack", (launch.job, artifact(launch.job, symbol=launch.job.fn.name)))
        monkeypatch.setenv("NBX_PACKS", str(path))
        assert statuses() == {"certified"}
    finally:
        monkeypatch.undo()
        tables.forget()
        forget_plans()


def test_tables_in_packs_come_before_the_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def table(compiler: str, *keys: str) -> str:
        return write_table(Certificate(key, {}, False, {}, {}, {}, compiler, "") for key in keys)

    for place, content in (("own", table("own", "a")), ("shipped", table("shipped", "a", "b", "c"))):
        (tmp_path / place / "sm_90").mkdir(parents=True)
        (tmp_path / place / "sm_90/relu.json").write_text(content)
    write_pack(
        tmp_path / "p.nbxpack",
        [],
        {},
        {"sm_90/relu.json": table("pack", "a", "b").encode(), "sm_90/sort.json": b"", "sm_80/sin.json": b""},
    )
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "own"))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("NBX_PACKS", str(tmp_path / "p.nbxpack"))
    tables.forget()
    try:
        first = {key: tables.certificates("sm_90", "relu", key)[0].compiler for key in ("a", "b", "c")}
        assert first == {"a": "own", "b": "pack", "c": "shipped"}
        assert tables.operators("sm_90") == ["relu", "sort"]
    finally:
        tables.forget()


# Without compilers


def test_an_unpacked_kernel(store: ArtifactStore, no_compilers: None):
    for call in (lambda: compile_job(job(), store), lambda: compile_many([job(), job(1)], store=store)):
        with pytest.raises(NotPackedError, match=r"compile_kernels\.fill_kernel for sm_90") as caught:
            call()
        text = str(caught.value)
        for words in (
            "out_ptr: *fp32",
            "BLOCK=128",
            "4 warps",
            "triton",
            "pip install 'nbxtensor[compile]'",
            "NBX_PACKS",
        ):
            assert words in text, text
        assert "nbxtensor pack --arch sm_90" in text
        assert isinstance(caught.value, MissingDependencyError)
    assert "1 more kernel" in text


def test_the_store_still_serves(store: ArtifactStore, no_compilers: None):
    store.put(artifact(job(), job().key))
    assert compile_job(job(), store).key == job().key


@pytest.mark.parametrize(("here", "older"), [("sm_89", "sm_80"), ("sm_86", "sm_80"), ("sm_75", "sm_70")])
def test_a_binary_for_an_older_target_serves_where_nothing_can_be_compiled(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, no_compilers: None, here: str, older: str
):
    other = job(target=Target("cuda", older))
    monkeypatch.setenv("NBX_PACKS", str(pack(tmp_path / "a.nbxpack", (other, artifact(other)))))
    wanted = job(target=Target("cuda", here))
    assert compile_job(wanted, store).target == other.target
    assert compile_many([wanted], store=store)[0].target == other.target
    with pytest.raises(NotPackedError):
        compile_job(job(target=Target("cuda", "sm_90")), store)
    monkeypatch.setattr(compiler, "missing_compilers", lambda kind: [])
    with pytest.raises(NotPackedError):  # a compiler would be asked first
        compile_job(wanted, store)


@pytest.fixture
def empty_handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_compilers: None) -> None:
    """Operators as in a new process with an empty cache and no compilers."""
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "empty"))


CALLS = {
    "a function": (lambda a: nbx.nn.softmax(nbx.asarray(a)), "softmax(float32[37, 1003])"),
    "a method": (lambda a: nbx.asarray(a) ** 3, "pow(float32[37, 1003], 3)"),
    "a transposed view": (lambda a: nbx.sort(nbx.asarray(a).T, axis=0), "sort(float32[1003:1, 37:1003], axis=0)"),
    "a list": (lambda a: nbx.concat([nbx.asarray(a[:, :3]), nbx.asarray(a)], axis=1), "concat([float32[37"),
    "a text": (lambda a: nbx.nn.gelu(nbx.asarray(a), "tanh"), 'gelu(float32[37, 1003], approximate="tanh")'),
    "nothing": (lambda a: nbx.linspace(0, 1, 1003), "linspace(0, 1, num=1003)"),
    "a device": (lambda a: nbx.arange(0, 9, 0.5, device="cpu"), "arange(0, stop=9, step=0.5)"),
    "a dtype": (lambda a: nbx.asarray(a).astype(nbx.bfloat16), "astype(float32[37, 1003], bfloat16)"),
}


def command_in(text: str) -> list[str]:
    found = re.search(r"\((nbxtensor pack .*?)\) and name it in NBX_PACKS", text)
    assert found, text
    return shlex.split(found[1])


@pytest.mark.parametrize("name", CALLS)
def test_the_command_in_the_message_covers_the_call(name: str, empty_handed: None):
    call, words = CALLS[name]
    jobs: list[Job] = []
    original = Plan.job
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "job", lambda self, aligned=True: jobs.append(original(self, aligned)) or jobs[-1])
        with pytest.raises(NotPackedError) as caught:
            call(np.zeros((37, 1003), np.float32))
    text = str(caught.value)
    assert "is in no pack" in text
    command = command_in(text)
    assert command[:2] == ["nbxtensor", "pack"]
    arch, ops = command[command.index("--arch") + 1], command[command.index("--ops") + 1]
    assert ops.startswith(words.removesuffix(")")), ops
    census = Wanted()
    operator_census(census, [arch], [ops])
    assert jobs[-1].identity in census.jobs


def test_a_model_says_how_to_pack_it(empty_handed: None):
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", None, 7]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "g", ports[:1], ports[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    model = nbx.onnx.load(made.SerializeToString())
    with pytest.raises(NotPackedError, match=r"nbx\.onnx\.Model.*in no pack") as caught:
        model(x=np.zeros((3, 5, 7), np.float32))
    command = command_in(str(caught.value))
    assert command[command.index("--model") + 1] == "MODEL.onnx"
    assert [command[i + 1] for i, part in enumerate(command) if part == "--dim"] == ["batch=3", "x.1=5"]


def test_every_operator_can_be_written_as_a_call():
    """What a sample of it launches is what its call as text launches."""
    import golden_cases
    from nbxtensor.device.null import NullDevice
    from nbxtensor.device.profile import target_of
    from nbxtensor.kernel.call_text import bound, call_of
    from nbxtensor.tensor.tensor import Tensor

    seen: set[str] = set()
    device = NullDevice(target_of("sm_90"))
    for case, op, args in golden_cases.cases():
        if op.name in seen or not case.endswith("/0"):
            continue
        arguments = [golden_cases.on_device(a, device) for a in args]
        if any(isinstance(a, Tensor) and a.size > 10**6 for a in arguments):
            continue
        device.clear()
        try:
            op.function(*arguments)
        except DTypeError:
            continue
        expected = [call.job.identity for call in device.calls]
        device.clear()
        call_of(str(bound(op.name, arguments, {}))).run(device)
        assert [c.job.identity for c in device.calls] == expected, case
        seen.add(op.name)
    assert len(seen) > 40
    assert seen <= set(operators)


def test_looking_needs_no_compiler_and_no_numpy(tmp_path: Path):
    path = pack(tmp_path / "a.nbxpack", (job(), artifact(job())))
    program = (
        "import sys; from pathlib import Path; from nbxtensor.compiler.pack_file import Pack;"
        f"p = Pack(Path({str(path)!r})); assert p.find({job().identity!r}).key == {KEY!r};"
        "print(sorted({'numpy', 'triton', 'llvmlite', 'json'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == ["json"]
