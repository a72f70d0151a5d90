import itertools
import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

from hwbench.api import campaigns
from hwbench.api.layouts import fastest_on
from hwbench.cli.listening import TerminalListener
from hwbench.cli.main import main
from hwbench.errors import CheckFailed, InvalidValue, NotMeasured
from hwbench.latency import BETWEEN_RUNS, LatencyTable, Role, has_variants, table_path
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision, Repeatability, Target, Timing
from hwbench.studies.profiling_plan import first_workloads, space_workloads, within_budget
from hwbench.testing.fakes import FakeDevice

TARGET = Target("local", "executorch", "1.5.1", 1)


@pytest.fixture
def fake(workspace, monkeypatch):
    """Everything real but the device: ``fake.conditions`` and ``fake.sources`` are those of the next call."""
    device = FakeDevice(workspace.root / "files", noise=1e-5)
    device.conditions, device.sources, device.repeat = {"device": "fake"}, "1", None

    @contextmanager
    def place(
        store, workspace, place, *, runtime, threads, processes, retry=False, builder=None, listener=None, precisions=()
    ):
        again = tuple(set(Outcome) - {Outcome.OK}) if retry else (Outcome.LOST,)
        sources = device.sources
        yield Campaign(
            store, replace(TARGET, threads=threads), device.conditions, device.build, device.measure,
            timing=Timing(), build_key=lambda w: w.sha256 + sources, retry=again, repeat=device.repeat)  # fmt: skip

    monkeypatch.setattr(campaigns, "place_campaign", place)
    return device


def run(capsys, *arguments):
    status = 0
    try:
        main(["profile", *arguments])
    except SystemExit as end:
        status = end.code or 0
    out, err = capsys.readouterr()
    return status, out, err


def table(workspace, precision=Precision.FP32, threads=1):
    target = replace(TARGET, threads=threads)
    return LatencyTable.read(table_path(workspace.root, target, precision), target=target, precision=precision)


def needed(workspace, precision=Precision.FP32, classes=8, calibrate=4):
    return set(space_workloads(load_space(workspace, "x3d-tiny"), precision, classes, calibrate))


def test_a_space_is_measured_and_its_tables_are_published(workspace, fake, capsys):
    status, out, _ = run(capsys, "--device", "local", "--json")
    assert status == 0
    values = json.loads(out)
    rows = needed(workspace) | needed(workspace, Precision.INT8)
    keys = (
        "device target ok failed skipped table tables seconds scales aa accuracy stopped rows rows_of_space precisions"
    )
    assert set(values) == {*keys.split(), "precisions"}
    assert values["aa"] is None
    assert (values["device"], values["target"]) == ("local", TARGET.key)
    assert (values["ok"], values["failed"], values["skipped"]) == (len(rows), 0, 0)
    assert values["table"] == values["tables"][0] == "profiles/local/executorch-1.5.1.fp32.t1.csv"
    assert len(values["tables"]) == 2
    for precision in (Precision.FP32, Precision.INT8):
        published = table(workspace, precision)
        assert {row.workload for row in published} == needed(workspace, precision)
        assert len(published.rows(Role.NETWORK)) == 4
        assert published.rows(Role.CHAIN)
        for row in published:
            assert row.stats.median_s == pytest.approx(fake.law(row.workload), rel=1e-3)


def test_the_same_command_again_measures_nothing_and_writes_the_same_bytes(workspace, fake, capsys):
    run(capsys, "--precision", "fp32")
    path = table_path(workspace.root, TARGET, Precision.FP32)
    before, visits = path.read_bytes(), len(fake.visits)
    status, out, _ = run(capsys, "--precision", "fp32", "--json")
    assert status == 0
    assert (json.loads(out)["ok"], json.loads(out)["skipped"]) == (0, len(needed(workspace)))
    assert (path.read_bytes(), len(fake.visits)) == (before, visits)


def test_anew_measures_rows_again_and_interrupted_goes_on_without_it(workspace, fake, capsys):
    limit = ("--precision", "fp32", "--calibrate", "0", "--limit", "4")
    run(capsys, *limit)
    law = fake.law
    fake.law = lambda workload: 3 * law(workload)
    before = {row.workload: row.stats.median_s for row in table(workspace)}
    fake.interrupt_after = len(fake.visits) + 4
    status, _, err = run(capsys, *limit, "--anew")
    assert status == 130
    assert "4 measured rows are measured again; interrupted, go on without --remeasure" in err
    status, out, _ = run(capsys, *limit, "--json")
    assert (status, json.loads(out)["ok"], json.loads(out)["failed"]) == (0, 4, 0)
    after = {row.workload: row.stats.median_s for row in table(workspace)}
    assert set(after) == set(before)
    # The sessions before the interruption count: they were taken anew too.
    assert all(after[workload] == pytest.approx(3 * before[workload], rel=1e-3) for workload in after)


