"""``hwbench.export`` and ``hwbench.verify``: the same values as the commands, without a terminal."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from micro_workspace import NETWORK, VIDEOS, make, printed

import hwbench
import hwbench.measure.device_runner
from hwbench.api.export import STAGES
from hwbench.api.models import ModelArgument, checkpoint_file
from hwbench.cli.export import _print_blocks
from hwbench.cli.main import main
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, UnknownName, UsageError
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import OBSERVERS
from hwbench.runtimes.runners import python_runner
from hwbench.testing.listeners import Keeper
from hwbench.workspace import Workspace


@pytest.fixture(scope="module", autouse=True)
def inside(tmp_path_factory: pytest.TempPathFactory, runner_cache: Path) -> Any:
    """A workspace around the current folder; the runner is the one in Python."""
    made = make(tmp_path_factory.mktemp("api-export") / "bench")
    made.cache.symlink_to(runner_cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.root)
        patch.setattr(hwbench.measure.device_runner, "choose_runner", lambda *_: python_runner())
        yield made


@pytest.fixture(scope="module")
def checkpoint(inside: Workspace) -> Path:
    """A network of the micro space, trained for a moment."""
    request = hwbench.TrainRequest(
        architecture=NETWORK, data=VIDEOS, epochs=1, batch_size=8, threads=1, workers=0, out="run"
    )
    return hwbench.train(request).checkpoint


@pytest.fixture(scope="module")
def fp32(checkpoint: Path) -> tuple[hwbench.ExportResult, Keeper]:
    heard = Keeper()
    request = hwbench.ExportRequest(model=str(checkpoint), out="fp32", precision="fp32", threads=1)
    return hwbench.export(request, heard), heard


@pytest.fixture(scope="module")
def int8(checkpoint: Path) -> tuple[hwbench.ExportResult, Keeper]:
    heard = Keeper()
    request = hwbench.ExportRequest(
        model=str(checkpoint.parent), out="int8", calibration_clips=4, blocks=True, fp32_block=["head", "s1"], threads=1
    )
    return hwbench.export(request, heard), heard


def test_the_result_of_an_export_is_what_the_command_prints(
    fp32: tuple[hwbench.ExportResult, Keeper], checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result, heard = fp32
    values, _ = printed(capfd, "export", str(checkpoint), "--precision", "fp32", "--out", "fp32", "--threads", "1")
    assert list(values) == list(result.to_json())
    assert {**values, "seconds": 0} == {**result.to_json(), "seconds": 0}
    assert (result.model.path, values["delegates"], values["architecture"]) == (Path("fp32/model.pte"), 1, NETWORK)
    assert result.to_frame().empty
    # One epoch leaves a network that answers every video alike.
    (reason,) = values["parity_reasons"]
    assert reason.startswith("top-1 proves little")
    assert reason in heard.lines
    ends = heard.ends()
    assert list(ends) == ["build", "check against the original"]
    assert all(end.done == end.total for end in ends.values())


def test_an_export_to_int8_tells_of_its_blocks(
    int8: tuple[hwbench.ExportResult, Keeper], capfd: pytest.CaptureFixture[str]
) -> None:
    result, heard = int8
    frame, values = result.to_frame(), result.to_json()
    assert list(frame.columns) == ["name", "sqnr_db", "alone_db", "precision"]
    assert list(frame.name) == [block["name"] for block in values["blocks"]]
    # The parts of a stage in fp32 are in fp32.
    precisions = dict(zip(frame.name, frame.precision, strict=True))
    kept = ["s1.pathway0_stem_conv_xy", "s1.pathway0_stem_conv", "head"]
    assert precisions == {**dict.fromkeys(kept, "fp32"), "s2.pathway0_res0": "int8"}
    assert result.model.manifest.quantization is not None
    _print_blocks(result.model.manifest.quantization)
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines() if line.endswith("fp32")] == kept
    assert (values["precision"], values["calibration_clips"], values["fp32_blocks"]) == ("int8", 4, ["head", "s1"])
    stages = set(STAGES.values())
    assert stages - {"compare observers"} <= set(heard.ends()) <= stages
    assert heard.ends()["calibration clips"].total == 4


def test_blocks_are_printed_where_int8_is_refused(
    checkpoint: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with quiet():
        from torchao.quantization.pt2e import MinMaxObserver

        from hwbench.runtimes.executorch import quantize

    class Narrow(MinMaxObserver):
        """Has room for a fiftieth of the values."""

        def calculate_qparams(self) -> Any:
            scale, zero_point = super().calculate_qparams()
            return scale / 50, zero_point

    for name in OBSERVERS:
        monkeypatch.setitem(quantize._OBSERVERS, name, Narrow)
    with pytest.raises(SystemExit) as end:
        main(["export", str(checkpoint), "--blocks", "--calibration-clips", "2", "--threads", "1", "--out", "refused"])
    out, err = capfd.readouterr()
    assert end.value.code == 5
    assert "--fp32-block; --blocks prints them" in err
    names = ["s1.pathway0_stem_conv_xy", "s1.pathway0_stem_conv", "s2.pathway0_res0", "head"]
    assert [line.split()[0] for line in out.splitlines() if line.startswith(tuple(names))] == names
    assert not Path("refused").exists()


def test_data_that_were_moved_calibrate_and_validate(checkpoint: Path) -> None:
    moved = shutil.copytree(VIDEOS, "moved")
    request = hwbench.ExportRequest(
        model=str(checkpoint), data=str(moved), out="of-moved", calibration_clips=2, videos=2, threads=1
    )
    manifest = hwbench.export(request).model.manifest
    assert manifest.calibration is not None
    assert (manifest.calibration.source, manifest.calibration.split) == (str(moved), "train")
    assert (manifest.accuracy.source, manifest.accuracy.videos) == (str(moved), 2)


@pytest.mark.parametrize("name", [pytest.param("fp32", marks=pytest.mark.long), "int8"])
def test_a_file_is_verified_here(name: str, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> None:
    model, heard = request.getfixturevalue(name)[0].model, Keeper()
    result = hwbench.verify(hwbench.VerifyRequest(model=model.path.parent, inputs=2), heard)
    assert result.agrees
    assert (result.device, result.precision, result.verification.inputs) == ("local", name, 2)
    values, _ = printed(capfd, "verify", str(model.path), "--inputs", "2")
    assert values == result.to_json()
    other = model.path.with_name("other.pte")
    other.write_bytes(b"not that file")
    try:
        with pytest.raises(InvalidFile, match=r"other\.pte is not the model of .*, which is model\.pte"):
            hwbench.verify(hwbench.VerifyRequest(model=other))
    finally:
        other.unlink()
    assert [(at.stage, at.done, at.total) for at in heard.stages] == [("verify on local", done, 2) for done in range(3)]


def test_what_cannot_be_verified_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="make one: hwbench export"):
        hwbench.verify(hwbench.VerifyRequest(model=tmp_path / "none"))
    table = hwbench.VerifyRequest(model="table.csv", conditions="stock")
    assert table.is_table
    with pytest.raises(InvalidValue, match="--conditions: expected stock or controlled, got 'quiet'"):
        hwbench.VerifyRequest(model="table.csv", conditions="quiet")
    with pytest.raises(InvalidValue, match="--inputs: expected at least 1"):
        hwbench.VerifyRequest(model="m", inputs=0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "m", "rows": 5}, "--rows: only for a latency table, and m is an exported model; leave --rows out"),
        ({"model": "m/model.pte", "rows": 5, "conditions": "controlled"}, "leave --rows and --conditions out"),
        ({"model": "t.csv", "threads": 4}, "--threads: only for an exported model, and t.csv is a latency table"),
        ({"model": "t.csv", "threads": 4, "inputs": 3}, "leave --inputs and --threads out"),
    ],
)
def test_verify_refuses_what_the_other_kind_reads(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(words)):
        hwbench.VerifyRequest(**fields)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"precision": "int4"}, HwbenchError, "int4"),
        ({"precision": "fp32", "blocks": True}, UsageError, "go with --precision int8"),
        ({"precision": "fp32", "fp32_block": ["head"]}, UsageError, "go with --precision int8"),
        ({"precision": "fp32", "calibration_clips": 7}, UsageError, "^--calibration-clips: only for --precision int8"),
        ({"precision": "bf16", "calibrate": "a", "data": "b"}, UsageError, "got bf16; leave --calibrate out"),
        ({"observer": "minmx"}, UnknownName, "did you mean 'minmax'"),
        ({"keep_accuracy": 101.0}, InvalidValue, "--keep-accuracy: expected 0 to 100"),
        ({"keep_accuracy": 1.0, "fp32_block": ["head"]}, InvalidValue, "either name the blocks"),
        ({"input": "2x3x8x64x64"}, InvalidValue, "one clip of three colours, 1x3xTxHxW, got 2x3x8x64x64"),
        ({"input": "8x64x64"}, InvalidValue, "^--input: .*8x64x64"),
        ({"device": "pixel", "variant": "one-hot"}, InvalidValue, "leave out --variant one-hot, or --device"),
        ({"device": "pixel", "streaming": True}, InvalidValue, "a stream has one layout.*leave --device out"),
        ({"variant": "one-hut"}, UnknownName, "unknown variant 'one-hut'; did you mean 'one-hot'.* known: auto"),
        ({"variant": "stream"}, UnknownName, "unknown variant 'stream'; .*; a stream is made by export --streaming$"),
        ({"variant": "one-hot", "streaming": True}, InvalidValue, "a stream has one layout; leave --variant out"),
        ({"on_error": "ignore"}, InvalidValue, "expected raise, skip or replace, got 'ignore'"),
        ({"videos": 0}, InvalidValue, "--videos"),
        ({"fp32_block": "head"}, InvalidValue, "--fp32-block: expected a list"),
    ],
)
def test_a_wrong_export_is_refused_when_it_is_requested(
    values: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        hwbench.ExportRequest(model="m.pt", out="x", **values)


def test_what_the_model_argument_means(inside: Workspace, tmp_path: Path) -> None:
    long = "x3d-tiny:" + ",".join(f"s{i}.depth=1" for i in range(40))
    assert len(long) > 255  # longer than the name of a file may be
    (tmp_path / "a:b").touch()
    meanings = {
        "trained.pt": ModelArgument.CHECKPOINT,
        str(tmp_path): ModelArgument.CHECKPOINT,
        str(tmp_path / "a:b"): ModelArgument.CHECKPOINT,
        "zoo:x3d-xs": ModelArgument.NETWORK,
        "study:best": ModelArgument.NETWORK,
        long: ModelArgument.NETWORK,
        "torchvision:r3d_18": ModelArgument.EXTERNAL,
        "torch.nn:Identity": ModelArgument.EXTERNAL,
    }
    assert {text: ModelArgument.of(text) for text in meanings} == meanings
    assert checkpoint_file(str(tmp_path)) == tmp_path / "checkpoint.pt"
    assert checkpoint_file("trained.pt") == Path("trained.pt")


def test_arguments_for_another_kind_of_model_are_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidValue, match="is a checkpoint and has its weights"):
        hwbench.export(hwbench.ExportRequest(model=str(checkpoint), out="x", weights="random"))
    with pytest.raises(InvalidValue, match="has an input of its own"):
        hwbench.export(hwbench.ExportRequest(model=NETWORK, out="x", weights="random", input="1x3x4x32x32"))
    for name in ("zoo:x3d-xs", "zoo:slow-r50"):
        with pytest.raises(InvalidValue, match="has an input of its own"):
            hwbench.export(hwbench.ExportRequest(model=name, out="x", weights="random", input="1x3x4x32x32"))
    with pytest.raises(InvalidValue, match=r"unknown architecture 'no\.such:model': .* on PYTHONPATH"):
        hwbench.export(hwbench.ExportRequest(model="no.such:model", out="x", weights="random", input="1x3x4x32x32"))
    with pytest.raises(UsageError, match=r"without weights\. Train it: hwbench train micro:"):
        hwbench.export(hwbench.ExportRequest(model=NETWORK, out="x"))
    assert not Path("x").exists()


def test_what_an_export_would_not_read_is_refused(checkpoint: Path) -> None:
    def refused(error: type[Exception], words: str, **values: Any) -> None:
        request = hwbench.ExportRequest(**{"model": NETWORK, "weights": "random", "out": "x", **values})
        with pytest.raises(error, match=words):
            hwbench.export(request)
        assert not Path("x").exists()

    fp32, trained = {"precision": "fp32"}, {"model": str(checkpoint), "weights": None}
    refused(UnknownName, "unknown decoder 'pyov'.*known: pyav", decoder="pyov", **fp32)
    refused(UsageError, "^--videos: only with videos, and micro:.* add --data DATA, or leave", videos=3, **fp32)
    refused(UsageError, "leave --videos and --on-error out", videos=3, on_error="skip", **fp32)
    made = {"made_by": "torch.nn:Identity", "model": "torch.nn:Identity", "weights": None}
    refused(UsageError, "--made-by: only for a checkpoint, and torch.nn:Identity is none; leave --made-by out", **made)
    # A checkpoint is validated on what it was trained on.
    refused(UsageError, "^--calibrate: only for --precision int8, got fp32; leave", calibrate="none", **fp32, **trained)
    tuned = hwbench.train(
        hwbench.TrainRequest(
            architecture=str(checkpoint), qat=True, epochs=1, batch_size=8, threads=1, workers=0, out="tuned"
        )
    ).checkpoint
    both = {"calibrate": VIDEOS, "calibration_clips": 7, "weights": None}
    refused(UsageError, "ranges are settled; leave --calibrate and --calibration-clips out", model=str(tuned), **both)


def test_of_a_network_without_data_fp32_is_validated_on_the_data_of_calibrate() -> None:
    named = {"model": NETWORK, "weights": "random", "classes": 8, "precision": "fp32", "out": "of-calibrate"}
    request = hwbench.ExportRequest(**named, calibrate=VIDEOS, videos=2, on_error="skip", threads=1)
    parity = hwbench.export(request).model.manifest.parity
    assert (parity.source, parity.inputs) == (VIDEOS, 2)
