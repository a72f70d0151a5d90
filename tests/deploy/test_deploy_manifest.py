import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import hwbench
from hwbench.deploy import MANIFEST, MODEL, CalibrationRecord, DeployedModel, ExportSource, Manifest
from hwbench.errors import InvalidFile
from hwbench.training import load_checkpoint


@pytest.fixture
def folder(int8: DeployedModel, tmp_path: Path) -> Path:
    """A copy of an export, to damage."""
    return Path(shutil.copytree(int8.path.parent, tmp_path / "copy"))


def places(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all keys of all objects."""
    if isinstance(values, dict):
        for name, item in values.items():
            yield (*path, name)
            yield from places(item, (*path, name))


def shaped(text: str, shape: list[int]) -> str:
    """A manifest with another shape of its input."""
    values = json.loads(text)
    return json.dumps({**values, "input": {**values["input"], "shape": shape}})


def test_an_export_reads_back_as_it_was_returned(int8: DeployedModel, fp32: DeployedModel) -> None:
    for deployed in (int8, fp32):
        assert Manifest.read(deployed.path.with_name(MANIFEST)) == deployed.manifest
        assert DeployedModel.open(deployed.path.parent) == deployed


def test_what_is_written_is_what_was_exported(int8: DeployedModel, original: ExportSource, checkpoint: Path) -> None:
    values = json.loads(int8.path.with_name(MANIFEST).read_text())
    content = int8.path.read_bytes()
    assert values["schema"] == 2
    assert values["sha256"] == hashlib.sha256(content).hexdigest()
    assert values["bytes"] == len(content)
    assert (values["precision"], values["runtime"]) == ("int8", "executorch")
    assert values["architecture"]["name"] == original.network.name
    assert int8.manifest.architecture.network() == original.network
    assert values["weights"]["sha256"] == hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    assert values["weights"]["recipe"]["epochs"] == 4
    assert values["input"]["shape"] == [4, 3, 16, 16]
    assert values["input"]["mean"] == [0.45] * 3
    assert values["input"]["clip"] == {"frames": 4, "stride": 4, "span_s": None}
    assert tuple(values["labels"]) == load_checkpoint(checkpoint)[0].classes
    assert values["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert values["versions"]["hwbench"] == hwbench.__version__
    assert values["versions"]["python"] == platform.python_version()
    assert int8.manifest.calibration == CalibrationRecord("synthetic", "train", 6, 5)
    assert int8.manifest.delegation.complete
    parity = values["parity"]
    assert parity["reasons"] == []
    assert -20 < parity["variation_db"] < 0
    assert parity["file_variation_db"] == pytest.approx(parity["variation_db"], abs=2)
    assert parity["centred_sqnr_db"] > 10


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_every_key_of_every_object_is_held(folder: Path, change: str) -> None:
    path = folder / MANIFEST
    whole = path.read_text()
    free = ("undelegated", "recipe", "versions")  # objects whose keys are data
    for place in places(json.loads(whole)):
        if any(name in free for name in place[:-1]):
            continue
        values = json.loads(whole)
        inside = values
        for name in place[:-1]:
            inside = inside[name]
        if change == "missing":
            del inside[place[-1]]
        else:
            inside[f"{place[-1]}x"] = 1
        path.write_text(json.dumps(values))
        with pytest.raises(InvalidFile) as caught:
            Manifest.read(path)
        assert str(path) in str(caught.value)
        assert ".".join(place) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "", "cannot be read as JSON"),
        (lambda text: text[:-20], "cannot be read as JSON"),
        (lambda text: "[" * 100_000, "cannot be read as JSON"),
        (lambda text: "[]", "expected an object"),
        (lambda text: text.replace('"schema": 2', '"schema": 3'), "expected schema 2, got 3"),
        (lambda text: text.replace('"int8"', '"int4"'), "precision: expected one of fp32, fp16, bf16, int8"),
        (lambda text: text.replace('"stride": 4', '"stride": 0'), "input.clip: clip: stride and span must be"),
        (lambda text: re.sub('"bytes": .*', '"bytes": -1,', text), "bytes: expected at least 1, got -1"),
        (lambda text: re.sub('"bytes": (.*),', r'"bytes": \g<1>0,', text), "bytes: expected "),
        (
            lambda text: shaped(text, [4, 3, 1000000, 16]),
            "shape: expected [4, 3, 16, 16] of a network for 1x3x4x16x16, got",
        ),
        (lambda text: shaped(text, [1, 3, 1000000, 224, 224]), "input.shape: expected a list of 4, got"),
        (
            lambda text: shaped(text.replace("1x3x4x16x16", "1x3x4x16x99999999"), [4, 3, 16, 99999999]),
            "input.shape: expected at most 2147483647 values, got [4, 3, 16, 99999999]",
        ),
    ],
)
def test_what_is_no_manifest_is_an_error_with_its_name(folder: Path, change: Callable[[str], str], said: str) -> None:
    path = folder / MANIFEST
    path.write_text(change(path.read_text()))
    with pytest.raises(InvalidFile) as caught:
        DeployedModel.open(folder)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_runtime_that_is_not_installed_is_named_with_what_to_do(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(path.read_text().replace('"runtime": "executorch"', '"runtime": "exported"'))
    advice = "unknown runtime 'exported'; known: executorch, .*; install the package that it comes from, or export"
    with pytest.raises(InvalidFile, match=advice):
        DeployedModel.open(folder)


def test_a_model_must_be_the_one_described(folder: Path) -> None:
    with (folder / MODEL).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(InvalidFile, match="is not the file"):
        DeployedModel.open(folder)
    (folder / MODEL).unlink()
    with pytest.raises(InvalidFile, match=f"no file .*{MODEL}, which {MANIFEST} beside it describes; export it again"):
        DeployedModel.open(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(InvalidFile, match=MANIFEST):
        DeployedModel.open(folder)
