"""Exports for other engines: the same checks, the same manifest, another file."""

import os
import subprocess
import sys

import pytest

from hwbench.deploy import DeployedModel, ExportSource, export, open_calibration, open_validation
from hwbench.errors import InvalidValue, MissingDependency
from hwbench.runtimes import get
from hwbench.runtimes.onnx import OnnxRuntime
from hwbench.specs import Precision
from hwbench.workspace import Workspace


@pytest.fixture(scope="module")
def exits(workspace: Workspace, original: ExportSource) -> dict[tuple[str, str], DeployedModel]:
    """The small network by runtime and precision, all of one runtime in one folder, one after the other."""
    made = {}
    for name in ("onnx", "torchscript"):
        for precision in (Precision.FP32, Precision.INT8):
            made[name, precision.value] = export(
                original,
                workspace.root / "exits" / f"{name}-{precision}",
                precision=precision,
                calibration=open_calibration(workspace, "synthetic", original, count=6),
                validation=open_validation(workspace, "synthetic", original),
                runtime=get(name),
            )
    return made


def test_files_and_manifests_of_other_engines(exits: dict[tuple[str, str], DeployedModel]) -> None:
    for (name, precision), deployed in exits.items():
        manifest = deployed.manifest
        assert deployed.path.name == "model" + get(name).capabilities.suffix
        assert DeployedModel.open(deployed.path.parent) == deployed
        assert (manifest.runtime, manifest.precision.value) == (name, precision)
        assert manifest.runtime_version == get(name).version()
        assert manifest.input.shape == (4, 3, 16, 16)
        assert manifest.accuracy.top1_after is not None
        assert manifest.parity.sqnr_db > (100 if precision == "fp32" else 15)
        assert ("onnxruntime" in manifest.versions) == (name == "onnx")


def test_an_export_for_another_engine_takes_the_place(workspace: Workspace, original: ExportSource) -> None:
    out = workspace.root / "replaced"
    for name in ("onnx", "torchscript"):
        export(original, out, precision=Precision.FP32, runtime=get(name))
        model = "model" + get(name).capabilities.suffix
        assert {path.name for path in out.iterdir()} == {"RUN.md", "manifest.json", model}


def test_the_baseline_is_no_exit(workspace: Workspace, original: ExportSource) -> None:
    with pytest.raises(
        InvalidValue, match="holds no weights; export for executorch, litert, onnx, openvino or torchscript"
    ):
        export(original, workspace.root / "eager", precision=Precision.FP32, runtime=get("torch"))
    assert not (workspace.root / "eager").exists()


def test_a_missing_package_is_told_before_anything_is_made(
    workspace: Workspace, original: ExportSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: OnnxRuntime) -> str:
        raise MissingDependency("onnx is not installed; install it with: python -m pip install onnx")

    monkeypatch.setattr(OnnxRuntime, "version", missing)
    with pytest.raises(MissingDependency, match="pip install onnx"):
        export(original, workspace.root / "none", precision=Precision.FP32, runtime=get("onnx"))
    assert not (workspace.root / "none").exists()


def test_bench_knows_the_engine_of_a_file(workspace: Workspace, exits: dict[tuple[str, str], DeployedModel]) -> None:
    from hwbench.api.bench_model import artifact_of, model_file

    for (name, precision), deployed in exits.items():
        assert model_file(str(deployed.path.parent)) == deployed.path
        artifact, known = artifact_of(deployed.path, None, None)
        assert (artifact.runtime, known) == (name, precision)
        with pytest.raises(InvalidValue, match=f"is a file for {name}"):
            artifact_of(deployed.path, "executorch", None)


def test_bench_of_exits_on_the_command_line(workspace: Workspace, exits: dict[tuple[str, str], DeployedModel]) -> None:
    whole = exits["onnx", "int8"].path
    cut = workspace.root / "cut.onnx"
    cut.write_bytes(whole.read_bytes()[:999])
    other = workspace.root / "other.ts"
    other.write_text("no archive")
    for path, status, said in (
        (whole, 0, '"runtime": "onnx"'),
        (cut, 2, "export it again"),
        (other, 2, "expected a TorchScript archive, found something else; export it again"),
        (workspace.root / "none.onnx", 2, "no file"),
    ):
        command = [sys.executable, "-m", "hwbench", "bench", str(path), "--json", "--samples", "5", "--seconds", "0.05"]
        done = subprocess.run(
            command, cwd=workspace.root, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
        )
        assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done.stderr
        assert "Traceback" not in done.stderr