def test_intervals_are_as_wide_as_what_rows_differ_by_that_were_measured_anew(workspace, fake, capsys):
    command = ("--precision", "fp32", "--calibrate", "0")
    run(capsys, *command)
    first = table(workspace)
    assert first.between_runs == BETWEEN_RUNS
    with MeasurementStore(workspace.store) as store:
        store.database.select("UPDATE sessions SET taken_at = datetime(taken_at, '-1 hour') || '+00:00', boot = ''")
    law, signs = fake.law, {row.workload: 1 if at % 2 else -1 for at, row in enumerate(first)}
    fake.law = lambda workload: law(workload) * (1 + 0.05 * signs[workload])
    run(capsys, *command, "--anew")
    second = table(workspace)
    assert 0.02 < second.between_runs < 0.1
    for row in second:
        assert row.stats.ci_low_s < law(row.workload) < row.stats.ci_high_s
        assert first[row.workload].ci_high_s < 1.012 * law(row.workload)


def test_an_aa_test_is_published_with_the_tables_and_taken_again_with_new_rows(workspace, fake, capsys):
    found = [Repeatability(0.001 * n, 0.0, 0.004, 8, 2e-3) for n in range(1, 9)]
    fake.repeat = lambda: found.pop(0)
    limit = ("--limit", "2", "--calibrate", "0", "--json")
    _, out, err = run(capsys, *limit)
    aa = json.loads(out)["aa"]
    assert (aa["difference"], aa["median_ms"], aa["pairs"], aa["ok"]) == (0.001, 2.0, 8, True)
    assert "A/A test: the same file twice differs by +0.10 %" in err
    _, out, _ = run(capsys, "--precision", "int8", *limit)
    assert json.loads(out)["aa"]["difference"] == table(workspace, Precision.INT8).aa.found.difference == 0.002
    assert table(workspace).aa.found.difference == 0.001
    _, out, _ = run(capsys, "--precision", "int8", "--no-aa", *limit)
    assert json.loads(out)["aa"]["difference"] == 0.002  # kept with the rows of the same conditions
    fake.conditions = {"device": "fake", "governor": "powersave"}
    _, out, _ = run(capsys, "--precision", "int8", "--no-aa", *limit)
    assert json.loads(out)["aa"] is None


def test_nothing_new_measured_leaves_the_aa_test_and_one_that_fails_leaves_the_table(workspace, fake, capsys):
    def fails():
        raise CheckFailed("A/A test: crash: killed")

    fake.repeat = fails
    everything = ("--precision", "fp32", "--calibrate", "0", "--json")
    status, out, err = run(capsys, *everything)
    assert (status, json.loads(out)["aa"]) == (0, None)
    assert "A/A test: crash: killed" in err
    found = [Repeatability(0.001, 0.0, 0.004, 8, 2e-3)]
    fake.repeat = found.pop
    for _ in range(2):  # nothing is left to measure: the test is made once, and not again
        status, out, _ = run(capsys, *everything)
        assert (status, json.loads(out)["aa"]["difference"], len(table(workspace).rows(Role.BLOCK)) > 20) == (
            0,
            0.001,
            True,
        )


def test_an_interrupted_profile_is_one_line_and_goes_on(workspace, fake, capsys):
    fake.interrupt_after = 20
    status, out, err = run(capsys, "--precision", "fp32")
    assert (status, out) == (130, "")
    assert err.strip().splitlines()[-1] == "hwbench: interrupted; the same command goes on where it stopped"
    status, _, _ = run(capsys, "--precision", "fp32")
    assert status == 0
    assert len(fake.visits) == Timing().min_rounds * len(needed(workspace))


def test_a_limit_counts_missing_rows_and_begins_with_what_calibrates(workspace, fake, capsys):
    status, out, _ = run(capsys, "--precision", "fp32", "--limit", "5", "--calibrate", "2", "--json")
    assert (status, json.loads(out)["ok"]) == (0, 5)
    space = load_space(workspace, "x3d-tiny")
    first = space_workloads(space, Precision.FP32, 8, 2)[:5]
    assert {row.workload for row in table(workspace)} == set(first)
    run(capsys, "--precision", "fp32", "--limit", "3", "--calibrate", "2")
    assert len(table(workspace)) == 8


