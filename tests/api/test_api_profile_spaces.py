"""Several spaces in one profile, on a device whose law is known."""

import json
from dataclasses import replace

import pytest
from measured import TARGET, as_json, fake_device

import hwbench
from hwbench.api.search_devices import SpaceListener
from hwbench.errors import InfeasibleBudget, InvalidValue, UnknownName
from hwbench.latency import LatencyTable, Role, rows_of_space, table_path
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision
from hwbench.studies.profiling_plan import first_workloads
from hwbench.studies.profiling_walk import ProfilingWalk
from hwbench.testing.listeners import Keeper
from hwbench.testing.small_spaces import SMALL_SPACES, add_small_spaces
from hwbench.workspace import Workspace

INT8 = Precision.INT8
NAMES = list(SMALL_SPACES)
BOTH = ",".join(NAMES)
REQUEST = {"space": BOTH, "precision": "int8", "classes": 8, "aa": False}


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace.create(tmp_path / "bench")
    add_small_spaces(workspace)
    return workspace


@pytest.fixture
def fake(workspace, monkeypatch):
    return fake_device(monkeypatch, workspace.root / "files")


def table_of(workspace):
    return LatencyTable.read(table_path(workspace.root, TARGET, INT8))


def test_one_table_has_the_rows_of_all_spaces_and_a_search_of_them_goes(workspace, fake, monkeypatch):
    ears = Keeper()
    profile = hwbench.profile(hwbench.ProfileRequest(**REQUEST), ears, workspace=workspace).devices[0]
    table, spaces = table_of(workspace), [load_space(workspace, name) for name in NAMES]
    for space, found in zip(spaces, profile.accuracies, strict=True):
        parts = set(space.parts(INT8, num_classes=8))
        assert found.space == space.name
        assert (found.rows, found.rows_of_space, found.stopped) == (len(parts), len(parts), "rows")
        assert all(part in table for part in parts)
        own = rows_of_space(table, parts)
        assert {row.workload for row in own.rows(Role.BLOCK)} == parts
        assert len(own.rows(Role.NETWORK)) == found.networks == 4
    assert (profile.ok, profile.failed) == (len(table), 0)
    assert max(fake.builds.values()) == 1
    again = as_json(
        monkeypatch, workspace, "profile", "--space", BOTH, "--precision", "int8", "--classes", "8", "--no-aa"
    )
    assert (again["ok"], again["skipped"]) == (0, len(table))
    assert [one["space"] for one in again["precisions"]] == NAMES
    assert json.dumps(again)


def test_a_limit_is_for_all_spaces_together(workspace, fake):
    ears = Keeper()
    profile = hwbench.profile(hwbench.ProfileRequest(**REQUEST, limit=5), ears, workspace=workspace).devices[0]
    assert profile.ok == 5
    rows = next(one for one in profile.accuracies if one.space == NAMES[1])
    left = f"int8: {rows.rows} of {rows.rows_of_space} rows; --limit 5 reached, the same command goes on"
    assert f"{NAMES[1]}: {left}" in ears.lines
    of_spaces = [(one.space, one.stopped, one.rows < one.rows_of_space) for one in profile.accuracies]
    assert of_spaces == [(name, "limit", True) for name in NAMES]
    whole = hwbench.profile(hwbench.ProfileRequest(**REQUEST), workspace=workspace).devices[0]
    assert whole.ok + 5 == len(table_of(workspace))


@pytest.mark.parametrize("limit", [5, 12])
def test_failures_of_earlier_commands_use_up_no_limit(workspace, fake, limit):
    parts = list(load_space(workspace, NAMES[0]).parts(INT8, num_classes=8))
    fake.failures = dict.fromkeys(parts[:8], (Outcome.CRASH, "killed by SIGSEGV"))
    first = hwbench.profile(hwbench.ProfileRequest(**REQUEST | {"space": NAMES[0]}), workspace=workspace).devices[0]
    profile = hwbench.profile(hwbench.ProfileRequest(**REQUEST, limit=limit), workspace=workspace).devices[0]
    assert (first.failed, profile.ok, profile.failed) == (8, limit, 8)


def test_failed_rows_are_not_left_out_by_a_limit(workspace, fake):
    failed = next(iter(load_space(workspace, NAMES[0]).parts(INT8, num_classes=8)))
    fake.failures, ears = {failed: (Outcome.CRASH, "killed by SIGSEGV")}, Keeper()
    profile = hwbench.profile(hwbench.ProfileRequest(**REQUEST, limit=5000), ears, workspace=workspace).devices[0]
    assert (profile.failed, [one.stopped for one in profile.accuracies]) == (1, ["rows", "rows"])
    request = hwbench.ProfileRequest(**REQUEST | {"space": NAMES[0]}, limit=1)
    assert hwbench.profile(request, ears, workspace=workspace).devices[0].accuracies[0].stopped == "rows"
    assert not any("--limit" in line for line in ears.lines)


