"""A page about a device, from small tables that are made up and a store that a campaign has filled."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from itertools import islice

import pytest

from hwbench.cli.main import main
from hwbench.errors import InvalidFile, NotMeasured, UnknownName
from hwbench.latency import Comparison, LatencyRow, LatencyTable, Role, SelfCheck, table_path
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import fingerprint
from hwbench.reports import device_page, gather_device, write_device
from hwbench.reports.comparisons import Group
from hwbench.reports.device_figures import network_order
from hwbench.spaces import load_space
from hwbench.specs import AUTO, STREAM, Estimate, Outcome, Precision, Repeatability, Target, Timing, Workload
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import CLASSES, space_table, stats_of_law, work
from hwbench.workspace import Workspace, shipped

HOSTILE = "<img src=x onerror=alert(1)> & </script>"
CONDITIONS = {"model": f"Chip {HOSTILE}", "governor": "performance"}
TARGET = Target("board", "executorch", "1.5.1", 1)
DEVICE = f'schema = 1\nname = "board"\ndescription = "A board {HOSTILE}"\ntransport = "local"\n'


def law(workload):
    """int8 is faster, but slower on small inputs."""
    if workload.precision is Precision.FP32:
        return work(workload, 9e9)
    return work(workload, 20e9) * (3 if workload.input.h <= 4 else 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A workspace with both tables, each with a failed row and a hostile layout, and a store; not to be changed."""
    folder = tmp_path_factory.mktemp("device")
    workspace = Workspace.create(folder / "work")
    (workspace.root / "profiles" / "board").mkdir()
    (workspace.root / "profiles" / "board" / "device.toml").write_text(DEVICE)
    space = load_space(workspace, "x3d-tiny")
    digest = fingerprint(CONDITIONS)
    for precision in (Precision.FP32, Precision.INT8):
        rows = list(space_table(space, precision, law, target=TARGET, calibration=6, conditions=digest))
        rows[3] = replace(rows[3], outcome=Outcome.NOISY, stats=None, reason=HOSTILE)
        rows.append(replace(rows[0], workload=replace(rows[0].workload, variant="<img src=x>")))
        table = LatencyTable(TARGET, precision, rows, between_runs=0.0072 if precision is Precision.INT8 else 0.0)
        found = Repeatability(0.0021, -0.0013, 0.0055, 8, 1e-3)
        table = table.with_aa(SelfCheck(found, "2026-01-30")) if precision is Precision.INT8 else table
        table.write(table_path(workspace.root, TARGET, precision))
    networks = [row.workload for row in rows if row.role is Role.NETWORK]
    device = FakeDevice(
        folder / "device", law=law, preempted=frozenset(networks[:1]), drifts={networks[1]: (1.2, 1.01, 1.0)}
    )
    fresh = space.network(next(space.architectures()), CLASSES).workload(Precision.INT8)
    with MeasurementStore(workspace.store) as store:
        timing = Timing(min_rounds=3, max_rounds=4)
        Campaign(store, TARGET, CONDITIONS, device.build, device.measure, timing).run([*networks, fresh])
    return workspace


@pytest.fixture
def workspace(made, tmp_path):
    return Workspace(shutil.copytree(made.root, tmp_path / "work"))


@pytest.mark.parametrize(("beside", "advised"), [((), False), (("conv_i3_o4_k1x1x1_relu@1x3x2x4x4",), True)])
def test_a_model_of_ones_own_is_asked_for_no_more_networks_than_it_is(tmp_path, beside, advised):
    workspace = Workspace.create(tmp_path / "work")
    own = "hand-network_i3_o5_k1x1x1_t2_h8_w8_ot1_oh1_ow1_p0-nets.clips.network_v7_identity@1x3x2x8x8"
    workloads = [Workload.parse(f"{key}/int8/auto") for key in (own, *beside)]
    rows = [LatencyRow(Role.BLOCK, one, Outcome.OK, stats_of_law(1e-3), "2026-01-31", "c0ffee") for one in workloads]
    LatencyTable(TARGET, Precision.INT8, rows).write(table_path(workspace.root, TARGET, Precision.INT8))
    missing = gather_device(workspace, "board").missing()
    assert any("calibration networks" in reason for reason in missing) == advised