def test_within_a_budget_only_what_its_networks_use_is_measured(workspace, fake, capsys):
    plain = fake.law
    fake.law = lambda workload: 100 * plain(workload)
    run(capsys, "--precision", "fp32")
    everything = {row.workload for row in table(workspace)}
    budget_s = 1.1 * min(row.stats.median_s for row in table(workspace).rows(Role.NETWORK))
    table_path(workspace.root, TARGET, Precision.FP32).unlink()
    workspace.store.unlink()
    budget = ("--precision", "fp32", "--budget", f"{round(1e6 * budget_s)}us")
    space = load_space(workspace, "x3d-tiny")
    first = first_workloads(space, Precision.FP32, 8, 4)
    status, out, err = run(capsys, *budget, "--limit", str(len(first) + 1), "--json")
    assert status == 0, err
    assert json.loads(out)["ok"] == len(first) + 1
    assert "blocks are of use within the budget" in err
    status, out, _ = run(capsys, *budget, "--json")
    assert status == 0
    measured = {row.workload for row in table(workspace)}
    assert set(first) < measured < everything
    # What is interpolated when the rest is planned counts at the lower end of its interval; measured, some drop out.
    parts = within_budget(space, table(workspace), 8, round(budget_s, 6))
    assert set(parts) <= measured
    assert len(measured - set(parts) - set(first)) <= 2
    assert run(capsys, *budget, "--json")[1].count('"ok": 0') == 1


def test_a_limit_within_a_budget_ends_before_anything_can_be_planned(workspace, fake, capsys):
    status, out, err = run(capsys, "--precision", "fp32", "--budget", "1s", "--limit", "3", "--json")
    assert (status, json.loads(out)["ok"]) == (0, 3), err


def test_a_budget_that_no_network_meets_ends_after_what_tells_so(workspace, fake, capsys):
    status, _, err = run(capsys, "--precision", "fp32", "--budget", "1us")
    assert status == 4
    assert "the smallest reachable latency is" in err
    space = load_space(workspace, "x3d-tiny")
    assert {row.workload for row in table(workspace)} == set(first_workloads(space, Precision.FP32, 8, 4))
    assert run(capsys, "--budget", "12")[0] == 2
    assert run(capsys, "--budget", "12ms", "--networks-only")[0] == 2


@pytest.mark.parametrize("spaces", [("zoo:slow-r50",), ("zoo:x3d-xs", "zoo:slow-r50")])
def test_a_space_of_few_blocks_is_profiled_within_a_budget(workspace, fake, capsys, spaces):
    request = ("--space", ",".join(spaces), "--precision", "fp32")
    status, out, err = run(capsys, *request, "--budget", "10s", "--json")
    assert status == 0, err
    parts = {part for name in spaces for part in load_space(workspace, name).parts(Precision.FP32, num_classes=8)}
    assert {row.workload for row in table(workspace).rows(Role.BLOCK)} == parts
    assert [one["stopped"] for one in json.loads(out)["precisions"]] == ["rows"] * len(spaces)
    assert "blocks are of use within the budget" in err
    assert run(capsys, *request, "--budget", "10s", "--limit", "1")[0] == 0
    status, _, err = run(capsys, *request, "--budget", "1us")
    assert status == 4
    assert "the smallest reachable latency is" in err


def test_layouts_are_measured_beside_the_built_in_choice_and_the_fastest_is_found(workspace, fake, capsys):
    plain = fake.law
    fake.law = lambda workload: plain(workload) * {"segments": 0.5, "one-hot": 2.0}.get(workload.variant, 1.0)
    status, _, _ = run(capsys, "--precision", "fp32", "--variants", "one-hot,segments", "--calibrate", "1")
    assert status == 0
    rows = {row.workload for row in table(workspace)}
    assert rows > needed(workspace, calibrate=1)
    assert {row.variant for row in rows} == {"auto", "one-hot", "segments"}
    space = load_space(workspace, "x3d-tiny")
    members = [space.network(each, 8) for each in itertools.islice(space.architectures(), 0, None, 500)]
    network = next(n for n in members if any(map(has_variants, n.workload(Precision.FP32).parts())))
    assert (
        fastest_on(workspace, "local", network, Precision.FP32, "auto", TerminalListener(), runtime="executorch")
        == "segments"
    )
    said = capsys.readouterr().err
    assert "segments" in said
    assert "sums of rows" in said
    with pytest.raises(InvalidValue, match="leave out --variant one-hot"):
        fastest_on(workspace, "local", network, Precision.FP32, "one-hot", runtime="executorch")


