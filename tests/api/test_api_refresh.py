"""``hwbench profile --refresh`` and rows of several occasions, on a device whose speed is known."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest
from measured import CONDITIONS, TARGET, fake_device
from refreshing import (
    INT8,
    a_day_passes,
    expect_on_the_day_of_the_table,
    profile,
    slower,
    table,
    the_clock_was_ahead,
    the_host_was_started_anew,
    two_spaces,
)

import hwbench
from hwbench.api.profile import DeviceProfile
from hwbench.cli.main import main
from hwbench.devices import Conditions
from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency import AdditivePredictor, Role, table_path
from hwbench.latency.anchors import anchor_rows
from hwbench.measure.store_types import RowPurpose
from hwbench.spaces import load_space
from hwbench.specs import Architecture, Outcome
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import space_table, work


@pytest.fixture
def workspace(tmp_path):
    return two_spaces(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch, tmp_path):
    return fake_device(monkeypatch, tmp_path / "files")


def network(workspace, seed=0):
    import numpy as np

    space = load_space(workspace, "micro")
    return space.network(space.random(np.random.default_rng(seed)), 8).workload(INT8)


def test_a_refresh_holds_the_conditions_that_it_is_told(workspace, fake):
    profile(workspace)
    profile(workspace, refresh=True, conditions="controlled")
    assert [place.conditions for place in fake.places] == [Conditions.STOCK, Conditions.CONTROLLED]


def test_a_refresh_measures_the_anchors_alone_and_moves_the_scale(workspace, fake):
    profile(workspace)
    before, visits = table(workspace), len(fake.visits)
    assert (before.scale.factor, before.scale.occasions) == (1.0, 1)
    a_day_passes(workspace)
    slower(fake, 1.06)
    ears = Keeper()
    result = profile(workspace, ears, refresh=True)
    after = table(workspace)
    anchors = set(fake.visits[visits:])
    assert anchors <= {row.workload for row in before.rows(Role.NETWORK)}
    assert result.devices[0].ok == len(anchors) == 4
    assert after.scale.factor == pytest.approx(1.06, rel=0.005)
    assert after.scale.low < 1.06 < after.scale.high < 1.09
    assert after.scale.occasions == 2
    assert after.scale.at > before.scale.at or after.scale.at[:10] >= before.scale.at[:10]
    # Rows stay as measured, the anchors on the scale of the others.
    for row in after:
        assert row.stats.median_s == pytest.approx(before[row.workload].median_s, rel=0.005)
    true = 1.06 * work(network(workspace))
    predicted = AdditivePredictor.fit(after).predict(network(workspace)).seconds
    assert predicted / AdditivePredictor.fit(before).predict(network(workspace)).seconds == pytest.approx(
        1.06, rel=5e-3
    )
    assert predicted == pytest.approx(true, rel=0.2)
    assert any("+6." in line and "beside the rows" in line for line in ears.lines)
    values = result.to_json()
    assert values["scales"][0]["scale"] == pytest.approx(after.scale.factor, abs=1e-4)
    assert values["scales"][0]["scale_before"] == 1.0
    assert DeviceProfile.parse(values, workspace.root).scales_before == {"int8": 1.0}


@pytest.mark.parametrize("factor", [12.0, 0.05])
def test_a_day_on_which_the_device_is_many_times_slower_or_faster_leaves_a_table_that_reads(workspace, fake, factor):
    profile(workspace)
    a_day_passes(workspace)
    slower(fake, factor)
    ears = Keeper()
    profile(workspace, ears, refresh=True)
    assert table(workspace).scale.factor == pytest.approx(factor, rel=0.005)
    assert not any("moved apart" in line for line in ears.lines)
    profile(workspace, remeasure=True, all_rows=True)
    assert table(workspace).scale.factor == 1.0
    for row in table(workspace):
        assert row.stats.median_s == pytest.approx(factor * work(row.workload), rel=0.01)


def test_a_refresh_prints_what_it_did_and_nothing_without_a_value(workspace, fake, monkeypatch, capsys):
    monkeypatch.chdir(workspace.root)
    command = ["profile", "--space", "micro", "--precision", "int8", "--classes", "8"]
    printed = []
    for further in (["--all-rows", "--no-aa"], ["--refresh"]):
        with pytest.raises(SystemExit) as end:
            main([*command, *further])
        assert not end.value.code
        lines = capsys.readouterr().out.splitlines()
        printed.append(dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines))
        a_day_passes(workspace)
        slower(fake, 1.06)
    measured, refreshed = printed
    assert {"device", "target", "ok", "failed", "skipped", "table", "seconds"} <= set(measured)
    assert list(refreshed) == ["device", "target", "anchors", "scale, int8", "table, int8", "took"]
    assert refreshed["anchors"] == "4"
    assert re.fullmatch(r"1\.000 before, 1\.0[56]\d now \(95 %: 1\.0\d\d to 1\.0\d\d\)", refreshed["scale, int8"])
    assert "-" not in {*measured.values(), *refreshed.values()}


def test_rows_of_another_occasion_are_joined_on_the_scale_of_most_rows(workspace, fake):
    profile(workspace)
    old = {row.workload for row in table(workspace)}
    a_day_passes(workspace)
    slower(fake, 1.08)
    visits = len(fake.visits)
    profile(workspace, space="wider")
    after = expect_on_the_day_of_the_table(workspace, fake, old, visits)
    assert after.scale.factor == pytest.approx(1.08, rel=0.005)


@pytest.mark.parametrize("first", [{"calibrate": 0}, {"limit": 10}], ids=lambda options: next(iter(options)))
def test_rows_of_a_day_without_whole_networks_are_tied_by_a_few_of_them(workspace, fake, first):
    profile(workspace, **first)
    old = table(workspace)
    assert not old.rows(Role.NETWORK)
    a_day_passes(workspace)
    slower(fake, 1.1)
    visits = len(fake.visits)
    profile(workspace)
    assert len({*fake.visits[visits:]} & {row.workload for row in old}) == 4
    a_day_passes(workspace)
    slower(fake, 1.3)
    visits = len(fake.visits)
    profile(workspace, refresh=True)
    assert {*fake.visits[visits:]} == {row.workload for row in anchor_rows(table(workspace))}
    after = table(workspace)
    assert after.scale.high < 1.02 * after.scale.low
    for row in after:
        assert after.scale.factor * row.stats.median_s == pytest.approx(1.3 * work(row.workload), rel=0.01)


def test_rows_of_a_day_that_nothing_ties_are_told_and_tied_by_a_refresh(workspace, fake):
    profile(workspace, calibrate=0)
    old = {row.workload: row.stats for row in table(workspace)}
    a_day_passes(workspace)
    slower(fake, 1.1)
    fake.failures = dict.fromkeys(old, (Outcome.CRASH, "out of memory"))
    ears = Keeper()
    profile(workspace, ears)
    before, fake.failures = table(workspace), {}
    count = len(before.rows(Role.NETWORK))
    (told,) = [line for line in ears.lines if "nothing tells how fast" in line]
    assert told == (
        f"{table_path(workspace.root, TARGET, INT8).name}: {count} rows were measured on an occasion of which nothing "
        "tells how fast the device was beside the other rows, so that they are as measured; a few rows measured again "
        f"tell it: {before.command()} --refresh"
    )
    assert before.scale is None
    assert old.items() <= {row.workload: row.stats for row in before}.items()
    a_day_passes(workspace)
    slower(fake, 1.3)
    ears = Keeper()
    profile(workspace, ears, refresh=True)
    assert not any("nothing tells" in line for line in ears.lines)
    after = table(workspace)
    for row in after:
        assert after.scale.factor * row.stats.median_s == pytest.approx(1.3 * work(row.workload), rel=0.01)


@pytest.mark.parametrize("networks", [2, 7])
def test_networks_of_a_validation_of_another_day_are_tied_before_they_calibrate(workspace, fake, networks):
    profile(workspace)
    known = {row.workload for row in table(workspace)}
    a_day_passes(workspace)
    slower(fake, 1.2)
    request = hwbench.ValidateRequest(space="micro", networks=networks, precision="int8")
    hwbench.validate(request, Keeper(), workspace=workspace)
    validated = {*fake.visits} - known
    a_day_passes(workspace)
    slower(fake, 1.0)
    profile(workspace, calibrate=60)
    after = table(workspace)
    assert validated & {row.workload for row in after}
    for row in after:
        assert row.stats.median_s == pytest.approx(work(row.workload), rel=0.01)


def test_rows_that_an_update_builds_anew_are_joined_by_the_anchors(workspace, fake):
    profile(workspace)
    before = table(workspace)
    changed = [row.workload for row in before.rows(Role.BLOCK)][:3]
    a_day_passes(workspace)
    slower(fake, 1.08)
    build, fake.version, visits = fake.build, "updated", len(fake.visits)
    fake.build = lambda workloads: (
        replace(made, sha256="ab" * 32) if made.workload in changed else made for made in build(workloads)
    )
    profile(workspace)
    assert set(fake.visits[visits:]) == {*changed, *(row.workload for row in anchor_rows(before))}
    for workload in changed:
        assert table(workspace)[workload].median_s == pytest.approx(work(workload), rel=0.01)


def test_files_that_an_update_builds_to_compare_them_are_counted(workspace, fake):
    profile(workspace)
    a_day_passes(workspace)
    fake.version, build, ears, counted = "updated", fake.build, Keeper(), []

    def built(workloads):
        for number, made in enumerate(build(workloads)):
            counted.append((number, [stage.done for stage in ears.stages if stage.stage == "build"][-1]))
            yield made

    fake.build = built
    profile(workspace, ears)
    assert len(counted) > 3
    assert all(number == told for number, told in counted), "each was told before the next one was built"
    assert ears.stages[0].note == "rows of another build"


def test_a_shift_that_is_not_common_is_told_with_the_rows_to_measure_anew(workspace, fake):
    profile(workspace)
    a_day_passes(workspace)
    networks = [row.workload for row in table(workspace).rows(Role.NETWORK)]
    fake.law = lambda w: work(w) * (1.25 if w in networks[::2] else 1.0)
    ears = Keeper()
    profile(workspace, ears, refresh=True)
    (line,) = [line for line in ears.lines if "moved apart" in line]
    assert "--remeasure" in line
    assert "x3d_" in line.split("measure anew at first:")[1]
    assert table(workspace).scale.high / table(workspace).scale.low > 1.1


def test_what_moved_apart_before_all_rows_were_measured_anew_is_told_no_more_and_makes_no_day_less_sure(
    workspace, fake
):
    profile(workspace)
    networks = [row.workload for row in table(workspace).rows(Role.NETWORK)]

    def told(**options):
        a_day_passes(workspace)
        ears = Keeper()
        profile(workspace, ears, **options)
        return [line for line in ears.lines if "moved apart" in line]

    fake.law = lambda w: work(w) * (1.25 if w in networks[::2] else 1.0)
    assert len(told(refresh=True)) == 1
    assert len(told(space="wider")) == 1
    assert told(remeasure=True, space="micro,wider") == told(space="micro,wider") == []
    for factor in (1.0, 1.06):
        fake.law = lambda w, factor=factor: factor * work(w) * (1.25 if w in networks[::2] else 1.0)
        assert told(refresh=True) == []
        scale = table(workspace).scale
        assert scale.low < factor < scale.high < 1.02 * scale.low
    assert scale.occasions == 6


def test_networks_of_validate_calibrate_no_table_until_a_profile_asks_for_them(workspace, fake):
    profile(workspace)
    before = {row.workload for row in table(workspace).rows(Role.NETWORK)}
    request = hwbench.ValidateRequest(space="micro", networks=3, precision="int8")
    result = hwbench.validate(request, Keeper(), workspace=workspace)
    from hwbench.measure.store import MeasurementStore

    with MeasurementStore(workspace.store) as store:
        purposes = {row.measurement.workload: row.purpose for row in store.rows(TARGET)}
    assert list(purposes.values()).count(RowPurpose.CONFIRMATION) == len(result.comparisons) == 3
    profile(workspace)
    assert {row.workload for row in table(workspace).rows(Role.NETWORK)} == before
    profile(workspace, calibrate=10)
    claimed = {row.workload for row in table(workspace).rows(Role.NETWORK)}
    assert claimed > before


def test_validate_tells_the_errors_before_and_after_a_refresh(workspace, fake):
    profile(workspace)
    slower(fake, 1.07)
    request = hwbench.ValidateRequest(space="micro", networks=4, precision="int8")
    result = hwbench.validate(request, Keeper(), workspace=workspace)
    values = result.to_json()
    assert values["scale_today"] == pytest.approx(1.07, rel=0.005)
    assert values["scale_today_low"] < 1.07 < values["scale_today_high"]
    assert values["median_error_refreshed"] < values["median_error"] - 0.03
    assert "--refresh" in result.change


def test_checks_go_by_the_scale_that_predictions_go_by(workspace, fake):
    profile(workspace)
    a_day_passes(workspace)
    slower(fake, 1.07)
    profile(workspace, refresh=True)
    checked = hwbench.VerifyRequest(model=table_path(workspace.root, TARGET, INT8))
    verified = hwbench.verify(checked, Keeper(), workspace=workspace)
    assert verified.holds, verified.verdict
    request = hwbench.ValidateRequest(space="micro", networks=4, precision="int8")
    result = hwbench.validate(request, Keeper(), workspace=workspace)
    assert result.change is None
    assert abs(result.since.shift) < 0.005
    assert result.to_json()["scale_today"] == pytest.approx(1.07, rel=0.005)
    slower(fake, 1.0)
    result = hwbench.validate(request, Keeper(), workspace=workspace)
    assert "the device is faster now" in result.change
    assert result.since.shift == pytest.approx(1 / 1.07 - 1, abs=0.005)
    assert result.to_json()["scale_today"] == pytest.approx(1.0, rel=0.005)
    assert not hwbench.verify(checked, Keeper(), workspace=workspace).holds


def test_what_is_to_be_measured_before_a_refresh_has_the_classes_that_were_asked_for(workspace, fake):
    with pytest.raises(NotMeasured, match=r"measure one: .* --space micro --precision int8 --classes 20$"):
        profile(workspace, refresh=True, classes=20)


def test_what_cannot_be_refreshed_is_refused_in_one_line(workspace, fake):
    with pytest.raises(NotMeasured, match=r"has none .*; measure one: hwbench profile --device local --space micro"):
        profile(workspace, refresh=True)
    profile(workspace, calibrate=0)
    with pytest.raises(NotMeasured, match="has no whole network to tell the scale by; measure some: hwbench profile"):
        profile(workspace, refresh=True)
    made = space_table(load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions="other")
    made.write(table_path(workspace.root, TARGET, INT8))
    with pytest.raises(NotMeasured, match=r"under other conditions \(other, now"):
        profile(workspace, refresh=True)
    with pytest.raises(InvalidValue, match="leave --remeasure out"):
        hwbench.ProfileRequest(refresh=True, remeasure=True)


HELD = CONDITIONS | {"conditions": "controlled", "held": "frequency=1.5 GHz"}


def test_a_refresh_of_controlled_rows_names_the_option_that_holds_the_device_again(workspace, fake):
    fake.conditions = HELD
    profile(workspace, conditions="controlled")
    fake.conditions = CONDITIONS
    with pytest.raises(NotMeasured) as caught:
        profile(workspace, refresh=True)
    assert str(caught.value).endswith(
        "was measured under other conditions (conditions controlled, then stock; held frequency=1.5 GHz, then -): add "
        '--conditions controlled, or write conditions = "controlled" in profiles/local/device.toml'
    )
    fake.conditions = HELD | {"kernel": "6.2"}
    with pytest.raises(
        NotMeasured,
        match=r"\(kernel 6.1, then 6.2\): another build .*; measure it anew: hwbench .* --conditions controlled$",
    ):
        profile(workspace, refresh=True, conditions="controlled")


def test_a_table_of_another_machine_is_not_answered_by_an_option(workspace, fake):
    fake.conditions = HELD | {"kernel": "6.2"}
    profile(workspace, conditions="controlled")
    fake.conditions = CONDITIONS
    with pytest.raises(
        NotMeasured, match=r"conditions controlled, then stock; .*kernel 6.2, then 6.1\): another build"
    ):
        profile(workspace, refresh=True)
    keeper, request = Keeper(), hwbench.ValidateRequest(space="micro", networks=3, precision="int8")
    hwbench.validate(request, keeper, workspace=workspace)
    (told,) = [line for line in keeper.lines if "conditions" in line]
    assert ": measure a table of your own: hwbench profile --device local" in told
    assert "device.toml" not in told


def test_validate_tells_of_a_table_of_a_device_that_was_held(workspace, fake):
    fake.conditions = HELD
    profile(workspace, conditions="controlled")
    request = hwbench.ValidateRequest(space="micro", networks=3, precision="int8")
    alike, otherwise = Keeper(), Keeper()
    hwbench.validate(request, alike, workspace=workspace)
    assert not [line for line in alike.lines if "conditions" in line]
    fake.conditions = CONDITIONS
    hwbench.validate(request, otherwise, workspace=workspace)
    (told,) = [line for line in otherwise.lines if "conditions" in line]
    assert "was measured under other conditions (conditions controlled, then stock" in told
    assert told.endswith(': write conditions = "controlled" in profiles/local/device.toml')


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"limit": 3}, "--limit"),
        ({"all_rows": True}, "--all-rows"),
        ({"variants": "all"}, "--variants"),
        ({"calibrate": 0}, "--calibrate"),
        ({"accuracy": "5%"}, "--accuracy"),
        ({"retry": True}, "--retry"),
        ({"limit": 3, "retry": True}, "--limit and --retry"),
        ({"limit": 3, "retry": True, "calibrate": 0}, "--limit, --calibrate and --retry"),
        ({"aa": False}, "--no-aa"),
        ({"limit": 3, "aa": False}, "--limit and --no-aa"),
    ],
)
def test_a_refresh_takes_no_option_that_it_does_not_read(fields, named):
    hwbench.ProfileRequest(**fields)
    with pytest.raises(InvalidValue, match=f"--refresh measures a few whole networks alone; leave {named} out"):
        hwbench.ProfileRequest(refresh=True, **fields)


def score_and_budget(workspace, found):
    """The best measured network that tells no scale, and a budget that it is within by 4 % at full speed."""
    anchors = {row.workload for row in anchor_rows(table(workspace))}
    space = load_space(workspace, "micro")
    made = {c: space.network(Architecture.parse(c.architecture), 8).workload(INT8) for c in found.measured}
    one = max((c for c in made if made[c] not in anchors), key=lambda c: c.score)
    return one.score, f"{1e3 * work(made[one]) * 1.04:.5g}ms"


@pytest.mark.parametrize("passes", [a_day_passes, the_clock_was_ahead, the_host_was_started_anew])
def test_a_search_does_not_go_by_what_was_measured_on_a_day_of_another_speed(workspace, fake, passes):
    options = {"space": "micro", "precision": "int8", "trials": 30, "measure": 8, "evaluator": "entropy"}
    slower(fake, 1.1)
    profile(workspace)
    largest = max(row.stats.median_s for row in table(workspace).rows(Role.NETWORK))
    request = hwbench.SearchRequest(budget=f"{1.3e3 * largest:.4g}ms", study="before", **options)
    score, budget = score_and_budget(workspace, hwbench.search(request, Keeper(), workspace=workspace))
    passes(workspace)
    slower(fake, 1.0)
    profile(workspace, refresh=True)
    request, ears = hwbench.SearchRequest(budget=budget, study="after", **options), Keeper()
    found = hwbench.search(request, ears, workspace=workspace)
    assert found.best.score >= score
    space = load_space(workspace, "micro")
    for one in found.measured:
        true = work(space.network(Architecture.parse(one.architecture), 8).workload(INT8))
        assert one.measured_s == pytest.approx(true, rel=0.02)
    (told,) = [line for line in ears.lines if "measured anew" in line]
    assert re.fullmatch(
        r"(1 of these networks was|\d+ of these networks were) measured on another occasion than the table, when local "
        r"was faster or slower; (it is|they are) measured anew",
        told,
    )
    visits = len(fake.visits)
    again = hwbench.search(request, Keeper(), workspace=workspace)
    assert (again.best.architecture, len(fake.visits)) == (found.best.architecture, visits)


@pytest.mark.parametrize("first", ["fp32", "search"])
def test_rows_of_a_new_day_are_tied_whatever_was_measured_on_it_first(workspace, fake, first):
    profile(workspace)
    before = {row.workload for row in table(workspace)}
    a_day_passes(workspace)
    slower(fake, 1.08)
    if first == "fp32":
        profile(workspace, precision="fp32")
    else:
        largest = max(row.stats.median_s for row in table(workspace).rows(Role.NETWORK))
        hwbench.search(
            hwbench.SearchRequest(
                space="micro", precision="int8", budget=f"{1.3e3 * largest:.4g}ms", trials=6, evaluator="entropy"
            ),
            Keeper(),
            workspace=workspace,
        )
    profile(workspace, space="wider")
    after = table(workspace)
    fresh = [row for row in after if row.workload not in before and row.role is Role.BLOCK]
    assert fresh
    for row in fresh:
        assert row.stats.median_s == pytest.approx(work(row.workload), rel=0.02)
    assert after.scale.factor == pytest.approx(1.08, rel=0.01)


def test_what_is_measured_again_after_an_update_is_so_once(workspace, fake):
    profile(workspace)
    block = table(workspace).rows(Role.BLOCK)[0].workload.key
    with closing(sqlite3.connect(workspace.store)) as db, db:  # another file is built of it
        db.execute("UPDATE measurements SET artifact_sha256 = '' WHERE workload = ?", (block,))
    a_day_passes(workspace)
    fake.version, visits = "updated", len(fake.visits)
    profile(workspace, remeasure=True)
    assert set(Counter(fake.visits[visits:]).values()) == {3}


def test_refreshes_alone_widen_no_interval(workspace, fake):
    profile(workspace)
    for factor in (1.08, 1.0, 1.07, 0.97):
        a_day_passes(workspace)
        slower(fake, factor)
        profile(workspace, refresh=True)
    assert table(workspace).between_runs == pytest.approx(0.005)