def test_tables_of_streams_are_shown_beside_those_of_clips(workspace):
    space = load_space(workspace, "x3d-tiny").streamed()
    found = space_table(space, Precision.INT8, law, target=TARGET, calibration=6)
    found.write(table_path(workspace.root, TARGET, Precision.INT8, STREAM))
    report = gather_device(workspace, "board")
    (one,) = report.streams
    assert one.command == "hwbench profile --device board --space x3d-tiny --precision int8 --streaming"
    assert len(report.to_frame()) == sum(len(list(t)) for t in report.targets[0].measured.values()) + len(list(found))
    page = device_page(report)
    assert "New frames of streams" in page
    assert "6 networks" in page.partition("New frames of streams")[2]
    assert "--streaming" in page


def test_a_device_with_a_table_of_streams_alone_has_a_page(tmp_path):
    workspace = Workspace.create(tmp_path / "work")
    (workspace.root / "profiles" / "board").mkdir()
    (workspace.root / "profiles" / "board" / "device.toml").write_text(DEVICE)
    space = load_space(workspace, "x3d-tiny").streamed()
    space_table(space, Precision.FP32, law, target=TARGET, calibration=2).write(
        table_path(workspace.root, TARGET, Precision.FP32, STREAM)
    )
    report = gather_device(workspace, "board")
    assert report.targets == ()
    page = device_page(report)
    assert "New frames of streams" in page
    assert str(TARGET) in page.partition("New frames of streams")[0]


def test_commands_name_the_space_that_the_table_is_of_and_its_classes(tmp_path, parse):
    workspace = Workspace.create(tmp_path / "work")
    (workspace.root / "profiles" / "board").mkdir()
    (workspace.root / "profiles" / "board" / "device.toml").write_text(DEVICE)
    space = load_space(workspace, "x3d-tiny")
    # A space of an earlier name that begins with the same stems.
    text = (shipped() / "search_spaces" / "x3d-tiny.toml").read_text()
    wider = text.replace('"x3d-tiny"', '"a-wide"').replace("width = 32", "width = [24, 32, 40, 48]")
    (workspace.root / "search_spaces" / "a-wide.toml").write_text(wider)
    for form, variant in ((space, AUTO), (space.streamed(), STREAM)):
        rows = [on_classes(row, 51) for row in space_table(form, Precision.INT8, law, target=TARGET, calibration=4)]
        LatencyTable(TARGET, Precision.INT8, rows).write(table_path(workspace.root, TARGET, Precision.INT8, variant))
    report = gather_device(workspace, "board")
    (one,) = report.targets
    assert one.spaces == ("x3d-tiny", "a-wide")
    assert {c.space: c.whole.missing > 0 for c in one.coverages} == {"x3d-tiny": False, "a-wide": True}
    place = "hwbench profile --device board --space x3d-tiny --precision"
    assert report.streams[0].command == f"{place} int8 --streaming --classes 51"
    shown = parse(device_page(report))
    lines = [line for line in shown.commands if "hwbench profile" in line]
    assert {f"{place} int8 --classes 51", f"{place} fp32 --classes 51"} <= set(lines)
    assert all(line.count("--classes 51") == 1 for line in lines)
    assert lines_of_reports(shown) == ["hwbench report --device board"]
    asked = gather_device(workspace, "board", ["a-wide"])
    assert asked.targets[0].spaces == ("a-wide", "x3d-tiny")
    assert lines_of_reports(parse(device_page(asked))) == ["hwbench report --device board --space a-wide"]


def test_the_command_of_a_page_names_the_spaces_that_it_was_asked_for(workspace, parse, monkeypatch):
    monkeypatch.chdir(workspace.root)
    (line,) = lines_of_reports(parse(device_page(gather_device(workspace, "board", ["x3d-mini", "x3d-tiny"]))))
    words = shlex.split(line)
    assert words == ["hwbench", "report", "--device", "board", "--space", "x3d-mini", "--space", "x3d-tiny"]
    with pytest.raises(SystemExit) as end:
        main([*words[1:], "--out", "again.html"])
    assert end.value.code == 0
    again = parse((workspace.root / "again.html").read_text(encoding="utf-8"))
    assert lines_of_reports(again) == [line]


def lines_of_reports(shown):
    return [line for line in shown.commands if line.startswith("hwbench report")]


def on_classes(row, classes):
    """The row with another head, where it has one."""
    *blocks, last = row.workload.blocks
    if not last.role.gives_logits:
        return row
    blocks.append(replace(last, out_channels=classes))
    return replace(row, workload=replace(row.workload, blocks=tuple(blocks)))


