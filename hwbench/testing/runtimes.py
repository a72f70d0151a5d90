"""The suite that every runtime passes: a test class with a fixture ``runtime`` inherits ``RuntimeConformance``.

Files are loaded and run in processes of their own, by the Python runner.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.deploy.model_process import served
from hwbench.errors import HwbenchError, InvalidValue, NotCalibrated, UnsupportedModule, WorkspaceError
from hwbench.measure.cache import engine_version
from hwbench.models import eager_workload, workload_module
from hwbench.runtimes import ModuleForm, Runtime, get, of_file
from hwbench.runtimes.base import loading, single
from hwbench.runtimes.protocol import Error, Options, Visit, parse_line
from hwbench.runtimes.runners import check_file, python_runner
from hwbench.specs import Network, Precision, TensorSpec, Workload
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem

# Squeeze-excite, taps over time, a product, a sum; odd and unequal sizes, channels that are no multiple of 8.
BLOCK = "x3d_i4_m12_o4_k3x3x3_se8_swish@1x4x3x7x5"
# Frames of a clip of the network that is streamed.
WINDOW = 3
SMALL = "conv_i3_o4_k1x1x1_relu@1x3x2x4x4/fp32/auto"


class RuntimeConformance:
    """Inherit, and give a fixture ``runtime``."""

    def test_it_is_found_by_its_name_and_its_files_by_their_ending(self, runtime: Runtime) -> None:
        suffix, known = runtime.capabilities.suffix, loading()
        assert [name for name in known if name != runtime.name and known[name].suffix == suffix] == []
        assert type(get(runtime.name)) is type(runtime)
        assert of_file(Path("folder.x", "model" + suffix)) == runtime.name
        assert runtime.version() == engine_version(runtime.name)

    def test_a_file_computes_what_the_module_computes(self, runtime: Runtime, tmp_path: Path) -> None:
        workload = Workload.parse(f"{BLOCK}/fp32/auto")
        module, example = _made(runtime, workload)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        artifact = runtime.build(module, example, workload, tmp_path / ("fp32" + runtime.capabilities.suffix), [])
        content = artifact.path.read_bytes()
        assert (artifact.sha256, artifact.workload) == (hashlib.sha256(content).hexdigest(), workload)
        assert (artifact.runtime, artifact.version) == (runtime.name, runtime.version())
        assert str(Path(__file__).parents[2]).encode() not in content
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        got, expected = _run(artifact.path, example), _reference(module, example)
        assert got.shape == expected.shape
        if runtime.capabilities.holds_weights:  # else another module may be inside than the one that was given
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)

    def test_int8_needs_calibration_data_and_keeps_to_the_module(self, runtime: Runtime, tmp_path: Path) -> None:
        workload = Workload.parse(f"{BLOCK}/int8/auto")
        module, example = _made(runtime, workload)
        out = tmp_path / ("int8" + runtime.capabilities.suffix)
        clips = [torch.randn_like(example) for _ in range(4)]
        if Precision.INT8 not in runtime.capabilities.precisions:
            with pytest.raises(UnsupportedModule, match="--runtime"):  # what to type instead
                runtime.require_precision(workload.precision)
            return
        artifact = runtime.build(module, example, workload, out, clips)
        assert artifact.workload.precision is Precision.INT8
        got, expected = _run(out, clips[0]), _reference(module, clips[0])
        error = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
        assert 0 < error < 0.1
        for wrong, kind in (
            ([], NotCalibrated),
            ([torch.full_like(example, torch.nan)], NotCalibrated),
            ([clips[0][..., :1]], InvalidValue),
        ):
            with pytest.raises(kind) as caught:
                runtime.build(module, example, workload, tmp_path / ("none" + runtime.capabilities.suffix), wrong)
            assert isinstance(caught.value, HwbenchError)
        assert [path.name for path in tmp_path.iterdir()] == [out.name]

    def test_a_stream_hands_its_states_on_and_begins_anew(self, runtime: Runtime, tmp_path: Path) -> None:
        if not runtime.capabilities.streams:
            with pytest.raises(UnsupportedModule, match="--runtime"):  # what to type instead
                runtime.require_streams()
            return
        torch.manual_seed(0)
        workload = _streamed()
        module, example = workload_module(workload)
        assert isinstance(example, tuple)
        artifact = runtime.build(module, example, workload, tmp_path / ("stream" + runtime.capabilities.suffix), [])
        assert len(artifact.states) in (0, len(example) - 1)
        frames = torch.randn(2 * WINDOW, *example[0].shape[1:])
        endless, second = _answers(module, example, frames), _answers(module, example, frames[WINDOW:])
        largest = float(np.abs(endless).max())  # of logits of random weights, which are small
        assert np.abs(endless[WINDOW:] - second).max() > 0.1 * largest
        assert np.abs(_run(artifact.path, frames) - endless).max() < 1e-3 * largest
        with served(artifact.path, window=WINDOW) as file:
            anew = np.concatenate(file.answers(frames.numpy()))
        assert np.abs(anew - np.concatenate([endless[:WINDOW], second])).max() < 1e-3 * largest

    def test_a_damaged_file_is_one_clear_error(self, runtime: Runtime, tmp_path: Path) -> None:
        workload = Workload.parse(SMALL)
        whole = tmp_path / ("whole" + runtime.capabilities.suffix)
        runtime.build(*_made(runtime, workload), workload, whole, [])
        content = whole.read_bytes()
        damaged = {"cut": content[: len(content) // 2], "empty": b"", "text": b"a text\n" * 99}
        lines = [f"whole\t{whole}\n"]
        for name, found in damaged.items():
            path = tmp_path / (name + runtime.capabilities.suffix)
            path.write_bytes(found)
            lines.append(f"{name}\t{path}\n")
        listing = tmp_path / "list.tsv"
        listing.write_text("".join(lines))
        runner, options = python_runner(), Options(list=str(listing), min_ms=1, warm_ms=1)
        done = subprocess.run(
            [*runner.command, *options.argv()], env={**os.environ, **runner.env}, capture_output=True, text=True
        )
        messages = [parse_line(line) for line in done.stdout.splitlines()]
        assert [message.id for message in messages if isinstance(message, Visit)] == ["whole"], done.stderr
        errors = {message.id: message for message in messages if isinstance(message, Error)}
        assert set(errors) == set(damaged)
        assert {error.stage for error in errors.values()} == {"load"}
        assert all(len(error.reason.splitlines()) == 1 for error in errors.values())

    def test_a_place_that_cannot_be_written_is_told(self, runtime: Runtime, tmp_path: Path) -> None:
        workload = Workload.parse(SMALL)
        (tmp_path / "file").write_text("")
        with pytest.raises(WorkspaceError):
            runtime.build(*_made(runtime, workload), workload, tmp_path / "file" / "x", [])


def _made(runtime: Runtime, workload: Workload) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make_original = runtime.capabilities.form(workload) is ModuleForm.ORIGINAL
    module, example = eager_workload(workload.key) if make_original else workload_module(workload)
    return module, single(example, "this suite")


def _reference(module: nn.Module, example: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    with torch.no_grad():
        output: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = module(example).numpy()
    return output


def _streamed() -> Workload:
    """A new frame of a network with taps over time and averages over it."""
    blocks = [x3d_stem(8)]
    blocks += x3d_stage(8, depth=1, width=8, expansion=2.0, kernel=((3, 3, 3),), se=0.5, act="swish", stride=2)
    blocks.append(x3d_head(8, 16, 16, 5))
    return Network("streamed", tuple(blocks), TensorSpec(1, 3, WINDOW, 16, 16)).causal().frame(Precision.FP32)


def _answers(
    module: nn.Module, example: tuple[torch.Tensor, ...], frames: torch.Tensor
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The answers of a stream behind each frame, from the states of the example on."""
    answers, states = [], example[1:]
    with torch.no_grad():
        for at in range(len(frames)):
            answer, *states = module(frames[at : at + 1], *states)
            answers.append(answer)
    made: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = torch.cat(answers).numpy()
    return made


def _run(path: Path, example: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return check_file(path, example.contiguous().numpy()).output
