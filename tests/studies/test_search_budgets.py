"""Search within several budgets: this machine and a simulated phone, the size of the file, activations.

Both devices have a known latency law; the phone runs the real measuring protocol in virtual time.
"""

import contextlib
import json
import math
from dataclasses import replace
from functools import partial

import pytest

import hwbench
import hwbench.api.search
from hwbench import Listener, SearchRequest
from hwbench.cli.main import main
from hwbench.errors import InfeasibleBudget, InvalidValue, NotMeasured, OverBudget, UnknownName
from hwbench.latency import AdditivePredictor, LatencyTable, interpolated, load_table, table_path
from hwbench.latency.footprint import activation_bytes, file_bytes
from hwbench.measure.bench import Bench
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import Drift, Pauses
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.reports import commands
from hwbench.reports.page import page
from hwbench.reports.result import read_result
from hwbench.reports.study import gather
from hwbench.runtimes.runners import Runner
from hwbench.specs import Architecture, BlockRole, Precision, Timing
from hwbench.specs.kinds.x3d import X3dKind
from hwbench.specs.model_name import ModelName, note_named
from hwbench.studies.candidates import Candidate, FurtherLatency, pareto
from hwbench.studies.confirmation import Confirmation
from hwbench.studies.latencies import space_latencies
from hwbench.studies.over_budget import over_budget
from hwbench.studies.settings import Settings
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.listeners import Keeper
from hwbench.testing.simulated_phone import (
    BIG,
    QUIET,
    PhoneBuilder,
    PhoneMachine,
    PhoneTransport,
    work_cost,
)  # fmt: skip
from hwbench.testing.tables import installed_target, space_table, work

PHONE, INT8 = "s9", Precision.INT8
TIMING = Timing(min_rounds=3, max_rounds=4)


def phone_law(workload):
    """What the simulated phone takes."""
    return work_cost(workload).seconds


def target_of(device):
    return replace(installed_target(), device=device)


class Bay:
    """Measures on this machine, which is a fake, and on the phone; ``slower`` makes a device take longer than told."""

    def __init__(self, folder):
        self.folder, self.asked, self.slower = folder, {}, {}

    def measuring(self, workspace, target, runtime, builder=None, listener=None):
        build, measure = self._phone() if target.device == PHONE else self._local()

        def run(workloads):
            self.asked.setdefault(target.device, []).extend(workloads)
            with MeasurementStore(workspace.store) as store:
                return (
                    Campaign(store, target, {"device": target.device}, build, measure, TIMING)
                    .run(workloads)
                    .measurements
                )

        return run

    def _local(self):
        device = FakeDevice(self.folder / "local", law=lambda w: work(w) * self.slower.get("local", 1.0))
        return device.build, device.measure

    def _phone(self):
        machine, factor = PhoneMachine(QUIET), self.slower.get(PHONE, 1.0)
        bench = Bench(PhoneTransport(machine), Runner("simulated", ("runner",)), 1, BIG[-1:])
        measure = partial(
            measure_sessions, bench=bench, timing=TIMING, drift=Drift(), pauses=Pauses(), wait=machine.idle
        )
        cost = lambda w: replace(c := work_cost(w), compute_s=factor * c.compute_s, memory_s=factor * c.memory_s)  # noqa: E731
        return PhoneBuilder(self.folder / "phone", cost), measure


@pytest.fixture
def bay(tmp_path, workspace, space, monkeypatch):
    target = target_of(PHONE)
    space_table(space, INT8, phone_law, target=target).write(table_path(workspace.root, target, INT8))
    bay = Bay(tmp_path)
    monkeypatch.setattr(hwbench.api.search, "measuring", bay.measuring)
    return bay


def ask(workspace, listener=None, **changes):
    values = {"budget": "4.2ms,6ms", "device": f"local,{PHONE}", "trials": 8} | changes
    return hwbench.search(SearchRequest(**values), listener or Listener(), workspace=workspace)


