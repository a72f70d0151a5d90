"""An exported file on a device against the same file here; the device is this machine, the runner is real."""

import importlib.metadata
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hwbench.cli.commands  # registers the commands
import hwbench.deploy.verification
import hwbench.measure.device_runner
from hwbench.api.verify import VerifyResult
from hwbench.cli.main import main
from hwbench.cli.output import emit
from hwbench.deploy import MANIFEST, MODEL, DeployedModel
from hwbench.deploy.verification import _Bound, _compared
from hwbench.errors import ParityFailed
from hwbench.measure.artifact_check import check_artifact
from hwbench.runtimes.runners import CheckResult, python_runner
from hwbench.workspace import Workspace


@pytest.fixture(autouse=True)
def here(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hwbench.measure.device_runner, "choose_runner", lambda *_: python_runner())
    monkeypatch.chdir(workspace.root)


def verified(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status: Any = 0
    try:
        main(["verify", *arguments])
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    return int(status or 0), said.out, said.err


def test_a_file_agrees_with_itself(int8: DeployedModel, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = verified(capsys, str(int8.path), "--device", "local", "--inputs", "2", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["agrees"] is True
    assert (found["inputs"], found["same_top1"], found["precision"]) == (2, 1.0, "int8")
    assert found["mean_abs_error"] <= found["max_abs_error"] < 1e-6
    assert found["sha256"] == int8.manifest.sha256
    assert found["runner"].startswith("python/")


@pytest.mark.parametrize(("error", "expected"), [(1e-5, 0), (0.5, 5)])
def test_a_device_that_computes_something_else_fails_the_check(
    fp32: DeployedModel,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: float,
    expected: int,
) -> None:
    def wrong(path: Path, input: Any = None, **options: Any) -> CheckResult:
        right = check_artifact(path, input, **options)
        scale = np.abs(right.output).max()
        return replace(right, output=(right.output + np.float32(error) * scale * np.eye(1, 8)).astype(np.float32))

    monkeypatch.setattr(hwbench.deploy.verification, "check_artifact", wrong)
    status, out, err = verified(capsys, str(fp32.path.parent), "--inputs", "1", "--json")
    assert status == expected
    assert json.loads(out)["max_relative_error"] == pytest.approx(error, rel=0.2)
    assert ("computes something else on local than here" in err) == (expected == 5)


def test_a_device_that_ignores_its_input_fails_the_check(
    int8: DeployedModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[CheckResult] = []

    def first(path: Path, input: Any = None, **options: Any) -> CheckResult:
        seen.append(check_artifact(path, input, **options))
        return seen[0]

    monkeypatch.setattr(hwbench.deploy.verification, "check_artifact", first)
    monkeypatch.setattr(hwbench.deploy.verification, "MIN_DEVICE_SQNR_DB", 0.0)  # as where the clips change less
    status, out, err = verified(capsys, str(int8.path), "--inputs", "4", "--json")
    found = json.loads(out)
    assert (status, found["agrees"]) == (5, False)
    assert found["sqnr_db"] > 0
    assert found["centred_sqnr_db"] < 0.1
    assert "in what tells the clips apart" in err


def test_the_noise_is_as_large_as_the_pixels_that_a_file_takes(
    fp32: DeployedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def watched(path: Path, input: Any = None, **options: Any) -> CheckResult:
        seen.append(float(input.mean()))
        return check_artifact(path, input, **options)

    monkeypatch.setattr(hwbench.deploy.verification, "check_artifact", watched)
    folder = Path(shutil.copytree(fp32.path.parent, tmp_path / "copy"))
    form = replace(fp32.manifest.input, mean=(0.0,) * 3, std=(1 / 255,) * 3)
    replace(fp32.manifest, input=form).write(folder / MANIFEST)
    for model in (fp32.path, folder / MODEL):
        assert verified(capsys, str(model), "--inputs", "1", "--json")[0] == 0
    assert abs(seen[0]) < 0.2
    assert seen[1] == pytest.approx(255 * (0.45 + 0.225 * seen[0]), rel=1e-3)


def test_clips_that_a_file_hardly_tells_apart_are_told() -> None:
    one = torch.ones(4, 1, 8, dtype=torch.float64)
    clips = one + 1e-3 * torch.randn(4, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = _compared(clips, one, _Bound(20.0), False)
    assert found.agrees
    (reason,) = found.reasons
    assert "the file itself hardly tells them apart" in reason
    assert _compared(clips[:1], one[:1], _Bound(20.0), False).reasons[0].startswith("one clip proves little")


def test_logits_that_are_all_zero_here_alone_are_a_difference_that_can_be_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = torch.zeros(4, 1, 8, dtype=torch.float64)
    for bound in (_Bound(None), _Bound(20.0)):
        result = VerifyResult(
            Path("model.pte"), "s9", "native", "int8", "ab", _compared(here, here + 0.1, bound, False)
        )
        emit(result.to_json(), as_json=True)
        found = json.loads(capsys.readouterr().out)
        assert (found["agrees"], found["max_relative_error"], found["max_abs_error"]) == (False, None, 0.1)
        with pytest.raises(ParityFailed, match="something else on s9 than here"):
            result.check()


def test_without_the_engine_here_it_says_what_to_install(
    int8: DeployedModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(importlib.metadata, "version", version)
    status, out, err = verified(capsys, str(int8.path))
    assert (status, out) == (2, "")
    assert "executorch is not installed; install it with: python -m pip install executorch" in err


def test_a_file_that_is_not_the_described_one_is_not_run(
    fp32: DeployedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(fp32.path.parent, tmp_path / "copy"))
    (folder / MODEL).write_bytes((folder / MODEL).read_bytes()[:-1])
    status, _, err = verified(capsys, str(folder))
    assert status == 2
    assert "not the file that manifest.json describes" in err
    (folder / MODEL).unlink()
    for gone, said in (
        (folder, f"no file {folder / MODEL}, which manifest.json beside it describes; export it again"),
        (folder / MODEL, f"no file {folder / MODEL}; make one: hwbench export"),
        (tmp_path / "none", f"no folder {tmp_path / 'none'}; make one: hwbench export"),
        (
            tmp_path / "none" / "manifest.json",
            f"no file {tmp_path / 'none' / 'manifest.json'}; make one: hwbench export",
        ),
    ):
        status, _, err = verified(capsys, str(gone))
        assert (status, said in err) == (2, True), err