def test_a_limit_that_holds_all_within_a_budget_ends_no_profile(workspace, fake):
    request = hwbench.ProfileRequest(**REQUEST | {"space": NAMES[0]}, budget="0.1ms", limit=5000)
    (found,) = hwbench.profile(request, workspace=workspace).devices[0].accuracies
    assert (found.stopped, found.rows < found.rows_of_space) == ("rows", True)


@pytest.mark.parametrize(("limit", "stopped"), [(3, ["limit", "limit"]), (4, ["rows", "limit"]), (8, ["rows", "rows"])])
def test_networks_alone_are_stopped_by_a_limit_that_leaves_some_out(workspace, fake, limit, stopped):
    request = hwbench.ProfileRequest(**REQUEST, calibrate=4, networks_only=True, limit=limit)
    profile = hwbench.profile(request, workspace=workspace).devices[0]
    assert (profile.ok, [one.stopped for one in profile.accuracies]) == (limit, stopped)
    again = hwbench.profile(replace(request, limit=8), workspace=workspace).devices[0]
    assert (again.ok, [one.stopped for one in again.accuracies]) == (8 - limit, ["rows", "rows"])


def test_a_space_that_lacks_nothing_is_not_stopped_by_the_limit_of_another(workspace, fake):
    ears = Keeper()
    request = hwbench.ProfileRequest(**REQUEST, calibrate=4, networks_only=True, limit=4)
    hwbench.profile(replace(request, space=NAMES[1]), workspace=workspace)
    profile = hwbench.profile(request, ears, workspace=workspace).devices[0]
    assert (profile.ok, [one.stopped for one in profile.accuracies]) == (4, ["rows", "rows"])
    assert any(line.startswith(f"{NAMES[1]}: int8: ") for line in ears.lines)
    assert not any("--limit 4 reached" in line for line in ears.lines)


def test_calibration_networks_that_a_limit_leaves_to_another_command_are_told(workspace, fake):
    hwbench.profile(hwbench.ProfileRequest(**REQUEST, calibrate=0), workspace=workspace)
    ears, request = Keeper(), hwbench.ProfileRequest(**REQUEST, calibrate=4, limit=4)
    profile = hwbench.profile(request, ears, workspace=workspace).devices[0]
    assert (profile.ok, [one.stopped for one in profile.accuracies]) == (4, ["rows", "limit"])
    rows = profile.accuracies[1].rows_of_space
    assert f"{NAMES[1]}: int8: {rows} of {rows} rows; --limit 4 reached, the same command goes on" in ears.lines


def test_rows_that_a_limit_leaves_to_the_next_remeasuring_are_told_of_the_last_space_too(workspace, fake):
    request, ears = hwbench.ProfileRequest(**REQUEST, calibrate=4, networks_only=True), Keeper()
    hwbench.profile(request, workspace=workspace)
    profile = hwbench.profile(replace(request, remeasure=True, limit=4), ears, workspace=workspace).devices[0]
    assert (profile.ok, [one.stopped for one in profile.accuracies]) == (4, ["rows", "limit"])
    (line,) = [line for line in ears.lines if line.startswith(f"{NAMES[1]}: int8: ")]
    assert line.endswith("; --limit 4 reached, 4 rows left to the next --remeasure")
    ears, more = Keeper(), replace(request, remeasure=True, limit=4, calibrate=5)
    hwbench.profile(replace(more, remeasure=False, space=NAMES[0], limit=None), workspace=workspace)
    hwbench.profile(more, ears, workspace=workspace)  # of the last space a network was never measured
    (line,) = [line for line in ears.lines if line.startswith(f"{NAMES[1]}: int8: ")]
    assert line.endswith("; --limit 4 reached, the same command without --remeasure goes on")


def test_rows_that_a_limit_leaves_to_the_next_remeasuring_are_told_of_a_space_whose_rows_are_chosen(workspace, fake):
    request = hwbench.ProfileRequest(**REQUEST | {"space": f"{NAMES[0]},x3d-mini"}, accuracy="10%")
    hwbench.profile(request, workspace=workspace)
    for spaces, stopped in ((request.space, ["limit", "limit"]), ("x3d-mini", ["limit"])):
        ears, again = Keeper(), replace(request, space=spaces, remeasure=True, limit=3)
        profile = hwbench.profile(again, ears, workspace=workspace).devices[0]
        assert (profile.ok, [one.stopped for one in profile.accuracies]) == (3, stopped)
        (line,) = [line for line in ears.lines if "left to the next --remeasure" in line]
        assert line.startswith("x3d-mini: int8: " if len(stopped) == 2 else "int8: ")