@pytest.fixture
def latencies(workspace, bay, space):
    """By device: the predicted latency of every network of the space."""
    members = list(space.architectures())
    found = {}
    for device in ("local", PHONE):
        table = load_table(workspace, target_of(device), INT8, space.name)
        predictor = AdditivePredictor.fit(table, space=space.name)
        sums = space_latencies(space, predictor, INT8, 8)
        found[device] = dict(zip(members, sums.totals(space.encode(members)).tolist(), strict=True))
    return found


def by_blocks(space, architecture, number, combine):
    """Of the blocks of one network, one after the other."""
    network = space.network(architecture, 8)
    x, numbers = network.input, []
    for block in network.blocks:
        numbers.append(number(block, x, INT8))
        x = block.output(x)
    return combine(numbers)


def test_the_networks_of_two_devices_are_those_within_both_budgets(workspace, bay, latencies):
    result = ask(workspace, trials=12)
    within = {a for a, seconds in latencies["local"].items() if seconds <= 4.2e-3 and latencies[PHONE][a] <= 6e-3}
    assert 0.9 * len(within) <= result.feasible <= len(within)
    assert {Architecture.parse(c.architecture) for c in result.history} <= within
    best = Architecture.parse(result.best.architecture)
    assert result.best.predicted_s == pytest.approx(latencies["local"][best])
    (further,) = result.best.further
    assert (further.device, further.predicted_s) == (PHONE, pytest.approx(latencies[PHONE][best]))
    assert result.best.measured_s <= 4.2e-3
    assert further.measured_s == pytest.approx(further.predicted_s, rel=0.01)
    assert bay.asked["local"]
    assert bay.asked[PHONE] == bay.asked["local"]


@pytest.mark.parametrize("sampler", ["thompson", "tpe", "nsga2", "random"])
@pytest.mark.parametrize("objective", ["score", "score,latency"])
def test_every_sampler_keeps_within_all_budgets(workspace, bay, space, latencies, sampler, objective):
    result = ask(
        workspace, sampler=sampler, objective=objective, max_file_size="330kB", max_activations="1MiB", trials=10
    )
    for candidate in result.history:
        network = Architecture.parse(candidate.architecture)
        assert latencies["local"][network] <= 4.2e-3
        assert latencies[PHONE][network] <= 6e-3
        assert by_blocks(space, network, file_bytes, sum) <= 330_000
        assert by_blocks(space, network, activation_bytes, max) <= 1 << 20
    keys = [c.architecture for c in result.history]
    assert len(set(keys)) == len(keys) == 10


def test_one_device_with_a_limit_of_the_file_alone(workspace, bay, space, latencies):
    result = ask(workspace, device="local", budget="4.2ms", max_file_size="300kB")
    sizes = {a: by_blocks(space, a, file_bytes, sum) for a in latencies["local"]}
    within = [a for a, seconds in latencies["local"].items() if seconds <= 4.2e-3 and sizes[a] <= 300_000]
    assert result.feasible == len(within)
    best = Architecture.parse(result.best.architecture)
    assert dict(result.best.sizes) == {"file_size_bytes": sizes[best]}
    assert result.study == "x3d-tiny_local_int8_4.2ms_fitted_file-300000B"


def test_the_worst_share_of_a_budget_is_the_latency_of_a_front(workspace, bay, latencies):
    result = ask(workspace, objective="score,latency", sampler="nsga2", trials=16)
    shares = [
        max(latencies["local"][a] / 4.2e-3, latencies[PHONE][a] / 6e-3)
        for a in (Architecture.parse(c.architecture) for c in result.pareto)
    ]
    assert shares == sorted(shares)
    assert len(shares) > 1
    journal = [json.loads(line) for line in (workspace.studies / result.study / "journal.log").read_text().splitlines()]
    told = [entry["values"] for entry in journal if entry.get("values")]
    assert {round(1e6 * values[1]) for values in told} >= {round(4.2e3 * share) for share in shares}


