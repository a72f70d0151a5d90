import importlib.metadata
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.errors import MissingDependency, UnsupportedModule, WorkspaceError
from hwbench.measure.cache import engine_version
from hwbench.runtimes import get
from hwbench.runtimes.eager import EagerTorch
from hwbench.runtimes.eager_model import load_eager
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_runner import PROFILED_RUNS, RunnerSession
from hwbench.runtimes.runners import check_file, python_runner, read_check
from hwbench.specs import DelegationReport, Workload
from hwbench.testing.models import write_eager

KEY = "x3d_i4_m8_o4_k3x3x3_se8_swish@2x4x3x6x5/fp32/auto"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    out = tmp_path_factory.mktemp("eager") / ("block" + EagerTorch.capabilities.suffix)
    return EagerTorch().build(nn.Identity(), torch.zeros(1), Workload.parse(KEY), out, [])


def test_the_runtime_is_found_by_name_and_its_version_is_the_cache_s():
    runtime = get("torch")
    assert isinstance(runtime, EagerTorch)
    assert runtime.capabilities.suffix == ".eager.json"
    assert runtime.version() == engine_version("torch") == importlib.metadata.version("torch")


def test_the_file_names_the_workload_and_loads_as_the_original_form(artifact):
    assert json.loads(artifact.path.read_text())["argument"] == KEY
    assert (artifact.runtime, artifact.delegation) == ("torch", DelegationReport(0))
    module, example = load_eager(artifact.path)
    assert example.shape == (2, 4, 3, 6, 5)
    assert not module.training
    assert any(isinstance(m, nn.Conv3d) for m in module.modules())  # not the deploy form
    assert module(example).shape == Workload.parse(KEY).output.shape


def test_the_file_runs_in_the_python_runner(artifact):
    checked = check_file(artifact.path)
    assert checked.output.shape == (2, 4, 3, 6, 5)
    assert np.isfinite(checked.output).all()


def test_a_full_disk_for_the_output_is_no_fault_of_the_file(artifact):
    runner = python_runner()
    command = [*runner.command, *Options(check=str(artifact.path), output="/dev/full").argv()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **runner.env})
    said = r"block.*: the runner cannot write its output to /dev/full: No space left on device; mend that, then run"
    with pytest.raises(WorkspaceError, match=said):
        read_check(artifact.path.name, done.returncode, done.stdout, done.stderr, artifact.path)


def test_no_room_for_the_input_is_no_fault_of_the_file(artifact):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(WorkspaceError, match=r"cannot write .*input.raw: a file would be larger than the limit"):
            check_file(artifact.path, np.zeros((2, 4, 3, 6, 5), np.float32))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_loading_a_file_imports_nothing_once_the_engine_is_loaded(artifact):
    code = (
        "import sys; from hwbench.runtimes.protocol import Options;"
        "from hwbench.runtimes.python_models import load_engine, load_model;"
        "path = sys.argv[1]; load_engine(path, 1); before = set(sys.modules); load_model(path, Options());"
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(artifact.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_the_same_workload_gives_the_same_bytes(artifact, tmp_path):
    again = EagerTorch().build(nn.Identity(), torch.zeros(1), Workload.parse(KEY), tmp_path / "b.eager.json", [])
    assert again.sha256 == artifact.sha256


def test_int8_is_refused(tmp_path):
    with pytest.raises(UnsupportedModule, match="the torch runtime builds fp32, fp16 and bf16, got int8"):
        EagerTorch().build(
            nn.Identity(), torch.zeros(1), Workload.parse(KEY.replace("fp32", "int8")), tmp_path / "x", []
        )


def test_a_file_that_cannot_be_written_is_a_workspace_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError):
        EagerTorch().build(nn.Identity(), torch.zeros(1), Workload.parse(KEY), tmp_path / "file" / "x", [])


def test_missing_torch_is_told_with_the_command(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingDependency, match="pip install torch"):
        EagerTorch().version()


@pytest.mark.parametrize(
    ("asked", "executions"),
    [
        ({"min_samples": 7, "min_ms": 0.0, "max_ms": 60_000.0}, 7),
        ({"min_samples": 7, "min_ms": 0.0, "max_ms": 0.0}, 1),
        ({"min_samples": 1, "min_ms": 60_000.0, "max_ms": 60_000.0}, PROFILED_RUNS),
    ],
)
def test_operations_are_traced_in_as_many_executions_as_are_asked_for(tmp_path, asked, executions):
    listing = tmp_path / "list.tsv"
    listing.write_text(f"a\t{write_eager(tmp_path / 'a.eager.json')}\n")
    session = RunnerSession(Options(list=str(listing), profile=True, warm_ms=1.0, **asked))
    (ops,) = (answer["ops"] for answer in session.answers() if answer["kind"] == "ops")
    assert {count for _, _, count in ops} == {executions}
