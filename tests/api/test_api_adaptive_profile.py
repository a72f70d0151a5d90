"""Adaptive profiles on a device whose law is known: how they end, what they say, and how they go on."""

import itertools
import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from measured import TARGET, as_json, fake_device

import hwbench
from hwbench.api import campaigns
from hwbench.api.prediction import table_predictor
from hwbench.api.profile import DeviceProfile
from hwbench.errors import DeviceLost, InvalidValue, NotMeasured
from hwbench.latency import LatencyTable, Role, table_path, variant_rows
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision
from hwbench.studies.profiling_walk import ProfilingWalk
from hwbench.testing.fakes import NotedAhead
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import space_table, work
from hwbench.workspace import Workspace

INT8 = Precision.INT8
REQUEST = {"space": "x3d-mini", "precision": "int8", "classes": 8, "aa": False}
TYPED = ("--space", "x3d-mini", "--precision", "int8", "--classes", "8", "--no-aa")


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch):
    return fake_device(monkeypatch, workspace.root / "files")


def test_a_large_space_is_profiled_until_it_is_known_well_enough(workspace, fake):
    request, ears = hwbench.ProfileRequest(**REQUEST), Keeper()
    fake.interrupt_after = 100
    with pytest.raises(KeyboardInterrupt):
        hwbench.profile(request, workspace=workspace)
    profile = hwbench.profile(request, ears, workspace=workspace).devices[0]
    (found,) = profile.accuracies
    assert (found.stopped, found.rows_of_space) == ("accuracy", 516)
    assert 90 < found.rows < 300
    assert found.error <= found.accuracy <= 0.02
    values = profile.to_json()
    assert (values["accuracy"], values["stopped"], values["rows"]) == (found.accuracy, "accuracy", found.rows)
    assert values["precisions"] == [vars(found)]
    assert DeviceProfile.parse(values, workspace.root) == replace(profile, aa=None)
    table = LatencyTable.read(table_path(workspace.root, TARGET, INT8))
    assert table.adaptive
    assert len(table.rows(Role.BLOCK)) == found.rows
    assert len(table.rows(Role.NETWORK)) == found.networks
    assert any(
        "goal 2.0% reached, the others are filled in; --all-rows measures all 516" in line for line in ears.lines
    )
    # Interrupted or not, the rows are those of the walk, each measured once.
    space = load_space(workspace, "x3d-mini")
    first = ProfilingWalk(space, INT8, 8).batch(LatencyTable(TARGET, INT8, ()))
    assert {row.workload for row in table} >= set(first)
    assert (max(fake.builds[one] for one in first), len(fake.visits)) == (2, 3 * len(table))
    # What was not measured is filled in without being asked for, and the claim holds for networks of the space.
    predictor, _ = table_predictor(workspace, TARGET, INT8, "x3d-mini", listener=ears)
    assert "rows of the space were not measured: " in ears.lines[-1]
    with pytest.raises(NotMeasured, match="calibration networks"):
        table_predictor(workspace, TARGET, INT8, "x3d-mini", filling=(False, None))
    rng = np.random.default_rng(77)
    networks = [space.network(space.random(rng), 8).workload(INT8) for _ in range(40)]
    errors = [abs(math.log(predictor.predict(network).seconds / work(network))) for network in networks]
    assert np.median(errors) <= found.accuracy


def profiled(workspace, **options):
    """What is said, and the rows of the table by now."""
    ears = Keeper()
    hwbench.profile(hwbench.ProfileRequest(**REQUEST | options), ears, workspace=workspace)
    return ears.lines, LatencyTable.read(table_path(workspace.root, TARGET, INT8))


def is_slower(row):
    return row.stats.median_s > 1.2 * work(row.workload)


def test_an_interrupted_remeasurement_goes_on_without_the_option(workspace, fake):
    _, before = profiled(workspace)
    fake.law = lambda workload: 1.5 * work(workload)
    fake.interrupt_after = len(fake.visits) + 60
    with pytest.raises(KeyboardInterrupt):
        profiled(workspace, remeasure=True)
    heard, after = profiled(workspace)
    left = f"{len(before)} rows that an earlier command left to be measured again: measured first"
    assert left in heard
    assert all(map(is_slower, after))
    visits = len(fake.visits)
    assert not any("measured first" in line for line in profiled(workspace)[0])
    assert len(fake.visits) == visits