def test_json_has_each_latency_by_device_and_the_budgets(workspace, bay, monkeypatch, capsys):
    monkeypatch.chdir(workspace.root)
    command = [
        "search",
        "--device",
        f"local,{PHONE}",
        "--budget",
        "4.2ms,6ms",
        "--trials",
        "8",
        "--max-file-size",
        "400kB",
    ]
    with pytest.raises(SystemExit) as end:
        main([*command, "--max-activations", "2MiB", "--json"])
    assert not end.value.code
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == [
        *("study", "space", "budget_ms", "trials", "feasible", "best", "pareto"),
        *("budgets_ms", "max_file_size_bytes", "max_activation_bytes", "learned"),
    ]
    assert printed["budget_ms"] == 4.2
    assert printed["budgets_ms"] == {"local": 4.2, PHONE: 6.0}
    best = printed["best"]
    assert best["predicted_ms"].keys() == best["measured_ms"].keys() == {"local", PHONE}
    assert best["file_size_bytes"] <= printed["max_file_size_bytes"] == 400_000
    assert best["activation_bytes"] <= printed["max_activation_bytes"] == 2 << 20
    with pytest.raises(SystemExit):
        main(command)
    people = capsys.readouterr()
    assert f"within 4.2 ms on local and 6 ms on {PHONE}, a file of 390.6 KiB" in people.out + people.err


def test_one_device_and_no_further_budget_leave_no_trace(workspace, bay):
    result = ask(workspace, device="local", budget="4.2ms")
    assert result.study == "x3d-tiny_local_int8_4.2ms_fitted"
    stored = json.loads((workspace.studies / result.study / "result.json").read_text())
    assert not [key for key in stored["settings"] if key.startswith(("further", "max_"))]
    assert list(stored)[:7] == ["study", "space", "budget_ms", "trials", "feasible", "best", "pareto"]
    assert set(stored["best"]) == {"architecture", "predicted_ms", "measured_ms", "score"}


def test_a_study_keeps_to_its_budgets(workspace, bay):
    ask(workspace, study="mine", max_file_size="400kB")
    with pytest.raises(InvalidValue, match="max_file_bytes was 400000, now 0"):
        ask(workspace, study="mine")
    with pytest.raises(InvalidValue, match=r"further_budgets_ms was .*6\.0.*, now .*7\.0"):
        ask(workspace, study="mine", max_file_size="400kB", budget="4.2ms,7ms")
    with pytest.raises(InvalidValue, match=r"further_budgets_ms was .*, now \{\}"):
        ask(workspace, study="mine", max_file_size="400kB", budget="4.2ms", device="local")
    assert ask(workspace, study="mine", max_file_size="400kB", trials=10).trials == 10


def test_networks_of_a_study_that_are_beyond_a_limit_by_the_count_of_today_are_no_candidates(
    workspace, bay, monkeypatch
):
    """An earlier version left out what waits for a shortcut in some blocks."""
    limit = 1_400_000
    given = {"study": "mine", "device": "local", "budget": "4.2ms", "max_activations": f"{limit}B"}
    with monkeypatch.context() as before:
        before.setattr(X3dKind, "keeps_input", lambda *_: False)
        assert dict(ask(workspace, **given, trials=12).best.sizes)["activation_bytes"] <= limit
    result = ask(workspace, **given, trials=16)
    assert any(dict(one.sizes)["activation_bytes"] > limit for one in result.history)
    assert all(dict(one.sizes)["activation_bytes"] <= limit for one in (result.best, *result.pareto))


def test_one_budget_is_for_all_devices_and_confidence_for_each(workspace, bay):
    result = ask(workspace, budget="6ms", confidence=0.8)
    assert result.settings.budgets_ms == {"local": 6.0, PHONE: 6.0}
    assert result.study == f"x3d-tiny_local-{PHONE}_int8_6ms-6ms_fitted_sure-0.8"
    assert result.feasible <= ask(workspace, budget="6ms").feasible


