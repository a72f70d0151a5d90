"""Filled rows of the best networks are measured before a search confirms them, on a device whose law is known."""

import hashlib
import json
import math
from dataclasses import replace

import pytest
from measured import CONDITIONS, TARGET, fake_device

import hwbench
from hwbench.errors import InvalidValue
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.measure.store_types import fingerprint
from hwbench.reports.study import gather
from hwbench.spaces import load_space
from hwbench.specs import Architecture, Outcome, Precision
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import CLASSES, space_table, work
from hwbench.workspace import Workspace

INT8 = Precision.INT8
SEARCH = {"space": "x3d-mini", "budget": "6.5ms", "trials": 16, "seed": 1}


def steps(workload):
    """Seconds of a network are those of its blocks, each of which is up to a fifth off a law of work."""
    parts = list(workload.parts())
    if len(parts) > 1:
        return sum(map(steps, parts))
    digest = hashlib.sha256(workload.key.encode()).digest()
    return work(workload) * math.exp(0.4 * (digest[0] / 255 - 0.5))


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch):
    """The device; its table has a fifth of the blocks of the space, as if they had been chosen."""
    device = fake_device(monkeypatch, workspace.root / "files")
    device.law = steps
    whole = space_table(load_space(workspace, "x3d-mini"), INT8, steps, conditions=fingerprint(CONDITIONS))
    rows = [row for row in whole if row.role is not Role.BLOCK or kept(row.workload)]
    LatencyTable(TARGET, INT8, rows, adaptive=True).write(table_path(workspace.root, TARGET, INT8))
    return device


def kept(block):
    return block.blocks[-1].role.gives_logits or hashlib.sha256(f"kept {block.key}".encode()).digest()[0] % 5 == 0


def ask(workspace, listener=None, **changes):
    request = hwbench.SearchRequest(
        **{"space": "x3d-mini", "budget": "1.4ms", "evaluator": "entropy", "trials": 12, "seed": 1} | changes
    )
    return hwbench.search(request, listener or Keeper(), workspace=workspace)


def read(workspace):
    return LatencyTable.read(table_path(workspace.root, TARGET, INT8))


def missing(workspace, architecture):
    """Rows that a network has and the table lacks."""
    network = load_space(workspace, "x3d-mini").network(Architecture.parse(architecture), CLASSES)
    table = read(workspace)
    return [part for part in network.workload(INT8).parts() if part not in table]


def off(candidate):
    """How far a measured network is from its prediction, in logarithms."""
    return abs(math.log(candidate.measured_s / candidate.predicted_s))


def test_rows_of_the_best_networks_are_measured_and_what_is_predicted_of_them_comes_true(workspace, fake):
    before = read(workspace)
    plain = ask(workspace, measure_rows=0)
    assert "measured_rows" not in plain.to_json()
    assert list(read(workspace)) == list(before)
    assert missing(workspace, plain.best.architecture)
    ears = Keeper()
    result = ask(workspace, ears, study="cut")
    cut, table = result.cut_rows, read(workspace)
    assert 0 < cut.rows <= 48
    assert (cut.failed, cut.missing, table.adaptive) == (0, 0, True)
    assert {row.workload for row in table} > {row.workload for row in before}
    assert len(table.rows(Role.BLOCK)) == len(before.rows(Role.BLOCK)) + cut.rows
    assert not missing(workspace, result.best.architecture)
    # The worst of three of both; those of the plain search were taken for what they were predicted to take.
    assert max(off(one) for one in result.measured[:3]) < 0.5 * max(off(one) for one in plain.measured[:3])
    assert result.best.measured_s <= 1.4e-3
    # A network that the measured rows put beyond the budget has another one in its place.
    assert result.trials == max(12 + cut.replaced, result.trials)
    assert len([one for one in result.history if one.predicted_s <= 1.4e-3]) >= 12
    keys = {"limit", "rows", "failed", "missing", "rounds", "seconds", "moved", "replaced", "networks"}
    values = result.to_json()["measured_rows"]
    assert set(values) == keys
    assert (values["rows"], values["limit"], len(values["networks"])) == (cut.rows, 48, len(cut.networks))
    stored = json.loads((workspace.studies / "cut" / "result.json").read_text())
    assert stored["measured_rows"] == values
    assert any(
        "rows that were not measured: " in line and "of 48 in all (--measure-rows)" in line for line in ears.lines
    )
    # Trials that are there are looked at again, and not told again.
    assert not [at for at in ears.stages if at.stage == "trials" and at.done == at.total and "from before" in at.note]
    # The report predicts as the search does, with rows that are filled in.
    report = gather(workspace, "cut")
    assert report.spread is not None
    assert report.winner.whole[INT8].predicted.seconds == pytest.approx(result.best.predicted_s, rel=0.02)
    # The same command goes on: nothing is measured anew, and nothing is scored anew.
    visits = len(fake.visits)
    again = ask(workspace, study="cut")
    assert (again.cut_rows.rows, again.cut_rows.rounds, again.cut_rows.moved) == (0, 0, None)
    assert (again.best, again.trials, again.history) == (result.best, result.trials, result.history)
    assert len(fake.visits) == visits