def test_remeasurements_with_a_limit_take_other_rows_each_time(workspace, fake):
    _, before = profiled(workspace)
    fake.law = lambda workload: 1.5 * work(workload)
    limit, visits = len(before) // 2 + 1, len(fake.visits)
    heard, _ = profiled(workspace, remeasure=True, limit=limit)
    assert any(line.endswith("--limit reached, the same command without --remeasure goes on") for line in heard)
    assert any(line.endswith(f"; --limit leaves {len(before) - limit} to the next --remeasure") for line in heard)
    first = set(fake.visits[visits:])
    visits = len(fake.visits)
    profiled(workspace, remeasure=True, limit=limit)
    second = set(fake.visits[visits:])
    assert (len(first), len(second)) == (limit, limit)
    assert first | second == {row.workload for row in before}


ROUGH = {"accuracy": "10%", "variants": "segments"}


@pytest.fixture
def layouts(workspace, fake):
    """What a profile that has ended lacks of another layout."""
    _, table = profiled(workspace, **ROUGH | {"variants": ""})
    fake.visits.clear()
    return variant_rows([row.workload for row in table.rows(Role.BLOCK)], ["segments"])


def test_layouts_of_chosen_blocks_are_measured_after_the_profile_ended(workspace, fake, layouts):
    heard, _ = profiled(workspace, **ROUGH, limit=5)
    assert f"int8: {len(layouts)} rows of other layouts to measure" in heard
    assert heard[-1].endswith("--limit reached, the same command goes on")
    fake.interrupt_after = len(fake.visits) + 6
    with pytest.raises(KeyboardInterrupt):
        profiled(workspace, **ROUGH)
    heard, table = profiled(workspace, **ROUGH)
    assert "goal 10.0% reached" in heard[-1]
    assert {row.workload for row in table if row.workload.variant == "segments"} == set(layouts) == set(fake.visits)
    assert len(fake.visits) == 3 * len(layouts)


def test_rows_of_layouts_are_measured_again_where_layouts_are_asked_for(workspace, fake, layouts):
    crashed, killed = layouts[:2]
    fake.failures = {crashed: (Outcome.CRASH, "killed by SIGSEGV")}
    fake.build_failures, fake.build_outcome = {killed: "killed by SIGKILL (out of memory?)"}, Outcome.LOST
    _, before = profiled(workspace, **ROUGH)
    failed = {row.workload: row.outcome for row in before if row.stats is None}
    assert failed == {crashed: Outcome.CRASH, killed: Outcome.LOST}
    assert fake.builds[killed] == 1
    fake.failures, fake.build_failures, rows = {}, {}, {row.workload for row in before}
    for options, again in (({}, {killed}), ({"retry": True}, {crashed}), ({"remeasure": True}, rows)):
        fake.visits.clear()
        _, after = profiled(workspace, **ROUGH, **options)
        assert set(fake.visits) == again
    assert all(row.stats for row in after)


@pytest.mark.parametrize("space", ["x3d-mini", "x3d-tiny"])
@pytest.mark.parametrize("stopped", [KeyboardInterrupt, DeviceLost])
def test_a_table_of_other_conditions_stays_until_a_row_is_measured(workspace, fake, stopped, space):
    path = table_path(workspace.root, TARGET, INT8)
    before = space_table(load_space(workspace, "x3d-tiny"), INT8, target=TARGET, conditions="another kernel")
    before.write(path)

    def stop(*args, **options):
        raise stopped("nothing was measured")

    measure, fake.measure, text = fake.measure, stop, path.read_text()
    with pytest.raises(stopped):
        profiled(workspace, space=space)
    assert path.read_text() == text
    fake.measure = measure
    heard, after = profiled(workspace, space=space, limit=5)
    assert {row.workload for row in after if row.stats is not None} == set(fake.visits)
    (told,) = [line for line in heard if "left out" in line] or [""]
    left_out = {row.workload for row in before} - {row.workload for row in after}
    assert f"{len(left_out)} rows of an earlier version or of other conditions are left out" in told or not left_out


def test_all_rows_and_what_is_no_accuracy(workspace, fake, monkeypatch):
    values = as_json(monkeypatch, workspace, "profile", *TYPED, "--all-rows", "--limit", "30", "--calibrate", "1")
    assert (values["ok"], values["stopped"], values["rows_of_space"], values["accuracy"]) == (30, "limit", 516, None)
    assert not LatencyTable.read(table_path(workspace.root, TARGET, INT8)).adaptive
    with pytest.raises(InvalidValue, match=r"--accuracy: expected a share such as 2% or 0.02, got '2'"):
        hwbench.ProfileRequest(accuracy="2")