def test_what_is_too_slow_on_the_phone_is_not_the_best(workspace, bay):
    bay.slower[PHONE] = 1.08
    result = ask(workspace, trials=16, measure=2)
    assert result.best.further[0].measured_s <= 6e-3
    assert any(c.further[0].measured_s > 6e-3 for c in result.measured if c.further[0].measured_s)
    bay.slower[PHONE], bay.folder = 3.0, bay.folder / "slower"
    for file in workspace.store.parent.glob(f"{workspace.store.name}*"):
        file.unlink()  # what was measured on the faster phone
    with pytest.raises(
        OverBudget, match=rf"within 4\.2 ms on local and 5\.9 ms on {PHONE}; the fastest take .* on {PHONE}"
    ) as error:
        ask(workspace, budget="4.2ms,5.9ms")
    checks = [f"hwbench validate --device {device} --space x3d-tiny --precision int8" for device in ("local", PHONE)]
    assert str(error.value).endswith(f"or check the tables: {'; '.join(checks)}")


def test_budgets_that_exclude_each_other_are_answered_with_the_nearest(workspace, bay, latencies, monkeypatch, capsys):
    budgets = {"local": 2.97e-3, PHONE: 4.94e-3}
    assert all(min(by.values()) <= budgets[device] for device, by in latencies.items())
    assert not [a for a in latencies["local"] if all(by[a] <= budgets[device] for device, by in latencies.items())]
    monkeypatch.chdir(workspace.root)
    command = ["search", "--device", f"local,{PHONE}", "--trials", "2", "--json", "--budget"]
    with pytest.raises(SystemExit) as end:
        main([*command, "2.97ms,4.94ms"])
    assert end.value.code == 4
    message = " ".join(capsys.readouterr().err.split())
    assert f"is within all of 2.97ms (latency on local) and 4.94ms (latency on {PHONE})" in message
    nearest = message.partition("try for example ")[2].split(", or ")
    assert len(nearest) == 3
    for number, way in enumerate(nearest):
        with contextlib.suppress(OverBudget):  # there is a network, at the edge, which measured longer than predicted
            assert ask(workspace, budget=way.split()[1], trials=1, study=f"near-{number}").feasible >= 1
    together = [float(limit.removesuffix("ms")) for limit in nearest[0].split()[1].split(",")]
    factor = min(max(by[a] / budgets[device] for device, by in latencies.items()) for a in latencies["local"])
    assert factor <= together[0] / 2.97 <= 1.002 * factor
    assert together[1] / 4.94 == pytest.approx(together[0] / 2.97, rel=1e-3)