def test_layouts_without_rows_leave_the_built_in_choice(workspace, fake, capsys):
    run(capsys, "--precision", "fp32", "--calibrate", "1")
    space = load_space(workspace, "x3d-tiny")
    network = space.network(next(space.architectures()), 8)
    assert (
        fastest_on(workspace, "local", network, Precision.FP32, "auto", TerminalListener(), runtime="executorch")
        == "auto"
    )
    assert "the built-in choice" in capsys.readouterr().err
    with pytest.raises(NotMeasured, match="no latency table"):
        fastest_on(workspace, "local", network, Precision.INT8, "auto", runtime="executorch")


def test_an_unknown_layout_is_refused(workspace, fake, capsys):
    status, _, err = run(capsys, "--variants", "one-hot,segment")
    assert status == 2
    assert "did you mean 'segments'" in err


def test_failures_are_listed_in_words_and_kept(workspace, fake, capsys):
    parts = list(load_space(workspace, "x3d-tiny").parts(Precision.FP32, num_classes=8))
    fake.build_failures = {parts[0]: "DelegationFailed: aten.mean stayed outside"}
    fake.failures = {parts[1]: (Outcome.CRASH, "killed by SIGSEGV")}
    status, out, err = run(capsys, "--precision", "fp32", "--json")
    assert (status, json.loads(out)["failed"]) == (0, 2)
    assert f"{parts[0].key}: build: DelegationFailed: aten.mean stayed outside" in err
    assert f"{parts[1].key}: crash: killed by SIGSEGV" in err
    failed = {row.workload: row for row in table(workspace) if row.stats is None}
    assert {workload: row.outcome for workload, row in failed.items()} == {
        parts[0]: Outcome.BUILD, parts[1]: Outcome.CRASH}  # fmt: skip
    fake.build_failures = fake.failures = {}
    _, out, _ = run(capsys, "--precision", "fp32", "--json")
    assert json.loads(out)["failed"] == 2
    _, out, _ = run(capsys, "--precision", "fp32", "--retry", "--json")
    assert (json.loads(out)["ok"], json.loads(out)["failed"]) == (2, 0)


def test_rows_of_other_spaces_and_classes_stay_in_the_table(workspace, fake, capsys):
    run(capsys, "--precision", "fp32", "--classes", "8")
    run(capsys, "--precision", "fp32", "--classes", "12")
    assert {row.workload for row in table(workspace)} == needed(workspace) | needed(workspace, classes=12)


def test_a_refresh_does_not_cost_a_table_the_rows_of_an_earlier_version(workspace, fake, capsys):
    run(capsys, "--precision", "fp32")
    path = table_path(workspace.root, TARGET, Precision.FP32)
    before, visits = path.read_bytes(), len(fake.visits)
    fake.sources = "2"
    status, _, err = run(capsys, "--precision", "fp32", "--refresh")
    assert status == 2
    assert f"{len(table(workspace))} rows of an earlier version of hwbench" in err
    assert "measured again by hwbench profile --device local --space x3d-tiny --precision fp32" in err
    assert (path.read_bytes(), len(fake.visits)) == (before, visits)
    run(capsys, "--precision", "fp32")  # the same files come of it: their rows are taken over
    assert len(fake.visits) == visits
    status, out, _ = run(capsys, "--precision", "fp32", "--refresh", "--json")
    assert status == 0
    assert 0 < json.loads(out)["ok"] < len(table(workspace))
    assert {row.workload for row in table(workspace)} == needed(workspace)


def test_rows_stay_when_the_store_is_gone(workspace, fake, capsys):
    run(capsys, "--precision", "fp32", "--classes", "8")
    before = {row.workload: row for row in table(workspace)}
    workspace.store.unlink()
    run(capsys, "--precision", "fp32", "--limit", "1", "--classes", "12")
    rows = {row.workload: row for row in table(workspace)}
    assert set(before) <= set(rows)


def test_rows_of_other_conditions_or_an_older_build_leave_the_table_with_a_word(workspace, fake, capsys):
    _, _, err = run(capsys, "--precision", "fp32", "--calibrate", "0", "--limit", "1000")
    assert "--limit reached" not in err
    everything = len(table(workspace))
    fake.conditions = {"device": "fake", "governor": "powersave"}
    _, _, err = run(capsys, "--precision", "fp32", "--limit", "3", "--calibrate", "0")
    assert len(table(workspace)) == 3
    assert "--limit reached, the same command goes on" in err
    assert f"{everything - 3} rows of an earlier version or of other conditions are left out" in err
    fake.sources, fake.law = "2", lambda workload: 0.001
    build = fake.build
    fake.build = lambda workloads: (replace(a, sha256="f" * 64) for a in build(workloads))
    _, _, err = run(capsys, "--precision", "fp32", "--limit", "2", "--calibrate", "0")
    assert [row.stats.median_s for row in table(workspace)] == [pytest.approx(0.001, rel=1e-3)] * 2
    assert "1 rows of an earlier version" in err
    with MeasurementStore(workspace.store) as store:
        assert store.counts()["ok"] == everything + 3 + 2


