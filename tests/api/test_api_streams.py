"""24: tables of streams are tables of their own; they predict, validate and search causal networks by the new frame."""

import json

import pytest
from measured import as_json, fake_device
from micro_workspace import SPACE

import hwbench
import hwbench.cli.commands
from hwbench.api.learning import learn_from
from hwbench.api.listener import SILENT
from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidFile, InvalidValue, UnsupportedModule
from hwbench.latency import LatencyTable, Role
from hwbench.latency.table import load_table, table_path
from hwbench.spaces import load_space, open_space
from hwbench.spaces.resolve import resolve
from hwbench.specs import AUTO, STREAM, Architecture, Precision
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import installed_target, space_table, work
from hwbench.workspace import Workspace

FP32, TARGET = Precision.FP32, installed_target()
MICRO = ("--space", "micro", "--precision", "fp32")


@pytest.fixture
def workspace(tmp_path):
    made = Workspace.create(tmp_path / "bench")
    more = SPACE.replace("depth = [1, 2]", "depth = [1, 2, 3]").replace("frames = 4", "frames = [4, 8]")
    (made.root / "search_spaces" / "micro.toml").write_text(more)
    return made


@pytest.fixture
def fake(workspace, monkeypatch):
    return fake_device(monkeypatch, workspace.root / "files")


