"""The layout of an export is chosen by the table of the engine that it is for."""

from dataclasses import replace

import pytest

import hwbench
from hwbench.api.layouts import fastest_on
from hwbench.errors import InvalidValue, NotMeasured, UnsupportedModule
from hwbench.latency import LatencyRow, LatencyTable, Role, has_variants, table_path
from hwbench.measure.cache import engine_version
from hwbench.spaces import load_space, resolve
from hwbench.specs import Network, Outcome, Precision, Target
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import stats_of_law
from hwbench.workspace import Workspace

FP32 = Precision.FP32


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def network(workspace) -> Network:
    """A member of x3d-tiny whose blocks have layouts."""
    space = load_space(workspace, "x3d-tiny")
    members = (space.network(each, 20) for each in space.architectures())
    return next(one for one in members if any(map(has_variants, one.workload(FP32).parts())))


def write_table(workspace: Workspace, runtime: str, network: Network, fastest: str) -> None:
    """A table of the blocks of a network in three layouts, one of which is the fastest."""
    target = Target("local", runtime, engine_version(runtime), 1)
    rows = [
        replace(part, variant=variant)
        for part in dict.fromkeys(network.workload(FP32).parts())
        for variant in (("auto", "segments", "one-hot") if has_variants(part) else ("auto",))
    ]
    made = [
        LatencyRow(
            Role.BLOCK, row, Outcome.OK, stats_of_law(1e-3 if row.variant == fastest else 2e-3), "2026-01-31", "c"
        )
        for row in rows
    ]
    LatencyTable(target, FP32, made).write(table_path(workspace.root, target, FP32))


def chosen(workspace: Workspace, network: Network, runtime: str, precision: Precision = FP32) -> str:
    return fastest_on(workspace, "local", network, precision, runtime=runtime)


def test_each_engine_has_the_layout_of_its_own_table(workspace, network):
    write_table(workspace, "executorch", network, "segments")
    with pytest.raises(NotMeasured, match="no latency table of local/onnx-"):
        chosen(workspace, network, "onnx")
    write_table(workspace, "onnx", network, "one-hot")
    assert [chosen(workspace, network, name) for name in ("executorch", "onnx")] == ["segments", "one-hot"]


def test_threads_of_a_device_file_choose_no_other_table(workspace, network):
    """They are of ``devices check`` alone."""
    folder = workspace.root / "profiles" / "local"
    folder.mkdir(exist_ok=True)
    (folder / "device.toml").write_text('schema = 1\nname = "local"\ntransport = "local"\nthreads = 2\n')
    write_table(workspace, "executorch", network, "segments")
    assert chosen(workspace, network, "executorch") == "segments"


def test_what_is_to_be_measured_can_be_typed(workspace, network):
    command = "hwbench profile --device local --space {} --precision fp32 --runtime onnx --classes {}"
    layouts = "--all-rows --variants all"
    with pytest.raises(NotMeasured) as missing:
        chosen(workspace, network, "onnx")
    assert str(missing.value).endswith(f"; measure it: {command.format('x3d-tiny', 20)} {layouts}")
    with pytest.raises(NotMeasured) as missing:
        chosen(workspace, resolve(workspace, "zoo:x3d-xs"), "onnx")
    assert str(missing.value).endswith(f"; measure it: {command.format('zoo:x3d-xs', 400)} {layouts}")


def test_a_table_without_layouts_says_what_measures_them(workspace, network):
    target, ears = Target("local", "onnx", engine_version("onnx"), 1), Keeper()
    LatencyTable(target, FP32, []).write(table_path(workspace.root, target, FP32))
    assert fastest_on(workspace, "local", network, FP32, listener=ears, runtime="onnx") == "auto"
    words = "--space x3d-tiny --precision fp32 --runtime onnx --all-rows --variants all"
    assert any(said.endswith(words) for said in ears.lines)


def test_what_is_built_as_it_was_trained_has_no_layout_to_choose(workspace, network):
    for runtime in ("openvino", "torchscript"):
        with pytest.raises(InvalidValue, match=f"the {runtime} runtime .* as they were trained.*leave --device out"):
            chosen(workspace, network, runtime)
    with pytest.raises(NotMeasured, match=r"no latency table of local/torchscript-.* in int8"):
        chosen(workspace, network, "torchscript", Precision.INT8)


def test_a_precision_that_the_engine_has_not_is_not_to_be_measured(workspace, network):
    with pytest.raises(UnsupportedModule, match="the onnx runtime builds fp32 and int8, got fp16"):
        chosen(workspace, network, "onnx", Precision.FP16)


def test_an_export_asks_for_the_table_of_its_engine(workspace, network):
    write_table(workspace, "executorch", network, "segments")
    values = {"model": network.name, "weights": "random", "classes": 20, "out": workspace.root / "x", "device": "local"}
    with pytest.raises(NotMeasured, match="no latency table of local/onnx-"):
        hwbench.export(hwbench.ExportRequest(precision="fp32", runtime="onnx", **values), workspace=workspace)
