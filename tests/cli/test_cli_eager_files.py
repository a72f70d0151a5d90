"""Files of eager PyTorch name code: only registered factories are called, and none from a file that a user gives."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from hwbench.cli.main import main
from hwbench.deploy.file_names import MANIFEST
from hwbench.deploy.manifest import DeployedModel
from hwbench.errors import InvalidFile
from hwbench.measure.builder import build_all
from hwbench.runtimes.eager import EagerTorch
from hwbench.runtimes.eager_model import load_eager
from hwbench.runtimes.python_models import ModelFailure
from hwbench.runtimes.runners import check_file
from hwbench.specs import Artifact, Workload

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FINE = {"module": "hwbench.models:eager_workload", "argument": "x3d_i4_m8_o4_k3x3x3_se8_swish@2x4x3x6x5/fp32/auto"}


@pytest.fixture
def kept(tmp_path):
    """A folder that a file wants to have removed."""
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "file").write_text("of value")
    return folder


@pytest.fixture
def harmful(kept):
    return {"module": "hwbench.testing.lab.machine:remove_folder", "argument": str(kept)}


def status_of(*arguments):
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return end.value.code


def described(folder, contents):
    """An exported folder whose manifest says that its file is for eager PyTorch."""
    folder.mkdir()
    file = folder / ("model" + EagerTorch.capabilities.suffix)
    file.write_text(json.dumps(contents))
    values = json.loads((GOLDEN / "manifest" / "schema-1.json").read_text())
    values |= {"runtime": "torch", "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(values))
    return folder


def test_19_01_the_runner_calls_registered_factories_only(harmful, kept, tmp_path):
    path = tmp_path / ("a" + EagerTorch.capabilities.suffix)
    path.write_text(json.dumps(harmful))
    with pytest.raises(InvalidFile, match=r"expected a factory inside hwbench .*eager_workload.* got .*remove_folder"):
        check_file(path)
    assert (kept / "file").is_file()


def test_19_01_no_module_of_the_current_folder_is_imported(tmp_path, monkeypatch):
    (tmp_path / "evil_nets.py").write_text("open('was-here', 'w')\ndef make():\n    return None\n")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("a" + EagerTorch.capabilities.suffix)
    path.write_text(json.dumps({"module": "hwbench.deploy.external:external_model", "argument": "evil_nets:make"}))
    with pytest.raises(ModelFailure, match="expected a factory inside hwbench"):
        load_eager(path)
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize("name", ["hwbench.models:eager_workload", "hwbench.testing.models:small_net"])
def test_19_01_a_registered_factory_gives_a_module(name, tmp_path):
    argument = FINE["argument"] if name == FINE["module"] else "8"
    path = tmp_path / ("a" + EagerTorch.capabilities.suffix)
    path.write_text(json.dumps({"module": name, "argument": argument}))
    module, example = load_eager(path)
    assert module(example).shape[0] == example.shape[0]


def test_19_01_bench_takes_no_such_file(workspace, harmful, kept, tmp_path, capsys):
    for number, contents in enumerate((harmful, FINE)):
        path = tmp_path / f"{number}{EagerTorch.capabilities.suffix}"
        path.write_text(json.dumps(contents))
        assert status_of("bench", path) == 2
        said = capsys.readouterr().err
        assert "expected an exported model" in said
        assert "hwbench bench zoo:x3d-xs --runtime torch" in said
    assert (kept / "file").is_file()


def test_19_01_bench_of_a_folder_takes_the_model_and_not_what_sorts_before_it(
    workspace, harmful, kept, tmp_path, capsys
):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / ("model" + EagerTorch.capabilities.suffix)).write_text(json.dumps(harmful))
    assert status_of("bench", folder) == 2
    assert "expected an exported model" in capsys.readouterr().err
    (folder / "model.pte").write_text("no program")
    assert status_of("bench", folder) == 2
    assert "model.pte: expected an ExecuTorch program" in capsys.readouterr().err
    assert (kept / "file").is_file()


def test_19_01_verify_takes_no_such_folder(workspace, harmful, kept, tmp_path, capsys):
    folder = described(tmp_path / "given", harmful)
    assert status_of("verify", folder, "--inputs", "1") == 2
    assert "expected an exported model" in capsys.readouterr().err
    with pytest.raises(InvalidFile, match="expected an exported model"):
        DeployedModel.open(folder)
    assert (kept / "file").is_file()


def test_19_01_what_was_built_here_runs(tmp_path):
    (built,) = build_all([Workload.parse(FINE["argument"])], "torch", tmp_path / "cache", processes=1)
    assert isinstance(built, Artifact), built.reason
    assert check_file(built.path).output.shape == (2, 4, 3, 6, 5)


def test_19_03_the_working_directory_comes_after_python(tmp_path, monkeypatch):
    """A ``json.py`` beside a user's model is not the ``json`` of whatever is imported on the way."""
    from hwbench.deploy import external_model

    (tmp_path / "colorsys.py").write_text("open('was-here', 'w')\n")
    (tmp_path / "handmade_1903.py").write_text(
        "import colorsys\nfrom torch import nn\ndef make():\n    return nn.Identity()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    external_model("handmade_1903:make")
    assert not (tmp_path / "was-here").exists()