def test_failed_rows_that_a_limit_leaves_to_the_next_retry_are_told_of_a_space_whose_rows_are_chosen(workspace, fake):
    first = hwbench.ProfileRequest(**REQUEST | {"space": "x3d-mini"}, accuracy="10%")
    batch = ProfilingWalk(load_space(workspace, "x3d-mini"), INT8, 8).batch(LatencyTable(TARGET, INT8, []))
    blocks = [workload for workload in batch if Role.of(workload) is Role.BLOCK]
    fake.failures = dict.fromkeys(blocks[:3], (Outcome.CRASH, "killed by SIGSEGV"))
    assert hwbench.profile(first, workspace=workspace).devices[0].failed == 3
    fake.failures = {}
    ears = Keeper()
    profile = hwbench.profile(replace(first, retry=True, limit=1), ears, workspace=workspace).devices[0]
    assert (profile.ok, [one.stopped for one in profile.accuracies]) == (1, ["limit"])
    assert any(line.endswith("--limit reached, the same command goes on") for line in ears.lines)


def test_a_space_whose_table_is_as_good_as_asked_is_not_stopped_by_the_limit_of_another(workspace, fake):
    """The rows of x3d-mini are chosen: its others are filled in, and not missing."""
    chosen = hwbench.ProfileRequest(**REQUEST | {"space": "x3d-mini"}, accuracy="10%")
    (alone,) = hwbench.profile(chosen, workspace=workspace).devices[0].accuracies
    request = replace(chosen, space=f"{NAMES[0]},x3d-mini")
    profile = hwbench.profile(replace(request, limit=3), workspace=workspace).devices[0]
    assert (profile.ok, [one.stopped for one in profile.accuracies]) == (3, ["limit", "accuracy"])
    assert profile.accuracies[1] == alone


def test_within_a_budget_a_limit_that_is_used_up_exactly_leaves_what_may_be_within_it(workspace, fake):
    space, request = load_space(workspace, NAMES[0]), REQUEST | {"space": NAMES[0], "budget": "0.1ms"}
    first, more = (first_workloads(space, INT8, 8, count) for count in (4, 6))
    ears = Keeper()
    asked = hwbench.ProfileRequest(**request, calibrate=4, limit=len(first))
    (found,) = hwbench.profile(asked, ears, workspace=workspace).devices[0].accuracies
    assert found.stopped == "limit"
    assert "--limit reached, the same command goes on" in ears.lines
    hwbench.profile(replace(asked, limit=None), workspace=workspace)
    measured = {row.workload for row in table_of(workspace)}
    asked = hwbench.ProfileRequest(**request, calibrate=6, limit=len({*more} - measured))
    profile = hwbench.profile(asked, workspace=workspace).devices[0]
    (found,) = profile.accuracies
    assert (profile.ok, found.stopped, found.rows < found.rows_of_space) == (asked.limit, "rows", True)


def test_a_limit_of_several_spaces_names_what_is_left_of_each(workspace, fake):
    """The rows of x3d-mini are chosen; those of the first space use up a part of the limit."""
    ears = Keeper()
    request = REQUEST | {"space": f"{NAMES[0]},x3d-mini,{NAMES[1]}", "precision": "int8,fp32"}
    profile = hwbench.profile(hwbench.ProfileRequest(**request, limit=40), ears, workspace=workspace).devices[0]
    assert profile.ok == 40
    of_spaces = {(one.space, one.precision): one for one in profile.accuracies}
    for name in ("x3d-mini", NAMES[1]):
        for precision in ("int8", "fp32"):
            rows = of_spaces[name, precision]
            left = f"{name}: {precision}: {rows.rows} of {rows.rows_of_space} rows; "
            (line,) = [one for one in ears.lines if one.startswith(left) and "reached" in one]
            assert line.endswith("reached, the same command goes on")
            assert "--limit 40" in line or "--limit reached" in line


def test_a_space_beyond_the_budget_is_named_and_the_others_are_profiled(workspace, fake):
    """R(2+1)D needs 0.16 ms at least."""
    ears = Keeper()
    hwbench.profile(hwbench.ProfileRequest(**REQUEST, budget="0.1ms"), ears, workspace=workspace)
    assert any(line.startswith(f"{NAMES[1]}: budget 100 µs: no network") for line in ears.lines)
    assert len(table_of(workspace)) > 10
    with pytest.raises(InfeasibleBudget, match="smallest reachable"):
        hwbench.profile(hwbench.ProfileRequest(**REQUEST, budget="1us"), workspace=workspace)