@pytest.fixture(scope="module")
def text(made):
    return device_page(gather_device(made, "board"))


@pytest.fixture
def shown(text, parse):
    return parse(text)


def rows_of(shown, name):
    return json.loads(shown.raw[f"{name}-rows"])


def test_figures_show_the_numbers_of_the_tables(shown, made):
    int8 = LatencyTable.read(table_path(made.root, TARGET, Precision.INT8))
    heat = shown.figure("t0-map-int8-latency-8")["data"][0]
    assert "x3d 3x3x3 relu /2" in heat["y"]
    assert len(heat["z"]) == len(heat["y"])
    assert {len(line) for line in heat["z"]} == {len(heat["x"])}
    stem = next(row for row in int8.rows(Role.BLOCK) if row.workload.blocks[0].kind == "stem")
    line = heat["z"][heat["y"].index("stem 1x3x3+5x1x1 relu /2")]
    (value,) = [10**cell for cell in line if cell is not None]
    assert value == pytest.approx(1e3 * stem.stats.median_s)
    fp32 = LatencyTable.read(table_path(made.root, TARGET, Precision.FP32))
    times = {(r.workload.blocks, r.workload.input, r.workload.variant): r.stats.median_s for r in fp32.rows(Role.BLOCK)}
    rows = int8.rows(Role.BLOCK)
    ratios = [times[r.workload.blocks, r.workload.input, r.workload.variant] / r.stats.median_s for r in rows]
    slower = sum(ratio < 1 for ratio in ratios)
    assert 0 < slower < len(ratios) == 27
    below, above = (shown.figure("t0-gains")["data"][place] for place in (1, 0))
    assert (below["name"], above["name"]) == (f"slower in int8 ({slower})", f"faster in int8 ({27 - slower})")
    assert [*above["y"], *below["y"]] == pytest.approx(sorted(ratios, reverse=True))
    assert [*above["x"], *below["x"]] == list(range(1, 28))
    covered = {trace["name"]: trace["x"] for trace in shown.figure("t0-coverage-1")["data"]}
    assert [sum(covered[name]) for name in ("measured", "failed", "missing")] == [26, 1, 0]


def test_the_head_says_what_was_measured_and_how_well(shown):
    for said in ("A/A, int8 +0.21% A/A test", "95 % -0.13% to +0.55%", "none is published", "1 noisy", "rows, fp32 "):
        assert said in shown.text
    assert "Between runs 0.7% of standard deviation is in the intervals" in shown.text
    assert "Between runs nothing is in the intervals" in shown.text
    assert f"Chip {HOSTILE}" in shown.text


def test_networks_are_compared_and_put_into_their_order(shown):
    assert len(shown.trace("t0-predicted-int8", "calibration")["x"]) == 5
    assert len(shown.trace("t0-predicted-int8", "held out")["x"]) == 1
    places = [shown.trace("t0-errors-int8", name)["x"] for name in ("calibration", "held out")]
    assert sorted(place for several in places for place in several) == list(range(1, 7))
    assert "hwbench validate --device board --space x3d-tiny --precision fp32 --networks 12" in shown.text


def test_networks_that_ended_in_the_same_moment_have_places_of_their_own():
    space = load_space(Workspace(shipped()), "x3d-tiny")
    networks = [space.network(one, CLASSES) for one in islice(space.architectures(), 3)]
    compared = tuple(Comparison(one.name, Estimate(1e-3, 9e-4, 1.1e-3), 1e-3) for one in networks)
    group = Group("calibration", "", compared, tuple(one.workload(Precision.INT8) for one in networks))
    ended = dict.fromkeys([one.key for one in group.workloads], "2026-01-31T00:00:00.000")
    assert sorted(network_order([group], ended).data[0].x) == [1, 2, 3]


def test_the_course_of_measuring_is_shown(shown, made):
    with MeasurementStore(made.store) as store:
        sessions = list(store.taken(TARGET))
    drawn = [shown.trace("t0-order", name) for name in ("session", "doubted session")]
    assert sum(len(trace["x"]) for trace in drawn) == len(sessions)
    assert len(drawn[1]["x"]) == sum(bool(taken.suspect) for taken in sessions) > 0
    assert f"of {len(sessions)} sessions" in shown.text
    assert "the sentinel moved by …" in shown.text