def test_threads_have_a_table_of_their_own(workspace, fake, capsys):
    status, out, _ = run(capsys, "--precision", "int8", "--threads", "2", "--limit", "2", "--json")
    assert (status, json.loads(out)["table"]) == (0, "profiles/local/executorch-1.5.1.int8.t2.csv")
    assert len(table(workspace, Precision.INT8, threads=2)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--precision", "fp8"], "expected fp32, fp16, bf16 or int8, got 'fp8'"),
        (["--precision", ","], "--precision: expected fp32, fp16, bf16, int8"),
        (["--device", "lokal"], "did you mean 'local'?"),
        (["--space", "x3d-tny"], "did you mean 'x3d-tiny' or"),
        (["--threads", "0"], "--threads"),
        (["--limit", "0"], "--limit"),
        (["--limit", "many"], "--limit"),
        (["--classes", "-1"], "--classes"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_input_is_one_message_and_status_2(workspace, fake, capsys, arguments, said):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_device_that_is_not_there_is_status_3(workspace, capsys):
    status, out, err = run(capsys, "--device", "s9")
    assert (status, out) == (3, "")
    assert "device 's9': " in err
    assert "adb" in err


def test_outside_of_a_workspace(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys)
    assert status == 2
    assert "hwbench init" in err


@pytest.mark.parametrize("which", ["table", "store", "space", "device"])
def test_a_damaged_file_is_named_before_anything_is_measured(workspace, fake, capsys, which):
    path = {
        "table": table_path(workspace.root, TARGET, Precision.FP32),
        "store": workspace.store,
        "space": workspace.root / "search_spaces" / "x3d-tiny.toml",
        "device": workspace.root / "profiles" / "local" / "device.toml",
    }[which]
    path.write_text("this is nothing that hwbench wrote\n" * 50)
    before = path.read_bytes()
    status, out, err = run(capsys, "--precision", "fp32")
    assert (status, out) == (2, "")
    assert path.name in err
    assert len(err.strip().splitlines()) == 1
    assert fake.visits == []
    assert path.read_bytes() == before


def test_a_misspelt_key_of_a_device_is_answered_with_the_nearest(workspace, fake, capsys):
    path = workspace.root / "profiles" / "local" / "device.toml"
    path.write_text(path.read_text().replace("threads =", "thread ="))
    status, _, err = run(capsys)
    assert status == 2
    assert "did you mean 'threads'" in err


def test_several_devices_at_once_and_one_that_is_not_there(workspace, capfd):
    gone = workspace.root / "profiles" / "gone" / "device.toml"
    gone.parent.mkdir()
    gone.write_text('schema = 1\nname = "gone"\ntransport = "ssh"\n[ssh]\nhost = "127.0.0.1"\nport = 1\nuser = "me"\n')
    with pytest.raises(SystemExit) as ended:
        main(["profile", "--device", "local,gone", "--limit", "1", "--precision", "fp32", "--calibrate", "0", "--no-aa",
              "--json"])  # fmt: skip
    printed = capfd.readouterr()
    local, lost = json.loads(printed.out)["devices"]
    assert ended.value.code == lost["status"] == 3
    assert (local["device"], local["status"], local["ok"] + local["failed"]) == ("local", 0, 1)
    with MeasurementStore(workspace.store) as store:
        assert set(store.counts()) <= {"ok", "noisy"}  # the machine that runs the tests may be busy
    assert lost["device"] == "gone"
    assert "[gone] " in printed.err


def test_several_devices_must_all_be_known(workspace, capfd):
    with pytest.raises(SystemExit) as ended:
        main(["profile", "--device", "local,s0"])
    assert ended.value.code == 2
    assert "s9" in capfd.readouterr().err


def test_networks_alone_are_measured_for_a_transfer(workspace, fake, capsys):
    _, out, _ = run(capsys, "--precision", "int8", "--networks-only", "--calibrate", "3", "--no-aa", "--json")
    assert json.loads(out)["ok"] == 3
    assert [row.role for row in table(workspace, Precision.INT8)] == [Role.NETWORK] * 3