def test_of_a_space_that_has_all_within_the_budget_a_limit_leaves_nothing(workspace, fake):
    request = hwbench.ProfileRequest(**REQUEST | {"space": NAMES[0]}, budget="0.1ms")
    (alone,) = hwbench.profile(request, workspace=workspace).devices[0].accuracies
    ears, both = Keeper(), replace(request, space=f"{NAMES[1]},{NAMES[0]}", limit=3)
    profile = hwbench.profile(both, ears, workspace=workspace).devices[0]
    of_spaces = [(one.space, one.stopped) for one in profile.accuracies]
    assert (profile.ok, of_spaces) == (3, [(NAMES[1], "limit"), (NAMES[0], "rows")])
    assert f"{NAMES[0]}: int8: {alone.rows} of {alone.rows_of_space} rows" in ears.lines
    assert alone.rows < alone.rows_of_space


def test_a_space_whose_rows_lie_beyond_the_budget_is_named_where_a_limit_is_used_up(workspace, fake):
    request, ears = hwbench.ProfileRequest(**REQUEST | {"space": NAMES[1]}, budget="0.1ms"), Keeper()
    with pytest.raises(InfeasibleBudget):
        hwbench.profile(request, workspace=workspace)
    profile = hwbench.profile(replace(request, space=BOTH, limit=3), ears, workspace=workspace).devices[0]
    assert [(one.space, one.stopped) for one in profile.accuracies] == [(NAMES[0], "limit")]
    assert any(line.startswith(f"{NAMES[1]}: budget 100 µs: no network") for line in ears.lines)


def test_failed_rows_are_told_where_all_spaces_lie_beyond_the_budget(workspace, fake):
    request = hwbench.ProfileRequest(**REQUEST, budget="1us")
    failed = next(iter(first_workloads(load_space(workspace, NAMES[0]), INT8, 8, 4)))
    with pytest.raises(InfeasibleBudget):
        hwbench.profile(request, workspace=workspace)
    fake.failures, ears = {failed: (Outcome.CRASH, "killed by SIGSEGV")}, Keeper()
    with pytest.raises(InfeasibleBudget):
        hwbench.profile(replace(request, remeasure=True), ears, workspace=workspace)
    assert "1 failed:" in ears.lines
    assert f"  {failed.key}: crash: killed by SIGSEGV" in ears.lines
    assert any("1 row got no latency when measured again" in line for line in ears.lines)


@pytest.mark.parametrize("further", [5, 0])
def test_rows_of_a_space_beyond_the_budget_count_towards_a_limit_and_are_told(workspace, fake, further):
    first = list(first_workloads(load_space(workspace, NAMES[1]), INT8, 8, 4))
    fake.failures = {first[0]: (Outcome.CRASH, "killed by SIGSEGV")}
    limit, beyond_first = len(first) + further, f"{NAMES[1]},{NAMES[0]}"
    request = hwbench.ProfileRequest(**REQUEST | {"space": beyond_first}, calibrate=4, budget="0.1ms", limit=limit)
    profile = hwbench.profile(request, workspace=workspace).devices[0]
    assert (profile.ok, profile.failed, len(table_of(workspace))) == (limit - 1, 1, limit)
    assert [(one.space, one.stopped) for one in profile.accuracies] == [(NAMES[0], "limit")]


def test_rows_of_a_chosen_space_beyond_the_budget_count_towards_a_limit(workspace, fake):
    space = load_space(workspace, "x3d-mini")
    first = first_workloads(space, INT8, 8, 8)
    request = hwbench.ProfileRequest(
        **REQUEST | {"space": f"x3d-mini,{NAMES[0]}"}, budget="0.06ms", limit=len(set(first)) + 3
    )
    profile = hwbench.profile(request, workspace=workspace).devices[0]
    assert (profile.ok, len(table_of(workspace))) == (request.limit, request.limit)
    assert [(one.space, one.stopped) for one in profile.accuracies] == [(NAMES[0], "limit")]


def test_a_wrong_list_is_one_clear_error(workspace, fake):
    with pytest.raises(UnknownName, match="did you mean 'small-x3d'"):
        hwbench.profile(hwbench.ProfileRequest(**REQUEST | {"space": "smal-x3d,x3d-tiny"}), workspace=workspace)
    with pytest.raises(InvalidValue, match="expected the name of a space"):
        hwbench.ProfileRequest(space=",")


def test_who_listens_to_several_spaces_hears_all_that_is_told():
    told = {name for name, value in vars(hwbench.Listener).items() if callable(value) and not name.startswith("_")}
    assert told <= vars(SpaceListener).keys()