def failed(capfd, status, *arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    err = capfd.readouterr().err
    assert end.value.code == status, err
    (line,) = [line for line in err.splitlines() if line.startswith("hwbench")]
    return line


def test_a_space_of_streams_has_causal_networks_and_one_row_for_all_lengths_of_clips(workspace):
    space, streams = load_space(workspace, "micro"), open_space(workspace, "micro", variant=STREAM)
    parts = list(streams.parts(FP32, num_classes=8))
    assert 2 * len(parts) == len(list(space.parts(FP32, num_classes=8))) > 0
    assert {(part.variant, part.input.t) for part in parts} == {(STREAM, 1)}
    assert (repr(streams) == repr(space), streams.size()) == (False, space.size())
    for architecture in list(space.architectures())[::5]:
        network = streams.network(architecture, 8)
        assert network.is_causal
        assert network.input == space.network(architecture, 8).input  # is trained on whole clips
        assert set(network.workload(FP32, STREAM).parts()) <= set(parts)


def test_rows_of_streams_and_of_clips_have_tables_of_their_own(workspace, fake, monkeypatch):
    found = as_json(monkeypatch, workspace, "profile", *MICRO, "--streaming")
    path = table_path(workspace.root, TARGET, FP32, STREAM)
    assert path.name.endswith(".fp32.t1.stream.csv")
    assert found["table"] == str(path.relative_to(workspace.root))
    assert found["failed"] == 0
    text = path.read_text()
    assert text.splitlines()[0].endswith("; form:stream")
    assert {row.workload.variant for row in LatencyTable.read(path)} == {STREAM}
    assert all(row.workload.input.t == 1 for row in LatencyTable.read(path))
    assert LatencyTable.read(path).rows(Role.NETWORK)
    assert LatencyTable.read(path).rows(Role.CHAIN)
    clips = as_json(monkeypatch, workspace, "profile", *MICRO)
    assert clips["skipped"] == 0  # no row of a stream stands for one of a clip
    other = LatencyTable.read(workspace.root / str(clips["table"]))
    assert STREAM not in {row.workload.variant for row in other}
    assert path.read_text() == text
    again = as_json(monkeypatch, workspace, "profile", *MICRO, "--streaming")
    assert (again["ok"], again["skipped"]) == (0, found["ok"])
    refreshed = as_json(monkeypatch, workspace, "profile", *MICRO, "--streaming", "--refresh")
    assert refreshed["tables"] == found["tables"]


def test_a_table_does_not_mix_them_and_a_file_of_the_other_kind_is_refused(workspace):
    clips = space_table(load_space(workspace, "micro"), FP32)
    streams = space_table(open_space(workspace, "micro", variant=STREAM), FP32)
    with pytest.raises(InvalidValue, match="must not be mixed"):
        LatencyTable(TARGET, FP32, [*clips, *streams])
    clips.write(table_path(workspace.root, TARGET, FP32, STREAM))
    with pytest.raises(InvalidFile, match="expected rows of new frames of streams, these are of clips"):
        load_table(workspace, TARGET, FP32, "micro", STREAM)
    streams.write(table_path(workspace.root, TARGET, FP32))
    with pytest.raises(InvalidFile, match="expected rows of clips"):
        load_table(workspace, TARGET, FP32, "micro")
    assert "--streaming" in streams.command("micro")
    assert "--variants" not in streams.explain(next(iter(clips)).workload)


def test_networks_are_predicted_and_validated_by_the_new_frame(workspace, fake):
    hwbench.profile(
        hwbench.ProfileRequest(space="micro", precision="fp32", streaming=True, calibrate=3), workspace=workspace
    )
    result = hwbench.validate(
        hwbench.ValidateRequest(space="micro", precision="fp32", streaming=True, networks=3), workspace=workspace
    )
    assert result.summary.within_10 == 1.0  # three networks of some 30 µs calibrate
    space = open_space(workspace, "micro", variant=STREAM)
    for one in result.comparisons:
        frame = space.network(Architecture.parse(one.name), 8).workload(FP32, STREAM)
        assert one.measured_s == pytest.approx(work(frame), rel=0.01)
    assert {one.variant for one in fake.visits} == {STREAM}


def test_search_keeps_the_budget_of_one_frame_and_says_so(workspace, fake, monkeypatch, capfd):
    space = open_space(workspace, "micro", variant=STREAM)
    table = space_table(space, FP32)
    table.write(table_path(workspace.root, TARGET, FP32, STREAM))
    times = sorted(work(space.network(one, 8).workload(FP32, STREAM)) for one in space.architectures())
    budget = f"{1e3 * times[len(times) // 2]:.4g}ms"
    monkeypatch.chdir(workspace.root)
    with pytest.raises(SystemExit) as end:
        main(["search", *MICRO, "--streaming", "--budget", budget, "--trials", "6", "--json"])
    out, err = capfd.readouterr()
    assert not end.value.code, err
    found = json.loads(out)
    assert found["streaming"] is True
    assert found["study"].endswith("_stream")
    assert "a frame" in err
    assert f"hwbench train {found['study']}:best --causal" in err
    assert "--streaming --precision fp32 --out RUN/stream" in err
    assert {(one.variant, one.is_network) for one in fake.visits} == {(STREAM, True)}
    best = resolve(workspace, f"{found['study']}:best", 8)
    assert best == best.causal()  # train and bench take it as it was found
    assert found["best"]["measured_ms"]["local"] == pytest.approx(1e3 * work(best.workload(FP32, STREAM)), rel=0.01)
    shown = as_json(monkeypatch, workspace, "report", found["study"])
    page = (workspace.root / str(shown["report"])).read_text()
    assert "a frame" in page
    assert "--streaming" in page
    assert "ms a frame as measured on the device" in page
    assert "of a new frame" in page
    line = failed(capfd, 2, "search", *MICRO, "--budget", budget, "--study", found["study"], "--trials", "6")
    assert "no latency table of" in line
    space_table(load_space(workspace, "micro"), FP32).write(table_path(workspace.root, TARGET, FP32))
    line = failed(capfd, 2, "search", *MICRO, "--budget", "9ms", "--study", found["study"], "--trials", "6")
    assert "variant was 'stream', now 'auto'" in line


def test_what_has_no_stream_form_is_refused_by_name_in_one_line(workspace, fake, monkeypatch, capfd):
    monkeypatch.chdir(workspace.root)
    for command in (("profile",), ("search", "--budget", "9ms"), ("validate",)):
        line = failed(capfd, 2, *command, "--space", "r2plus1d-mobile", "--streaming", "--precision", "fp32")
        assert "r2plus1d-mobile (family r2plus1d)" in line
        assert "no causal form" in line
    line = failed(capfd, 2, "search", "--budget", "9ms", "--space", "mvit-mobile", "--streaming", "--precision", "fp32")
    assert "blocks of kind 'token-stem' have no causal form" in line  # and strides over frames beside
    line = failed(capfd, 2, "profile", "--space", "micro", "--streaming", "--runtime", "torchscript")
    assert "builds no streams; choose another engine: --runtime executorch" in line
    line = failed(capfd, 2, "profile", "--streaming", "--variants", "all")
    assert "leave --variants out" in line
    line = failed(capfd, 2, "search", *MICRO, "--streaming", "--budget", "9ms", "--sustained")
    assert "leave out --sustained" in line
    line = failed(capfd, 2, "search", *MICRO, "--streaming", "--budget", "9ms")
    assert "no latency table of streams" in line
    assert "hwbench profile --device local --space micro --precision fp32 --streaming" in line
    steps = SPACE.replace("stride = 2", "stride = 2\ntemporal_stride = 2").replace('"micro"', '"steps"')
    (workspace.root / "search_spaces" / "steps.toml").write_text(steps)
    with pytest.raises(UnsupportedModule, match="steps over frames"):
        open_space(workspace, "steps", variant=STREAM)


@pytest.fixture
def tables(workspace):
    """Tables of ``micro`` on clips and on streams."""
    for variant in (AUTO, STREAM):
        space = open_space(workspace, "micro", variant=variant)
        space_table(space, FP32).write(table_path(workspace.root, TARGET, FP32, variant))


def short_training(workspace, *, listener=SILENT, **changes):
    data = prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=8))
    request = hwbench.SearchRequest(
        **{"space": "micro", "precision": "fp32", "budget": "9ms", "evaluator": "short-train", "data": str(data)}
        | {"epochs": 1, "trials": 1, "finalists": 0, "measure": 1, "study": "streams", "streaming": True}
        | changes
    )
    return hwbench.search(request, listener, workspace=workspace)