def test_small_spaces_are_measured_whole(workspace, fake):
    profile = hwbench.profile(hwbench.ProfileRequest(precision="int8", classes=8, aa=False), workspace=workspace)
    (found,) = profile.devices[0].accuracies
    assert (found.stopped, found.rows, found.rows_of_space) == ("rows", 27, 27)
    assert found.networks == 4
    assert found.error <= found.accuracy
    assert not LatencyTable.read(table_path(workspace.root, TARGET, INT8)).adaptive


@pytest.fixture
def ahead(fake, monkeypatch):
    """The campaign of a device that this machine builds for while it measures."""
    one, place = NotedAhead(), campaigns.place_campaign

    @contextmanager
    def with_ahead(*args, **options):
        with place(*args, **options) as campaign:
            yield replace(campaign, ahead=one)

    monkeypatch.setattr(campaigns, "place_campaign", with_ahead)
    return one


def test_what_follows_is_the_batch_of_the_other_precision_then_a_guess(workspace, fake, ahead):
    request = hwbench.ProfileRequest(**REQUEST | {"precision": "fp32,int8", "accuracy": "0.1%"}, limit=300)
    hwbench.profile(request, workspace=workspace)
    measured = list(dict.fromkeys(fake.visits))
    batches = [set(group) for _, group in itertools.groupby(measured, key=lambda one: one.precision)]
    assert len(batches) == 3
    fp32_first, int8_first, fp32_second = batches
    # A first batch is measured in two portions. While one precision is measured, the next batch of the other is sure.
    asked = [set(one) for one in ahead.asked]
    assert asked[1::2] == [int8_first, fp32_second]
    assert (asked[0] & fp32_first, asked[0] - fp32_first) == (fp32_first - set(measured[:96]), int8_first)
    assert asked[-1] == set()  # the limit is reached


@pytest.fixture
def killed(workspace, fake):
    """A block of the first batch, whose build is killed each time."""
    first = ProfilingWalk(load_space(workspace, "x3d-mini"), INT8, 8).batch(LatencyTable(TARGET, INT8, ()))
    block = next(one for one in first if Role.of(one) is Role.BLOCK)
    fake.build_failures, fake.build_outcome = {block: "killed by SIGKILL (out of memory?)"}, Outcome.LOST
    return block


def test_a_build_that_was_killed_ends_no_profile_and_is_tried_again(workspace, fake, killed):
    _, table = profiled(workspace, accuracy="0.01%", limit=150)
    assert [row.workload for row in table if row.outcome is Outcome.LOST] == [killed]
    assert len(table) > 100  # the next batch as well
    assert fake.builds[killed] <= 2  # also built ahead
    fake.build_failures = {}
    _, table = profiled(workspace, accuracy="0.01%", limit=1)
    assert next(row.outcome for row in table if row.workload == killed) is Outcome.OK


@pytest.mark.long
def test_a_profile_that_measures_all_rows_says_which_were_lost(workspace, fake, killed):
    heard, _ = profiled(workspace, accuracy="0.01%")
    assert any(
        line.endswith("rows are measured but 1 that was lost, which the same command tries again") for line in heard
    )


@pytest.mark.long
def test_a_build_that_was_killed_again_on_retry_is_not_built_ahead(workspace, fake, killed, ahead):
    two = {"precision": "fp32,int8", "accuracy": "0.1%"}
    profiled(workspace, **two, limit=300)
    ahead.asked.clear()
    builds = fake.builds[killed]
    profiled(workspace, **two, limit=150, retry=True)
    assert fake.builds[killed] == builds + 1
    assert ahead.asked
    assert not any(killed in asked for asked in ahead.asked)


def test_a_build_that_was_killed_is_no_limit_reached(workspace, fake, killed):
    ears, request = Keeper(), hwbench.ProfileRequest(**REQUEST, all_rows=True, limit=1000)
    (found,) = hwbench.profile(request, ears, workspace=workspace).devices[0].accuracies
    assert (found.stopped, found.rows) == ("rows", 515)
    assert not any("--limit reached" in line for line in ears.lines)
    rest = replace(request, limit=1, remeasure=True)
    (found,) = hwbench.profile(rest, ears, workspace=workspace).devices[0].accuracies
    assert found.stopped == "limit"
