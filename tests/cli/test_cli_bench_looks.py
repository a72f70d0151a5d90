"""``hwbench bench --profile`` and ``--sustained``: what is inside a file, and how it goes on."""

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import hwbench
from hwbench.api import bench_sustained
from hwbench.api.search_sustained import cooled, for_minutes
from hwbench.cli.main import main
from hwbench.devices import load_device
from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency import table_path
from hwbench.measure import bench as benches
from hwbench.measure.bench import Bench
from hwbench.measure.builder import build_all
from hwbench.measure.energy import EnergyReading
from hwbench.measure.sustained import CoursePoint
from hwbench.measure.sustained_log import CourseFacts, CourseLog, courses
from hwbench.reports import write_device
from hwbench.runtimes.runners import Runner, choose_runner
from hwbench.spaces import load_space
from hwbench.specs import Artifact, Precision, Target, Workload
from hwbench.testing.simulated_phone import BIG, Cost, Phone, PhoneMachine, PhoneTransport, write_simulated
from hwbench.testing.tables import installed_target, space_table
from hwbench.workspace import Workspace

CHAIN = "x3d_i8_m16_o8_k3x3x3_se8_swish>x3d_i8_m16_o8_k3x3x3_relu@1x8x4x16x16/{}/auto"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "pte" / "small-1.5.1.pte"
QUICK = ("--samples", "5", "--seconds", "0.02")


@pytest.fixture(scope="module")
def root(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("looks"))
    made.cache.symlink_to(runner_cache)
    choose_runner("executorch", made.cache)
    precisions = ("fp32", "int8")
    chains = [Workload.parse(CHAIN.format(precision)) for precision in precisions]
    for precision, built in zip(precisions, build_all(chains, "executorch", made.cache, processes=1), strict=True):
        assert isinstance(built, Artifact), built.reason
        shutil.copyfile(built.path, made.root / f"{precision}.pte")
    return made.root


@pytest.fixture
def workspace(root, monkeypatch):
    """The workspace of these tests, without courses of the test before."""
    monkeypatch.chdir(root)
    made = Workspace(root)
    yield made
    shutil.rmtree(made.sustained, ignore_errors=True)


def run(capsys, *arguments):
    status = 0
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        status = end.code or 0
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.long), "int8"])
def test_every_operation_of_a_real_file_is_attributed(workspace, capsys, precision):
    status, out, _ = run(capsys, "bench", f"{precision}.pte", "--profile", *QUICK, "--json")
    assert status == 0
    values = json.loads(out)
    profile = values["profile"]
    assert all(one["attributed"] for one in profile["operations"])
    assert profile["unattributed"] is None
    blocks = [group["block"] for group in profile["by_block"]]
    assert [name for name in blocks if name.startswith("block_")] == ["block_0", "block_1"]
    assert "not attributed" not in blocks
    for groups in (profile["by_kind"], profile["by_block"]):
        assert sum(group["ms"] for group in groups) == pytest.approx(profile["operations_ms"], rel=1e-3)
        assert sum(group["share"] for group in groups) == pytest.approx(1, abs=1e-4)
        assert sum(group["count"] for group in groups) == len(profile["operations"])
    if profile["unaccounted_ms"] is not None:  # null on a crowded machine
        assert profile["operations_ms"] + profile["unaccounted_ms"] == pytest.approx(values["median_ms"], abs=1e-5)
    # A block with an excitation has two layers for it more: exactly those of the network, in their modules.
    of_first = [one for one in profile["operations"] if one["block"] == "block_0"]
    assert {"module.block_0.layers.se.block.0", "module.block_0.layers.se.block.2"} <= {o["module"] for o in of_first}
    depthwise = [one for one in profile["operations"] if one["kind"] == "depthwise"]
    assert {one["block"] for one in depthwise} == {"block_0", "block_1"}
    assert {".layers.conv_1." in one["module"] for one in depthwise} == {True}