def test_all_rows_can_be_looked_up(shown):
    found = rows_of(shown, "t0-blocks")
    assert {len(row) for row in found["rows"]} == {len(found["columns"])}
    assert {row[0] for row in found["rows"]} == {"fp32", "int8"}
    failed = [row for row in found["rows"] if row[2] == "noisy"]
    assert {row[-1] for row in failed} == {HOSTILE}
    assert len(rows_of(shown, "t0-gain")["rows"]) == 27


def test_every_choice_has_its_view_and_the_first_is_shown(shown):
    views = [a for tag, a in shown.elements if a.get("class") == "view"]
    assert [json.loads(a["data-view"]) for a in views] == [
        [p, q, "8 frames"] for p in ("int8", "fp32") for q in ("GMAC/s", "latency")
    ]
    assert ["hidden" in a for a in views] == [False, True, True, True]


def test_nothing_is_loaded_and_hostile_names_are_text(shown, text):
    loading = ("src", "href", "srcset", "data", "action", "poster")
    assert not [(tag, a) for tag, a in shown.elements for name in loading if name in a]
    assert {tag for tag, _ in shown.elements}.isdisjoint({"link", "img", "iframe", "object", "base", "form"})
    assert "<img" not in text.partition("<script>")[0]
    assert f"A board {HOSTILE}" in shown.text
    figures = [json.loads(raw) for name, raw in shown.raw.items() if name.endswith("-data")]
    assert len(figures) > 10
    assert not [f for f in figures if "<img" in json.dumps(f["layout"])]
    drawn = json.dumps([f["data"] for f in figures])
    assert "<img" not in drawn
    assert "&lt;img" in drawn


def test_ids_are_unique_and_every_section_has_a_command(shown, text):
    ids = [a["id"] for _, a in shown.elements if "id" in a]
    assert len(ids) == len(set(ids))
    sections = text.partition("<script>")[0].split("<h2>")[1:]
    assert len(sections) == 7
    assert all("hwbench " in section for section in sections if "Spread of sessions" not in section)


def test_one_precision_and_no_store_are_named_with_their_commands(workspace, parse):
    table_path(workspace.root, TARGET, Precision.FP32).unlink()
    workspace.store.unlink()
    report = gather_device(workspace, "board", ["x3d-tiny"])
    shown = parse(device_page(report))
    assert "the gain needs both precisions, and fp32 is not there" in shown.text
    assert "the store of measurements is not in this workspace" in shown.text
    assert "the order in which the networks were measured is not known here" in shown.text
    assert any("--precision fp32" in reason for reason in report.missing())
    assert not workspace.store.exists()
    assert "t0-map-int8-rate-8-data" in shown.raw


def test_a_runtime_without_int8_is_not_asked_for_it(tmp_path, parse):
    workspace, target = Workspace.create(tmp_path / "work"), replace(TARGET, runtime="torch", version="2.14.0")
    (workspace.root / "profiles" / "board").mkdir()
    (workspace.root / "profiles" / "board" / "device.toml").write_text(DEVICE)
    table = space_table(load_space(workspace, "x3d-tiny"), Precision.FP32, law, target=target, calibration=4)
    table.write(table_path(workspace.root, target, Precision.FP32))
    report = gather_device(workspace, "board")
    assert not any("int8" in reason for reason in report.missing())
    shown = parse(device_page(report))
    assert "the torch runtime builds no int8, so fp32 and int8 cannot be compared on it" in shown.text
    assert not any("--precision int8" in line for line in (*shown.commands, *shown.codes))


def test_a_table_of_failures_only_and_one_that_is_damaged_are_told(workspace, parse):
    path = table_path(workspace.root, TARGET, Precision.INT8)
    table = LatencyTable.read(path)
    failed = [replace(row, outcome=Outcome.LOST, stats=None, reason="gone") for row in table]
    LatencyTable(TARGET, Precision.INT8, failed).write(path)
    table_path(workspace.root, TARGET, Precision.FP32).write_text("nonsense")
    shown = parse(device_page(gather_device(workspace, "board")))
    assert "a table could not be read" in shown.text
    assert "no block has a latency in int8" in shown.text
    assert "0 of 27 blocks of the space have a latency, 27 failed" in shown.text
    assert any(command.endswith("--space x3d-tiny --precision int8 --retry") for command in shown.commands)