def test_trainings_of_networks_that_look_ahead_are_not_those_of_a_stream(workspace, fake, tables):
    networks = list(load_space(workspace, "micro").architectures())[:3]
    lines = [f'"{one}",{epochs},0.5,{data}' for one in networks for epochs, data in ((1, "own"), (2, ""))]
    table = workspace.root / "own.csv"
    table.write_text("\n".join(["architecture,epochs,top1,data", *lines, ""]))
    keeper = Keeper()
    clips = short_training(workspace, learn_from=(str(table),), study="clips", streaming=False, listener=keeper)
    assert clips.course.draws == ()
    assert any("3 of 3 networks trained before" in line for line in keeper.lines)
    keeper = Keeper()
    streams = short_training(workspace, learn_from=(str(table),), trials=4, listener=keeper)
    assert len(streams.course.draws) == 1  # half of half of four
    assert not any("trained before" in line for line in keeper.lines)
    assert (
        "6 trainings on other data or of networks that look ahead count as far as trials agree with them; --learn-from "
        "none begins without"
    ) in keeper.lines
    learned = learn_from(workspace, open_space(workspace, "micro", variant=STREAM), [str(table)])
    assert learned.predicting("own").predicted == "own as clips"  # there is nothing nearer
    keeper = Keeper()
    short_training(workspace, learn_from=("streams",), study="others", listener=keeper)
    assert any("4 of 4 networks trained before" in line for line in keeper.lines)
    with pytest.raises(InvalidValue, match=r"of space 'micro': the networks of clips look ahead; give studies of --st"):
        short_training(workspace, learn_from=("clips",), study="more")
    with pytest.raises(InvalidValue, match=r"of space 'micro': the networks of streams are causal; give studies of"):
        short_training(workspace, learn_from=("streams",), study="more", streaming=False)