def test_a_study_goes_on_once_the_other_rows_of_its_table_are_measured(workspace, fake):
    begun = [ask(workspace, trials=4, measure_rows=0, study=name) for name in (None, "mine")]
    measure_all(workspace)
    again = [ask(workspace, trials=6, measure_rows=0, study=name) for name in (None, "mine")]
    assert [one.study for one in again] == [one.study for one in begun]
    for one, before in zip(again, begun, strict=True):
        assert [c.architecture for c in one.history[:4]] == [c.architecture for c in before.history]
        assert (one.trials, one.settings.missing_rows) == (6, "interpolated")


def test_a_study_of_a_whole_table_whose_first_rows_were_chosen_goes_on(workspace, fake):
    measure_all(workspace)
    whole = {"trials": 4, "measure_rows": 0, "interpolate": False}
    begun = [ask(workspace, study=name, **whole) for name in (None, "mine")]
    again = [ask(workspace, trials=6, measure_rows=0, study=name) for name in (None, "mine")]
    assert [(one.study, one.trials) for one in again] == [(one.study, 6) for one in begun]
    assert {one.settings.missing_rows for one in again} == {"left out"}


def test_a_study_of_a_table_with_all_rows_goes_on_whatever_is_said_of_missing_ones(workspace, fake):
    measure_all(workspace, adaptive=False)
    for before, after in ((True, None), (False, True), (True, False)):
        name = f"from_{before}_to_{after}"
        begun = ask(workspace, trials=4, measure_rows=0, study=name, interpolate=before)
        again = ask(workspace, trials=6, measure_rows=0, study=name, interpolate=after)
        assert (again.trials, again.settings.missing_rows) == (6, begun.settings.missing_rows)
    unnamed = [ask(workspace, trials=4, measure_rows=0, interpolate=said).study for said in (True, None)]
    assert unnamed[0] == unnamed[1]
    table = read(workspace)
    used = {part for row in table.rows(Role.NETWORK) for part in row.workload.parts()}
    unused = next(row for row in table.rows(Role.BLOCK) if row.workload not in used)
    rows = [row for row in table if row != unused]
    LatencyTable(TARGET, INT8, rows).write(table_path(workspace.root, TARGET, INT8))
    with pytest.raises(InvalidValue, match="missing_rows"):
        ask(workspace, trials=6, measure_rows=0, study="from_True_to_None")


def measure_all(workspace, adaptive=True):
    """What ``profile`` does after a search: the table of chosen rows has all of them."""
    rows = space_table(load_space(workspace, "x3d-mini"), INT8, steps, conditions=fingerprint(CONDITIONS))
    LatencyTable(TARGET, INT8, list(rows), adaptive=adaptive).write(table_path(workspace.root, TARGET, INT8))


def test_rows_that_fail_and_those_beyond_the_limit_stay_filled_in(workspace, fake):
    broken = {row for row in space_blocks(workspace) if not kept(row)}
    fake.failures = dict.fromkeys(broken, (Outcome.TIMEOUT, "too slow"))
    ears = Keeper()
    result = ask(workspace, ears, measure_rows=2)
    cut = result.cut_rows
    assert (cut.rows, cut.failed, cut.limit) == (2, 2, 2)
    assert cut.missing > 0
    assert any(f"{cut.missing} rows of the best networks are still filled in; --measure-rows" in s for s in ears.lines)
    assert any("2 rows measured in " in line and ", 2 failed" in line for line in ears.lines)


def test_the_same_command_goes_on_where_rounds_of_measuring_ended(workspace, fake, monkeypatch):
    monkeypatch.setattr("hwbench.studies.row_cuts.ROUNDS", 1)
    ears, blocks = Keeper(), len(read(workspace).rows(Role.BLOCK))
    cut = ask(workspace, ears, budget="1.7ms", study="cut").cut_rows
    assert cut.rounds == 1
    assert cut.missing > 0
    assert cut.rows < cut.limit
    words = f"{cut.missing} rows of the best networks are still filled in after 1 round of measuring; the same command"
    assert sum(line == f"{words} goes on" for line in ears.lines) == 1
    again = ask(workspace, budget="1.7ms", study="cut").cut_rows
    assert again.rows > 0
    assert len(read(workspace).rows(Role.BLOCK)) == blocks + cut.rows + again.rows