def test_people_get_tables_and_files_for_other_programs(workspace, capsys, tmp_path):
    status, out, err = run(capsys, "bench", "fp32.pte", "--profile", "--trace", tmp_path / "seen", *QUICK)
    assert status == 0
    for words in ("all operations", "without a tracer", "block_1", "between blocks", "peak_memory", "depthwise"):
        assert words in out
    rows = {name: line for line in out.splitlines() for name in ("all operations", "without a tracer") if name in line}
    whole, untraced = (re.findall(r"[0-9.]+%?", rows[name]) for name in ("all operations", "without a tracer"))
    assert whole[1] == "100.0%"
    assert [whole[2]] == untraced  # the shares of the operations are of the latency
    trace = json.loads((tmp_path / "seen" / "perfetto.json").read_text())
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    operations = [event for event in complete if event["tid"] == 1]
    assert all(event["dur"] >= 0 for event in complete)
    assert [event["ts"] for event in operations] == sorted(event["ts"] for event in operations)
    outside = {"block_0", "block_1"}
    spans = {event["name"]: event for event in complete if event["tid"] == 2 and event["name"] in outside}
    assert set(spans) == outside
    for event in operations:
        span = spans.get(event["args"]["block"])
        if span is not None:
            assert span["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= span["ts"] + span["dur"] + 0.01
    (graph,) = json.loads((tmp_path / "seen" / "model-explorer.graph.json").read_text())
    ids = {node["id"] for node in graph["nodes"]}
    assert all(edge["sourceNodeId"] in ids for node in graph["nodes"] for edge in node["incomingEdges"])
    assert {node["namespace"].split("/")[0] for node in graph["nodes"]} == {"", "module"}
    times = json.loads((tmp_path / "seen" / "model-explorer.times.json").read_text())[graph["id"]]["results"]
    assert times
    assert set(times) <= ids
    page = (tmp_path / "seen" / "bench.html").read_text()
    assert "block_1" in page
    assert "Operations" in page
    assert err.count("written:") == 1


def test_a_file_of_another_program_has_kinds_and_says_why_it_has_no_blocks(workspace, capsys, tmp_path):
    shutil.copyfile(GOLDEN, workspace.root / "other.pte")
    for name in ("perfetto.json", "model-explorer.graph.json", "model-explorer.times.json", "notes.txt"):
        (tmp_path / name).write_text("of a file before")
    status, out, err = run(capsys, "bench", "other.pte", "--profile", "--trace", tmp_path, *QUICK, "--json")
    assert {path.name for path in tmp_path.iterdir()} == {"bench.html", "notes.txt", "perfetto.json"}
    assert json.loads((tmp_path / "perfetto.json").read_text())["otherData"]["model"] == "other.pte"
    profile = json.loads(out)["profile"]
    assert (status, profile["by_block"]) == (0, [])
    assert profile["by_kind"]
    assert profile["unattributed"] in err
    assert "export it again" in err


@pytest.mark.parametrize("model", [("zoo:x3d-xs", "--runtime", "litert"), ("model.tflite",)])
def test_an_engine_without_times_of_operations_is_refused_before_anything_is_measured(workspace, capsys, model):
    (workspace.root / "model.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    status, out, err = run(capsys, "bench", *model, "--profile", *QUICK)
    assert (status, out) == (2, "")
    assert "the litert runtime tells no times of operations: leave --profile out" in err
    assert "--runtime executorch or" in err
    assert ("give in the place of model.tflite the name of its network" in err) == (model == ("model.tflite",))


def test_the_engine_of_a_file_is_told_before_its_lack_of_times(workspace, capsys):
    (workspace.root / "model.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    status, _, err = run(capsys, "bench", "model.tflite", "--runtime", "onnx", "--profile", *QUICK)
    assert status == 2
    assert "model.tflite is a file for litert; --runtime onnx takes a name" in err


def test_a_folder_that_cannot_be_written_is_refused_before_the_file_is_looked_at(workspace, capsys):
    status, out, err = run(capsys, "bench", "none.pte", "--profile", "--trace", "fp32.pte/seen", *QUICK)
    assert (status, out) == (2, "")
    assert "cannot write" in err
    assert "a part of the path is a file" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trace", "x"), "--trace DIR holds what --profile and --sustained see: add one of them"),
        (("--profile", "--runtime", "all"), "--profile is about one engine"),
        (("--sustained", "--runtime", "all"), "--sustained is about one engine"),
        (("--sustained", "10"), 'write for example "10min"'),
        (("--sustained", "2"), 'write for example "3min"'),
        (("--sustained", "long"), 'such as "60min"'),
        (("--sustained", "20s"), "expected at least 3min, got '20s'"),
        (("--sustained", "0s"), "expected a finite time of at least 3min, got '0s'"),
        (("--sustained", "--cache", "flush"), "leave --cache flush out"),
        (("--profile", "--cache", "flush"), "leave --cache flush out, or --profile"),
        (("--profile", "--cache", "rotate"), "leave --cache rotate out, or --profile"),
    ],
)
def test_what_does_not_go_together_is_one_line(workspace, capsys, arguments, said):
    status, out, err = run(capsys, "bench", "fp32.pte", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.fixture
def phone(monkeypatch):
    """Stands in for the local device: the same commands, the simulated phone behind them."""
    machine = PhoneMachine(Phone(), 3)

    def opened(*arguments, **options):
        return contextlib.nullcontext(Bench(PhoneTransport(machine), Runner("simulated", ("runner",)), 1, BIG[-1:]))

    monkeypatch.setattr(benches, "open_bench", opened)
    return machine


def facts(target, precision="fp32", started_at="2026-11-25T02:00:00+00:00"):
    return CourseFacts(target.key, "net.pte", "cd" * 32, precision, started_at, 0.1, 0.099, 0.101)


def sustain(workspace, phone, listener=None, **other):
    file = write_simulated(workspace.root / "net.simulated", Cost(90e-3, 10e-3))
    artifact = Artifact(file, "cd" * 32, Workload.parse(CHAIN.format("fp32")), "executorch", "1.5.1", None)
    return bench_sustained.sustain(
        workspace, load_device(workspace, "local"), artifact,
        replace(facts(Target("local", "executorch", "1.5.1")), **other),
        limit_s=900.0, threads=1, listener=listener or hwbench.Listener(),
    )  # fmt: skip


def test_a_course_is_kept_goes_on_after_ctrl_c_and_ends_when_it_has_settled(workspace, phone):
    class Impatient(hwbench.Listener):
        said = ()

        def say(self, message):
            self.said = (*self.said, message)

        def progress(self, at):
            if at.done == 7 and len(self.said) == 0:
                raise KeyboardInterrupt

    ears = Impatient()
    with pytest.raises(KeyboardInterrupt):
        sustain(workspace, phone, ears)
    assert "7 windows are kept" in ears.said[-1]
    anew = sustain(workspace, phone, digest="of another board")
    assert {point.part for point in anew.points} == {0}
    anew.path.unlink()
    course = sustain(workspace, phone, ears)
    assert any("going on with the course" in line for line in ears.said)
    assert course.ended == "settled"
    assert {point.part for point in course.points} == {0, 1}
    assert sum(point.part == 0 for point in course.points) == 7
    values = bench_sustained.course_to_json(course)
    assert 1.05 < values["ratio"] < 1.35
    assert 0.9 < values["cpu_share"] <= 1
    assert values["ratio_ci95"][0] < values["ratio"] < values["ratio_ci95"][1]
    assert (values["energy"]["source"], values["energy"]["watts"]) == (None, None)
    assert "no energy counter" in values["energy"]["reason"]
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert sustain(workspace, phone).path != course.path  # it has ended: the next one is another one


def test_an_emulated_device_is_refused(workspace):
    folder = workspace.root / "profiles" / "lab"
    folder.mkdir(exist_ok=True)
    local = (workspace.root / "profiles" / "local" / "device.toml").read_text()
    (folder / "device.toml").write_text(local.replace('"local"', '"lab"', 1) + "\nemulated = true\n")
    with pytest.raises(InvalidValue, match="is emulated"):
        hwbench.bench(hwbench.BenchRequest(model="fp32.pte", device="lab", sustained="10min"), workspace=workspace)
    shutil.rmtree(folder)


def course_of(workspace, target, precision, day, latency_s, ended="settled", cpu_s=5.0, **other):
    of = replace(facts(target, precision, f"2026-11-{day}T02:00:00+00:00"), **other)
    log = CourseLog.begin(workspace.sustained / target.device, of)
    for number in range(60):
        energy = EnergyReading(((number * 30_000_000, 1 << 40),))
        log.add(CoursePoint(5 * number + 2.5, 5.0, latency_s, 40, 60.0, 2e9, 0, cpu_s, energy))
    if ended:
        log.end(ended)


def test_search_divides_its_budget_by_the_latest_ratio_that_has_settled(workspace, capsys):
    target, talk = installed_target(), []
    listener = type("Ears", (hwbench.Listener,), {"say": lambda self, message: talk.append(message)})()
    request = hwbench.SearchRequest(budget="60ms", precision="int8", sustained=True)
    with pytest.raises(NotMeasured, match=r"hwbench bench zoo:efficient-x3d-xs --device local .* --sustained 10min"):
        for_minutes(request, workspace, listener)
    course_of(workspace, target, "int8", 21, 0.150)
    course_of(workspace, target, "int8", 22, 0.125)
    course_of(workspace, target, "int8", 23, 0.2, ended="limit")  # has not settled
    course_of(workspace, target, "fp32", 24, 0.2)
    course_of(workspace, target, "int8", 25, 0.3, cpu_s=3.0)  # other programs made it slow
    ratios = for_minutes(request, workspace, listener)
    assert ratios == {"local": 1.25}
    assert cooled(request, ratios).budget_s == pytest.approx(0.048)
    course_of(workspace, target, "int8", 26, 0.3, conditions="controlled")
    assert for_minutes(request, workspace, listener) == ratios
    assert "1.250" in talk[0]
    assert "2026-11-22" in talk[0]
    front = hwbench.SearchRequest(budget="50ms,60ms", precision="int8", sustained=True)
    assert cooled(front, ratios).front_s == pytest.approx((0.04, 0.048))
    plain = hwbench.SearchRequest(budget="60ms", precision="int8")
    assert for_minutes(plain, workspace, listener) == {}
    assert cooled(plain, {}) is plain
    course_of(workspace, target, "int8", 28, 0.08)  # faster when hot is noise
    assert for_minutes(request, workspace, listener) == {"local": 1.0}


def test_search_uses_no_course_of_another_board_or_of_other_conditions(workspace):
    folder = workspace.root / "profiles" / "board"
    folder.mkdir()
    words = 'schema = 1\nname = "board"\ntransport = "local"\nfingerprint = "2222222222222222"\n'
    (folder / "device.toml").write_text(words)
    request = hwbench.SearchRequest(device="board", budget="60ms", precision="int8", sustained=True)
    target, kept = replace(installed_target(), device="board"), {"fingerprint": "1" * 16, "conditions": "stock"}
    course_of(workspace, target, "int8", 21, 0.160, **kept)
    with pytest.raises(
        NotMeasured, match=r"as it is now \(stock\); the course of 2026-11-21T02.* of another one of this"
    ):
        for_minutes(request, workspace, hwbench.Listener())
    course_of(workspace, target, "int8", 22, 0.125, **kept | {"fingerprint": "2" * 16})
    assert for_minutes(request, workspace, hwbench.Listener()) == {"board": 1.25}
    (folder / "device.toml").write_text(words + 'conditions = "controlled"\n')
    with pytest.raises(
        NotMeasured, match=r"as it is now \(controlled\); .* or of other conditions \(stock\); measure it"
    ):
        for_minutes(request, workspace, hwbench.Listener())
    shutil.rmtree(folder)


def test_reports_show_courses(workspace, tmp_path):
    target = installed_target()
    course_of(workspace, target, "int8", 27, 0.125)
    (course,) = [one for one in courses(workspace.sustained / "local") if "2026-11-27" in one.facts.started_at]
    assert course.energy.watts == pytest.approx(6.0)
    table = space_table(load_space(workspace, "x3d-tiny"), Precision.FP32)
    table.write(table_path(workspace.root, target, Precision.FP32))
    write_device(workspace, "local", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for words in ("Sustained latency", "1.250", "6 W (rapl)", "2026-11-27T02:00:00"):
        assert words in page
