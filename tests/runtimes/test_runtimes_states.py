"""24: a stream hands on what convolutions over time keep in the precision in which it is computed."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hwbench.blocks.mobile_cpu.delayed import DelayedTaps
from hwbench.deploy.parity import sqnr_db
from hwbench.errors import MissingDependency
from hwbench.models import workload_module
from hwbench.runtimes import get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.native.build import build_runner
from hwbench.runtimes.pte_model import pte_layout
from hwbench.runtimes.runners import Runner, check_file, python_runner
from hwbench.specs import Network, Precision, TensorSpec, Workload
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem

SIZE, FRAMES = 16, 3
pytest.importorskip("executorch")


def workload() -> Workload:
    blocks = [x3d_stem(8)]
    blocks += x3d_stage(8, depth=1, width=8, expansion=2.0, kernel=((3, 3, 3),), se=0.5, act="swish", stride=2)
    blocks.append(x3d_head(8, 16, 16, 5))
    return Network("small", tuple(blocks), TensorSpec(1, 3, FRAMES, SIZE, SIZE)).causal().frame(Precision.INT8)


def calibration(module, example):  # type: ignore[no-untyped-def]
    """Two windows of noise, with the states that the frames before left."""
    found = []
    for seed in range(2):
        noise, states = torch.Generator().manual_seed(seed), example[1:]
        for _ in range(FRAMES):
            frame = torch.randn(example[0].shape, generator=noise).contiguous(memory_format=torch.channels_last)
            found.append((frame, *states))
            with torch.no_grad():
                _, *states = module(frame, *states)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):  # type: ignore[no-untyped-def]
    """Artifact, quantised graph with states in floating point, its example."""
    with quiet():
        from hwbench.runtimes.executorch.quantize import quantized

    torch.manual_seed(0)
    module, example = workload_module(workload())
    inputs = calibration(module, example)
    graph, path = quantized(module, example, inputs), tmp_path_factory.mktemp("states") / "model.pte"
    engine = get("executorch").quantising(lambda *_: copy.deepcopy(graph))
    return engine.build(module, example, workload(), path, inputs), graph, example, module


def test_what_is_added_to_products_is_in_int8_and_averages_are_not(built) -> None:  # type: ignore[no-untyped-def]
    made, _, _, module = built
    wanted = ["float32" if state.shape[2:] == (1, 1) else "int8" for state in module.states]
    assert set(wanted) == {"float32", "int8"}
    assert list(made.states) == wanted
    assert made.delegation.complete
    layout = pte_layout(made.path)
    assert [one.dtype.name for one in layout.inputs] == ["float32", *wanted]
    assert layout.inputs[1:] == layout.outputs[1:]


def test_answers_are_those_of_the_graph_whose_states_are_in_floating_point(built, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    made, graph, example, _ = built
    frames = np.random.default_rng(1).standard_normal((FRAMES, 3, SIZE, SIZE)).astype(np.float32)
    states, expected = example[1:], []
    with torch.no_grad():
        for frame in torch.from_numpy(frames).split(1):
            answer, *states = graph(frame.contiguous(memory_format=torch.channels_last), *states)
            expected.append(answer)
    wanted = torch.cat(expected).numpy()
    found = check_file(made.path, frames, runner=python_runner()).output
    # A product that is rounded the other way moves what follows by a step or two of 255.
    assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()
    native = native_runner(tmp_path)
    np.testing.assert_array_equal(check_file(made.path, frames, runner=native).output, found)


def test_fp16_hands_on_what_it_computes_in_fp16(tmp_path: Path) -> None:
    torch.manual_seed(0)
    half = replace(workload(), precision=Precision.FP16)
    module, example = workload_module(half)
    made = get("executorch").build(module, example, half, tmp_path / "model.pte", [])
    assert made.delegation.complete
    assert list(made.states) == ["float32" if state.shape[2:] == (1, 1) else "float16" for state in module.states]
    assert [one.dtype.name for one in pte_layout(made.path).outputs[1:]] == list(made.states)
    frames = np.random.default_rng(1).standard_normal((FRAMES, 3, SIZE, SIZE)).astype(np.float32)
    states, expected = example[1:], []
    with torch.no_grad():
        for frame in torch.from_numpy(frames).split(1):
            answer, *states = module(frame, *states)
            expected.append(answer)
    found = check_file(made.path, frames, runner=python_runner()).output
    assert sqnr_db(torch.cat(expected), torch.from_numpy(found)) > 50
    native = native_runner(tmp_path)
    np.testing.assert_allclose(check_file(made.path, frames, runner=native).output, found, rtol=1e-4, atol=1e-5)


def native_runner(folder: Path) -> Runner:
    try:
        return Runner("native", (str(build_runner(folder)),))
    except MissingDependency as error:
        pytest.skip(str(error))


def test_a_block_in_fp32_has_states_in_fp32(tmp_path: Path) -> None:
    with quiet():
        from hwbench.runtimes.executorch.quantize import quantized
        from hwbench.runtimes.executorch.scheme import Scheme

    torch.manual_seed(0)
    module, example = workload_module(workload())
    inputs = calibration(module, example)
    delayed = [name for name, one in module.named_modules() if isinstance(one, DelayedTaps)]
    kept = delayed[-1]
    engine = get("executorch").quantising(lambda *given: quantized(*given, Scheme("minmax", (kept,))))
    made = engine.build(module, example, workload(), tmp_path / "model.pte", inputs)
    assert made.delegation.complete
    in_int8 = [name for name, type in zip((s.name for s in module.states), made.states, strict=True) if type == "int8"]
    assert {f"step.{name}".rpartition(".")[0] for name in in_int8} == {*delayed} - {kept}