def test_a_table_of_other_conditions_has_no_row_added(workspace, fake):
    path = table_path(workspace.root, TARGET, INT8)
    path.write_text(path.read_text().replace(fingerprint(CONDITIONS), "decaf"))
    before, ears = path.read_bytes(), Keeper()
    result = ask(workspace, ears)
    assert (result.cut_rows.rows, path.read_bytes()) == (0, before)
    assert any("was taken under other conditions, so that no row is added" in line for line in ears.lines)


def test_rows_for_a_table_of_a_device_that_is_held_now_name_the_line_of_its_file(workspace, fake):
    ask(workspace, measure_rows=2)
    fake.conditions, ears = CONDITIONS | {"conditions": "controlled"}, Keeper()
    ask(workspace, ears)
    (told,) = [line for line in ears.lines if "so that no row is added" in line]
    assert told.endswith(
        'added (conditions stock, then controlled); write conditions = "stock" in profiles/local/device.toml'
    )


def test_predictions_by_a_table_of_another_machine_are_told_once(workspace, fake):
    words, here = "was measured under other conditions", Keeper()
    ask(workspace, here, measure_rows=0)
    assert not [line for line in here.lines if words in line]
    path = table_path(workspace.root, TARGET, INT8)
    path.write_text(path.read_text().replace(fingerprint(CONDITIONS), "decaf"))
    there = Keeper()
    ask(workspace, there, measure_rows=0, study="there")
    (told,) = [line for line in there.lines if words in line]
    assert told.startswith(f"the table of {TARGET} in int8 {words} (decaf, now {fingerprint(CONDITIONS)}), of which")
    assert "measure a table of your own: hwbench profile --device local" in told


@pytest.mark.long
def test_a_table_with_rows_of_an_earlier_version_has_no_row_added(workspace, fake):
    first = ask(workspace, measure_rows=2)
    assert first.cut_rows.rows == 2
    fake.version = "updated"
    path = table_path(workspace.root, TARGET, INT8)
    before, ears = path.read_bytes(), Keeper()
    result = ask(workspace, ears)
    assert (result.cut_rows.rows, path.read_bytes()) == (0, before)
    (told,) = [line for line in ears.lines if "rows of an earlier version of hwbench" in line]
    assert "has 2 rows of" in told
    assert "taken over by hwbench profile --device local --space x3d-mini --precision int8" in told


def test_a_table_that_takes_no_row_does_not_hold_up_those_of_other_devices(workspace, fake):
    box = replace(TARGET, device="box")
    (workspace.root / "profiles" / "box").mkdir(parents=True)
    (workspace.root / "profiles" / "box" / "device.toml").write_text(
        'schema = 1\nname = "box"\ntransport = "local"\nthreads = 1\n'
    )
    rows = [replace(row, conditions="decaf" if row.stats else row.conditions) for row in read(workspace)]
    LatencyTable(box, INT8, rows, adaptive=True).write(table_path(workspace.root, box, INT8))
    before, ears = len(read(workspace)), Keeper()
    result = ask(workspace, ears, device="local,box", budget="1.4ms,1.4ms")
    assert 0 < result.cut_rows.rows == len(read(workspace)) - before
    assert sum("taken under other conditions" in line for line in ears.lines) == 1


def test_rows_are_added_to_a_table_that_came_with_hwbench(workspace, fake, tmp_path, monkeypatch):
    box, came = replace(TARGET, device="box"), tmp_path / "came"
    for root in (came, workspace.root):
        (root / "profiles" / "box").mkdir(parents=True)
    (workspace.root / "profiles" / "box" / "device.toml").write_text(
        'schema = 1\nname = "box"\ntransport = "local"\nthreads = 1\n'
    )
    path = table_path(came, box, INT8)
    LatencyTable(box, INT8, list(read(workspace)), adaptive=True).write(path)
    monkeypatch.setattr("hwbench.latency.table.shipped", lambda: came)
    before = path.read_bytes()
    result = ask(workspace, device="box")
    own = LatencyTable.read(table_path(workspace.root, box, INT8))
    assert 0 < result.cut_rows.rows == len(own) - len(LatencyTable.read(path))
    assert own.adaptive
    assert path.read_bytes() == before


def test_measure_rows_is_a_number_of_rows():
    with pytest.raises(InvalidValue, match="measure-rows"):
        hwbench.SearchRequest(budget="1ms", measure_rows=-1)


def space_blocks(workspace):
    return load_space(workspace, "x3d-mini").parts(INT8, num_classes=CLASSES)