def test_a_limit_that_nothing_keeps_is_answered_with_the_least(workspace, bay, space):
    sizes = [by_blocks(space, a, file_bytes, sum) for a in space.architectures()]
    with pytest.raises(InfeasibleBudget, match=rf"100000B \(file size\): the smallest reachable is {min(sizes)}B"):
        ask(workspace, max_file_size="100kB")
    with pytest.raises(
        InfeasibleBudget, match=r"1KiB \(activations\): .*give at least .* --max-activations 832KiB"
    ) as error:
        ask(workspace, max_activations="1KiB")
    assert "\n" not in str(error.value)
    assert ask(workspace, max_activations="832KiB").feasible


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"device": "local,local"}, "--device: expected each device once"),
        ({"device": "local,"}, "--device: expected each device once"),
        ({"budget": "4ms,5ms,6ms"}, "--budget: expected one budget, or one for each of the devices local, s9"),
        ({"budget": "4ms,5"}, "has no unit"),
        ({"device": "local", "budget": "4ms,5ms,4000us"}, "--budget: expected each budget of a front once"),
        ({"device": "local", "budget": "4ms,5ms", "objective": "score,latency"}, "--objective: several budgets"),
        ({"finalists": 1}, "--finalists: expected 2 or more"),
        ({"worker_cpus": 4.0}, "--worker-cpus goes with --ray"),
        ({"max_file_size": "two"}, "--max-file-size: expected a size with a unit"),
        ({"max_file_size": "0MB"}, "--max-file-size: expected a size above zero"),
        ({"max_activations": "8"}, "--max-activations: expected a size with a unit"),
        ({"transfer_from": "int8"}, "--transfer-from int8: rows of local/int8/t1 itself are missing"),
        (
            {"transfer_from": PHONE, "device": PHONE, "budget": "4ms"},
            f"--transfer-from {PHONE}: rows of {PHONE}/int8/t1 itself are missing",
        ),
    ],
)
def test_a_wrong_request_is_refused_when_it_is_made(fields, said):
    with pytest.raises(InvalidValue, match=said) as error:
        SearchRequest(**{"budget": "4ms,5ms", "device": f"local,{PHONE}"} | fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chosen", [False, True])
def test_the_table_of_one_device_stands_in_for_rows_of_another(workspace, bay, space, chosen):
    local, phone = (load_table(workspace, target_of(device), INT8, space.name) for device in ("local", PHONE))
    parts = [part for part in space.parts(INT8, num_classes=8) if part.blocks[0].role is BlockRole.BODY]
    few = phone.without(parts[::4]) if chosen else phone  # profile chose the rows of the phone
    table = LatencyTable(phone.target, INT8, few, adaptive=chosen)
    table.write(table_path(workspace.root, phone.target, INT8))
    local.without(parts[1::4]).write(table_path(workspace.root, local.target, INT8))
    ears = Keeper()
    result = ask(workspace, ears, transfer_from=PHONE, device=f"{PHONE},local", budget="6ms,4.2ms", measure_rows=0)
    told = [line for line in ears.lines if "rows of the space were not measured: " in line]
    assert [PHONE in line for line in told] == [False, True] if chosen else [True]
    assert result.settings.missing_rows == f"transferred from {PHONE}"
    report = gather(workspace, result.study)
    assert report.predictor.table.how == (interpolated(table, parts).how if chosen else "")
    assert report.winner.whole[INT8].predicted.seconds == pytest.approx(result.best.predicted_s, rel=1e-6)


def test_tables_must_be_there_and_agree(workspace, bay, space):
    with pytest.raises(UnknownName, match="pi9"):
        ask(workspace, device="local,pi9")
    path = table_path(workspace.root, target_of(PHONE), INT8)
    whole = path.read_text()
    path.unlink()
    with pytest.raises(NotMeasured, match=PHONE):
        ask(workspace)
    path.write_text(whole.replace("_o8_kglobal", "_o9_kglobal"))
    with pytest.raises(InvalidValue, match=f"different numbers of classes: 8 on local, 9 on {PHONE}; .*--classes"):
        ask(workspace)


def test_the_report_shows_every_device(workspace, bay):
    result = ask(workspace, max_file_size="400kB", max_activations="2MiB", study="mine")
    stored = read_result(workspace, "mine")
    assert stored.settings == result.settings
    # milliseconds are stored to a nanosecond
    assert stored.best.predicted(stored.target.device) == pytest.approx(result.best.predicted("local"), rel=1e-5)
    assert stored.best.measured("local").keys() == {"local", PHONE}
    assert stored.best.sizes == result.best.sizes
    again = commands.search(stored)
    assert f"--device local,{PHONE} " in again
    assert "--budget 4.2ms,6ms" in again
    assert "--max-file-size 400000B --max-activations 2097152B" in again
    written = page(gather(workspace, "mine"))
    for text in (f"measured on {PHONE}", f"4.2 ms on local and 6 ms on {PHONE}", "by the operations of its blocks"):
        assert text in written
    frame = result.to_frame()
    assert {f"predicted_ms_on_{PHONE}", f"measured_ms_on_{PHONE}"} <= set(frame.columns)
    assert frame[f"measured_ms_on_{PHONE}"].notna().sum() == sum(bool(c.further[0].measured_s) for c in result.measured)


def test_a_device_that_reports_nothing_is_named():
    confirmation = Confirmation(lambda w: [], lambda key: key, 1.0, 1.1, 1)
    candidate = Candidate("a", 1.0, 0.5, further=(FurtherLatency(PHONE, 0.5),))
    assert candidate.with_measured(1, 0.4).measured("local") == {PHONE: 0.4}
    assert candidate.with_measured(0, 0.4).measured("local") == {"local": 0.4}
    assert confirmation.run([Candidate("a", 1.0, 0.5)]) is None
    assert confirmation.measured["a"].failure == "the device did not report it"


def test_a_front_goes_by_the_latency_that_counts():
    fast = Candidate("a", 1.0, 0.5, further=(FurtherLatency(PHONE, 0.9),))
    slow = Candidate("b", 2.0, 0.6, further=(FurtherLatency(PHONE, 0.7),))
    assert pareto([fast, slow]) == [fast, slow]
    assert pareto([fast, slow], lambda c: c.further[0].predicted_s) == [slow]


def test_where_nothing_may_fit_the_nearest_network_is_named_on_all_devices():
    def scored(name, *seconds):
        return Candidate(f"x:a={name}", 1.0, seconds[0], further=(FurtherLatency(PHONE, seconds[1]),))

    target = replace(installed_target(), device="pi5").key
    settings = Settings("x", "d", target, "int8", 4.0, 8, further_budgets_ms={f"{PHONE}/executorch-1.5.1/t1": 50.0})
    networks = [scored(1, 5e-3, 50e-3), scored(2, 4e-3, 75e-3), scored(3, 4e-3, math.nan)]
    said = str(over_budget("mine", settings, [], [*networks, networks[0]]))
    assert "3 networks with a score, none of which" in said
    assert "beyond 4 ms on pi5 and 50 ms on s9 to be measured: 2, the nearest takes 5 ms on pi5 and 50 ms on s9" in said
    assert said.endswith(
        "lacks by now: 1; give a larger budget or more --trials, or measure the rows: "
        "hwbench profile --device s9 --space x --precision int8"
    )
    assert "evaluator 'entropy' gave none" in str(over_budget("mine", settings, [], []))


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, ""),
        ({"precision": "fp32"}, ""),
        ({"target": "pi5/onnx-1.27.0/t4"}, " --threads 4 --runtime onnx"),
        ({"variant": "stream", "num_classes": 20}, " --streaming --classes 20"),
        ({"missing_rows": "interpolated"}, " --interpolate"),
        ({"missing_rows": "transferred from s9/fp32"}, " --transfer-from s9/fp32"),
        ({"missing_rows": "transferred from pi5"}, ""),
    ],
)
def test_what_is_advised_where_nothing_fits_is_of_the_table_of_the_search(changes, options):
    target = replace(installed_target(), device="pi5").key
    settings = replace(Settings("x,y", "d,e", target, "int8", 4.0, 8), **changes)
    slow = [Candidate("x:a=1", 1.0, 3e-3, measured_s=6e-3), Candidate("y:a=1", 1.0, 3e-3, measured_s=5e-3)]
    command = f"hwbench validate --device pi5 --space y --precision {settings.precision}{options}"
    said = str(over_budget("mine", settings, slow, slow))
    assert said.endswith(
        f"the fastest takes 5 ms; give a larger budget or more --trials, or check the table: {command}"
    )
    lacking = str(over_budget("mine", settings, [], [Candidate("x:a=1", 1.0, math.nan)]))
    measured = options.partition(" --interpolate")[0].partition(" --transfer-from")[0]
    place = f"hwbench profile --device pi5 --space x,y --precision {settings.precision}{measured}"
    assert lacking.endswith(f"measure the rows: {place}")


def test_the_one_network_of_a_model_of_ones_own_is_not_held_against_others():
    settings = Settings("my.models.net", "d", replace(installed_target(), device="pi5").key, "int8", 4.0, 8)
    slow = [Candidate("my.models.net:", 1.0, 3e-3, measured_s=5e-3)]
    note_named(ModelName.parse("my.models:net"), None)
    assert str(over_budget("mine", settings, slow, slow)).endswith("; give a larger budget or more --trials")
    lacking = str(over_budget("mine", settings, [], [Candidate("my.models.net:", 1.0, math.nan)]))
    assert lacking.endswith("hwbench profile --device pi5 --space my.models:net --precision int8")