def test_a_damaged_store_is_told_and_the_tables_are_shown(workspace, parse):
    workspace.store.write_bytes(b"nonsense" * 1000)
    shown = parse(device_page(gather_device(workspace, "board")))
    assert "is not a measurement store of this version" in shown.text
    assert "t0-map-int8-rate-8-data" in shown.raw


def test_a_damaged_store_without_tables_is_told_and_not_that_nothing_was_measured(workspace):
    for path in table_path(workspace.root, TARGET, Precision.INT8).parent.glob("*.csv"):
        path.unlink()
    workspace.store.write_bytes(b"nonsense" * 1000)
    with pytest.raises(InvalidFile, match="is not a measurement store of this version"):
        gather_device(workspace, "board")


def test_every_target_has_its_sections(workspace, parse):
    threads = replace(TARGET, threads=4)
    rows = LatencyTable.read(table_path(workspace.root, TARGET, Precision.INT8))
    LatencyTable(threads, Precision.INT8, rows).write(table_path(workspace.root, threads, Precision.INT8))
    report = gather_device(workspace, "board")
    assert [one.target.threads for one in report.targets] == [1, 4]
    shown = parse(device_page(report))
    ids = [a["id"] for _, a in shown.elements if "id" in a]
    assert {"t0-map-int8-rate-8", "t1-map-int8-rate-8"} <= set(ids)
    assert len(ids) == len(set(ids))
    assert any(command.endswith("--precision fp32 --threads 4") for command in shown.commands)


def test_sessions_under_other_conditions_are_counted_and_left_out(workspace):
    with MeasurementStore(workspace.store) as store:
        row = next(iter(store.rows(TARGET))).measurement
        number = store.begin(row.workload, TARGET, row.timing, {"model": "another"})
        store.add_session(number, row.sessions[0])
        count = len(list(store.taken(TARGET)))
    (one,) = gather_device(workspace, "board").targets
    assert (one.left_out, len(one.stored.sessions)) == (1, count - 1)


def test_what_is_measured_and_not_published_is_shown(workspace, parse):
    for precision in (Precision.FP32, Precision.INT8):
        table_path(workspace.root, TARGET, precision).unlink()
    shown = parse(device_page(gather_device(workspace, "board")))
    assert "t0-order-data" in shown.raw
    assert "no latency table of board/executorch-1.5.1/t1 in int8" in shown.text


def test_a_device_without_anything_is_one_clear_error(workspace):
    with pytest.raises(NotMeasured, match="hwbench profile --device local"):
        gather_device(workspace, "local")
    with pytest.raises(UnknownName, match="did you mean 'board'"):
        gather_device(workspace, "bord")
    with pytest.raises(UnknownName, match="unknown space"):
        gather_device(workspace, "board", ["x3d-tine"])


def test_the_file_is_written(workspace, tmp_path):
    out = tmp_path / "device.html"
    write_device(workspace, "board", out)
    assert re.match(r"<!doctype html>\n<html", out.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--device", "board", "--json"], 0, ""),
        (["--device", "board", "--space", "nowhere"], 2, "unknown space"),
        (
            ["--device", "board", "--space", "mynets:clips"],
            2,
            "a report does not import its code, so its blocks are not",
        ),
        (["mine", "--device", "board"], 2, "expected one of a study, a device"),
        (["--device", "board", "--model", "x"], 2, "--model is about a study"),
        (["mine", "--space", "x3d-tiny"], 2, "--space is about a device"),
    ],
)
def test_the_command(workspace, monkeypatch, capsys, arguments, status, said):
    monkeypatch.chdir(workspace.root)
    try:
        main(["report", *arguments])
        ended = 0
    except SystemExit as end:
        ended = end.code or 0
    out, err = capsys.readouterr()
    assert (ended, said in " ".join(err.split())) == (status, True)
    if not status:
        assert list(json.loads(out)) == ["report", "device", "seconds", "missing"]
        assert (workspace.root / "report.html").is_file()


def test_the_frame_of_a_device_has_a_row_for_each_row_of_its_tables(made):
    report = gather_device(made, "board")
    frame = report.to_frame()
    tables = [table for target in report.targets for table in target.measured.values()]
    assert len(tables) == 2
    assert len(frame) == sum(len(table) for table in tables)
    assert list(frame.columns[:5]) == ["device", "target", "precision", "role", "key"]
    assert set(frame["device"]) == {"board"}
    assert frame["median_s"].isna().sum() == sum(row.stats is None for table in tables for row in table) > 0
