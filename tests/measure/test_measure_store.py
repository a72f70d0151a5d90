import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from real_rows import latencies

from hwbench.errors import InvalidFile, InvalidValue, WorkspaceError
from hwbench.measure.migrations import APPLICATION_ID, LATEST
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import fingerprint, timing_key
from hwbench.specs import Outcome, Session, Target, Timing, Workload

GOLDEN = Path(__file__).parents[1] / "golden" / "store"
TARGET = Target("local", "executorch", "1.5.1", 1)
TIMING = Timing()
CONDITIONS = {"device": "abc", "runner": "native"}
WORKLOAD = Workload.parse("x3d_i24_m54_o24_k3x3x3_se8_swish@1x24x4x28x28/fp32/auto")
OTHER = Workload.parse("x3d_i24_m54_o24_k1x3x3_swish@1x24x4x28x28/fp32/auto")
IDENTITY = (WORKLOAD, TARGET, TIMING, CONDITIONS)


def session(median_s=0.001, **values):
    return Session(samples_s=(median_s, median_s * 1.01, median_s * 0.99), cpu_s=0.003, wall_s=0.0031, **values)


def run_python(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=subprocess.PIPE)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "measurements.sqlite"


def add_finished(store, workload=WORKLOAD, conditions=CONDITIONS, sessions=3, median_s=0.001, **values):
    row = store.begin(workload, TARGET, TIMING, conditions, **values)
    for _ in range(sessions):
        store.add_session(row, session(median_s))
    store.finish(row)
    return row


def test_a_path_may_be_text(path):
    with MeasurementStore(str(path)) as store:
        add_finished(store)
        assert store.path == path
    with MeasurementStore(path) as store:
        assert store.measurement(*IDENTITY) is not None


def test_a_row_reads_back_as_it_was_added_also_after_reopening(path):
    added = [session(0.001234567, involuntary_switches=2, load_s=0.01, drift=1.02), session(0.0012)]
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY, artifact_sha256="f00")
        for one in added:
            store.add_session(row, one)
        assert store.measurement(*IDENTITY) is None
        store.finish(row)
    with MeasurementStore(path) as store:
        result = store.measurement(*IDENTITY)
        assert store.sessions(*IDENTITY) == result.sessions
    assert (result.workload, result.target, result.timing, result.outcome) == (WORKLOAD, TARGET, TIMING, Outcome.OK)
    assert result.artifact_sha256 == "f00"
    assert result.conditions == CONDITIONS
    for kept, given in zip(result.sessions, added, strict=True):
        assert kept.samples_s == pytest.approx(given.samples_s, abs=1e-9)
        assert (kept.involuntary_switches, kept.load_s, kept.drift) == (
            given.involuntary_switches, given.load_s, given.drift)  # fmt: skip


def test_rows_of_different_conditions_timings_or_builds_are_never_pooled(path):
    with MeasurementStore(path) as store:
        add_finished(store, median_s=0.001)
        assert store.missing([WORKLOAD], TARGET, TIMING, CONDITIONS) == []
        assert store.missing([WORKLOAD], TARGET, TIMING, {**CONDITIONS, "device": "hot"}) == [WORKLOAD]
        assert store.missing([WORKLOAD], TARGET, Timing(max_rounds=9), CONDITIONS) == [WORKLOAD]
        assert store.missing([WORKLOAD], Target("local", "executorch", "1.5.1", 2), TIMING, CONDITIONS) == [WORKLOAD]
        assert store.missing([WORKLOAD], TARGET, TIMING, CONDITIONS, build=lambda w: "new") == [WORKLOAD]
        add_finished(store, conditions={**CONDITIONS, "device": "hot"}, median_s=0.5)
        assert store.measurement(*IDENTITY).stats.median_s == pytest.approx(0.001)
        assert [m.stats.median_s for m in latencies(store, TARGET, CONDITIONS)] == [pytest.approx(0.001)]
        assert len(list(store.measurements(TARGET))) == 2


def test_sessions_come_in_the_order_taken_with_what_the_store_knows(path):
    hot = {**CONDITIONS, "device": "hot"}
    with MeasurementStore(path) as store:
        first, second = store.begin(*IDENTITY), store.begin(OTHER, TARGET, TIMING, hot)
        run = store.begin_run(TARGET, CONDITIONS, {})
        store.add_session(second, session(0.002), suspect="two modes", run=run)
        store.add_session(first, session(0.001, drift=1.02))
        store.fail(second, Outcome.NOISY, "too noisy")
        store.begin(OTHER, TARGET, TIMING, hot)
        store.add_session(second, session(0.003), run=run)
        taken = list(store.taken(TARGET))
        assert [(t.row, t.workload, t.suspect, t.run, t.current) for t in taken] == [
            (second, OTHER, "two modes", run, False),
            (first, WORKLOAD, "", None, True),
            (second, OTHER, "", run, True),
        ]
        assert [t.conditions for t in taken] == [fingerprint(hot), fingerprint(CONDITIONS), fingerprint(hot)]
        assert taken[1].session.drift == 1.02
        assert sorted(t.taken_at for t in taken) == [t.taken_at for t in taken]
        assert store.targets("local") == [TARGET]
        assert store.targets("s9") == []
        assert list(store.taken(Target("s9", "executorch", "1.5.1", 1))) == []


def test_fingerprint_ignores_the_order_of_names():
    assert fingerprint({"a": "1", "b": "2"}) == fingerprint({"b": "2", "a": "1"}) != fingerprint({"a": "1", "b": "3"})


def test_timing_key_tells_every_field_apart():
    assert timing_key(Timing()) != timing_key(Timing(warmup_s=0.06))


def test_rows_from_before_there_were_cache_states_are_those_of_warm_caches():
    before = (
        '{"ci_ratio":0.01,"max_rounds":8,"max_session_s":2.0,"min_rounds":5,"min_samples":10,"min_session_s":0.1,'
        '"sentinel_every":10,"timeout_s":60.0,"warmup_s":0.05}'
    )
    assert timing_key(Timing()) == timing_key(Timing(cache="warm")) == before
    assert len({timing_key(Timing(cache=state)) for state in ("warm", "rotate", "flush")}) == 3
    with pytest.raises(InvalidValue, match="rotate"):
        Timing(cache="cold")


def test_a_row_of_another_cache_state_is_another_row(path):
    timing = Timing(cache="flush")
    with MeasurementStore(path) as store:
        add_finished(store)
        assert store.missing([WORKLOAD], TARGET, timing, CONDITIONS) == [WORKLOAD]
        row = store.begin(WORKLOAD, TARGET, timing, CONDITIONS)
        store.add_session(row, session())
        store.finish(row)
        assert store.measurement(WORKLOAD, TARGET, timing, CONDITIONS).timing == timing


def test_a_better_drift_is_noted_and_the_samples_stay(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        store.add_session(row, session(0.001))
        number = store.add_session(row, session(0.002))
        store.correct_session(number, 1.25, suspect="the sentinel moved")
        (_, first), (second, why) = store.row_sessions(row)
        assert (first, second.drift, why) == ("", 1.25, "the sentinel moved")
        assert second.samples_s[0] == 0.002


def test_rows_of_a_kind_whose_package_is_gone_are_read(path):
    gone = "tsm_i8_o8_k1x3x3_fold8_relu@1x8x4x16x16/int8/auto"
    with MeasurementStore(path) as store:
        row = add_finished(store)
        add_finished(store, OTHER)
        with store.database.transaction() as db:
            db.execute("UPDATE measurements SET workload = ?, attempt = 2 WHERE id = ?", (gone, row))
            db.execute("UPDATE sessions SET attempt = 2 WHERE measurement = ?", (row,))
        keys = {gone, OTHER.key}
        assert {one.key for one in store.workloads(TARGET)} == keys
        assert {one.measurement.workload.key for one in store.rows(TARGET)} == keys
        assert {one.key for one in store.ended_at(TARGET, TIMING, CONDITIONS)} == keys
        assert {one.workload.key for one in store.taken(TARGET)} == keys
        assert {one.key for one, _ in store.occasions(TARGET, CONDITIONS).of_rows} == keys
        assert store.measurement(Workload.parse(gone), TARGET, TIMING, CONDITIONS).outcome is Outcome.OK


def test_failures_are_rows_without_a_latency(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        store.add_session(row, session())
        store.fail(row, Outcome.CRASH, "killed by signal 6")
        add_finished(store, OTHER)
        failed = store.measurement(*IDENTITY)
        assert (failed.outcome, failed.reason, len(failed.sessions)) == (Outcome.CRASH, "killed by signal 6", 1)
        with pytest.raises(InvalidValue, match="killed by signal 6"):
            _ = failed.stats
        assert [m.workload for m in latencies(store, TARGET, CONDITIONS)] == [OTHER]
        assert store.counts(TARGET) == {"crash": 1, "ok": 1}
        assert store.missing([WORKLOAD, OTHER], TARGET, TIMING, CONDITIONS) == []
        assert store.missing([WORKLOAD, OTHER], TARGET, TIMING, CONDITIONS, retry=(Outcome.CRASH,)) == [WORKLOAD]


def test_a_lost_row_goes_on_where_it_stopped_but_a_noisy_one_starts_anew(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        store.add_session(row, session())
        store.fail(row, Outcome.LOST, "the cable was pulled")
        assert store.missing([WORKLOAD], TARGET, TIMING, CONDITIONS) == [WORKLOAD]
        assert store.begin(*IDENTITY) == row
        assert len(store.row_sessions(row)) == 1
        store.fail(row, Outcome.NOISY, "interval of 40 %")
        assert len(store.measurement(*IDENTITY).sessions) == 1
        store.begin(*IDENTITY)
        assert store.row_sessions(row) == []
        store.add_session(row, session(0.002))
        assert [s.samples_s[0] for s in store.sessions(*IDENTITY)] == [0.002]
        assert store.counts() == {"unfinished": 1}
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    connection.close()


def test_suspect_sessions_stay_but_do_not_count_where_enough_clean_ones_exist(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        store.add_session(row, session(0.009), suspect="preempted")
        for _ in range(TIMING.min_rounds - 1):
            store.add_session(row, session(0.001))
        store.finish(row)
        assert len(store.measurement(*IDENTITY).sessions) == TIMING.min_rounds
        store.add_session(row, session(0.001))
        assert store.measurement(*IDENTITY).stats.median_s == pytest.approx(0.001)
        assert len(store.measurement(*IDENTITY).sessions) == TIMING.min_rounds
        assert len(store.sessions(*IDENTITY)) == TIMING.min_rounds + 1


def test_an_emulated_row_is_never_a_latency(path):
    with MeasurementStore(path) as store:
        add_finished(store, emulated=True)
        assert store.measurement(*IDENTITY).emulated
        assert latencies(store, TARGET, CONDITIONS) == []


def test_ok_needs_sessions_and_a_failure_needs_a_reason(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        with pytest.raises(InvalidValue, match="without sessions"):
            store.finish(row)
        with pytest.raises(InvalidValue, match="reason"):
            store.fail(row, Outcome.CRASH, "")
        with pytest.raises(InvalidValue, match="samples"):
            store.add_session(row, Session(samples_s=()))
        assert store.counts() == {"unfinished": 1}


def test_a_row_is_adopted_by_a_build_with_the_same_bytes_only(path):
    with MeasurementStore(path) as store:
        add_finished(store, build="old", artifact_sha256="same")
        assert not store.adopt(*IDENTITY, build="new", artifact_sha256="different")
        assert store.adopt(*IDENTITY, build="new", artifact_sha256="same")
        assert store.missing([WORKLOAD], TARGET, TIMING, CONDITIONS, build=lambda w: "new") == []
        assert store.measurement(*IDENTITY, build="new").artifact_sha256 == "same"


def test_kill_9_while_writing_loses_no_committed_session_and_opens_clean(path):
    writer = run_python(
        """
        import sys
        from pathlib import Path
        from hwbench.measure.store import MeasurementStore
        from hwbench.specs import Session, Target, Timing, Workload
        store = MeasurementStore(Path(sys.argv[1]))
        row = store.begin(Workload.parse(sys.argv[2]), Target.parse(sys.argv[3]), Timing(), {"device": "abc"})
        while True:
            store.add_session(row, Session(samples_s=(0.001,) * 500))
            sys.stdout.write(".")
            sys.stdout.flush()
        """,
        path, WORKLOAD.key, TARGET.key,
    )  # fmt: skip
    acknowledged = len(writer.stdout.read(25))
    writer.send_signal(signal.SIGKILL)
    acknowledged += len(writer.stdout.read())
    writer.wait()
    writer.stdout.close()
    with MeasurementStore(path) as store:
        kept = store.sessions(WORKLOAD, TARGET, Timing(), {"device": "abc"})
        assert acknowledged <= len(kept) <= acknowledged + 1
        assert all(len(s.samples_s) == 500 for s in kept)
        add_finished(store, OTHER)


def test_processes_which_write_at_once_lose_nothing(path):
    code = """
    import sys
    from pathlib import Path
    from hwbench.measure.store import MeasurementStore
    from hwbench.specs import Session, Target, Timing, Workload
    store = MeasurementStore(Path(sys.argv[1]))
    for index in range(25):
        row = store.begin(Workload.parse(sys.argv[2]), Target.parse(sys.argv[3]), Timing(), {"device": "abc"})
        store.add_session(row, Session(samples_s=(0.001, 0.002)))
    """
    writers = [run_python(code, path, WORKLOAD.key, TARGET.key) for _ in range(3)]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    with MeasurementStore(path) as store:
        assert len(store.sessions(WORKLOAD, TARGET, Timing(), {"device": "abc"})) == 75
        assert store.counts() == {"unfinished": 1}


@pytest.mark.parametrize("damage", ["text", "header", "pages", "truncated"])
def test_a_damaged_file_is_named_and_left_as_it_is(path, damage):
    with MeasurementStore(path) as store:
        for _ in range(3):
            row = add_finished(store, sessions=20)
    assert row
    data = path.read_bytes()
    broken = {
        "text": b"this is no database, but a note to myself\n" * 40,
        "header": b"\xff" * 64 + data[64:],
        "pages": data[:4096] + b"\xa5" * (len(data) - 4096),
        "truncated": data[: len(data) // 2],
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(InvalidFile, match="Move it away") as caught:
        MeasurementStore(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == broken


def test_an_empty_file_is_a_new_store(path):
    path.parent.mkdir()
    path.touch()
    with MeasurementStore(path) as store:
        add_finished(store)


def test_a_newer_schema_is_refused(path):
    MeasurementStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {LATEST + 1}")
    connection.close()
    with pytest.raises(InvalidFile, match=f"schema {LATEST + 1} .* up to {LATEST}; update hwbench$") as caught:
        MeasurementStore(path)
    assert "Move it away" not in str(caught.value)


def test_the_database_of_another_program_is_refused_and_left_alone(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InvalidFile, match="another program"):
        MeasurementStore(path)
    assert path.read_bytes() == before


def test_a_path_that_is_a_folder_or_below_a_file_is_a_workspace_error(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="folder"):
        MeasurementStore(tmp_path / "folder")
    with pytest.raises(WorkspaceError, match="file"):
        MeasurementStore(tmp_path / "file" / "measurements.sqlite")


def test_a_file_that_cannot_be_written_is_a_workspace_error(path, monkeypatch):
    MeasurementStore(path).close()
    # Rights do not stop root, so the read-only state comes from SQLite itself.
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda p, **options: connect(f"file:{p}?mode=ro", uri=True, **options)
    )  # fmt: skip
    with MeasurementStore(path) as store, pytest.raises(WorkspaceError, match="not writable"):
        store.begin(*IDENTITY)


def test_a_full_disk_is_a_workspace_error_and_loses_nothing(path):
    code = """
    import resource, signal, sys
    from pathlib import Path
    from hwbench.errors import WorkspaceError
    from hwbench.measure.store import MeasurementStore
    from hwbench.specs import Session, Target, Timing, Workload
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    store = MeasurementStore(Path(sys.argv[1]))
    row = store.begin(Workload.parse(sys.argv[2]), Target.parse(sys.argv[3]), Timing(), {"device": "abc"})
    count = 0
    try:
        for _ in range(1000):
            store.add_session(row, Session(samples_s=(0.001234,) * 500))
            count += 1
    except WorkspaceError as error:
        print(count, error)
    """
    writer = run_python(code, path, WORKLOAD.key, TARGET.key)
    output = writer.communicate(timeout=60)[0].decode()
    assert writer.returncode == 0
    count, message = output.split(maxsplit=1)
    assert "nothing already stored was lost" in message
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 200_000
    with MeasurementStore(path) as store:
        assert len(store.sessions(WORKLOAD, TARGET, Timing(), {"device": "abc"})) == int(count) > 10


@pytest.mark.parametrize("dump", sorted(GOLDEN.glob("schema-*.sql")), ids=lambda p: p.stem)
def test_files_of_every_schema_open_for_ever(path, dump):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    with MeasurementStore(path) as store:
        found = {m.workload: m for m in store.measurements(TARGET)}
        assert found[WORKLOAD].stats.median_s == pytest.approx(0.00125)
        assert found[WORKLOAD].sessions[0].samples_s == (0.00125, 0.001251, 0.001249)
        assert found[WORKLOAD].conditions == CONDITIONS
        assert (found[OTHER].outcome, found[OTHER].reason) == (Outcome.BUILD, "the lowering said no")
        assert store.counts() == {"build": 1, "ok": 1}
        add_finished(store, OTHER)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (LATEST,)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()


def test_there_is_a_golden_file_for_the_schema_in_use():
    assert (GOLDEN / f"schema-{LATEST}.sql").is_file()


def test_a_copy_of_the_file_alone_is_complete(path, tmp_path):
    with MeasurementStore(path) as store:
        add_finished(store)
        shutil.copyfile(path, tmp_path / "copy.sqlite")
        assert [name for name in os.listdir(path.parent) if not name.startswith(".")] == [path.name]
    with MeasurementStore(tmp_path / "copy.sqlite") as copy:
        assert copy.counts() == {"ok": 1}


def test_runs_keep_the_state_of_the_device_before_and_after(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        run = store.begin_run(TARGET, CONDITIONS, {"load": 0.5, "held": {"governor": "performance"}})
        store.add_session(row, session(), run=run)
        store.add_session(row, session(), run=run)
        store.add_session(row, session())
        (open_run,) = store.runs(TARGET)
        assert (open_run.id, open_run.sessions, open_run.after, open_run.ended_at) == (run, 2, None, "")
        store.end_run(run, {"load": 0.75})
        (ended,) = store.runs(TARGET)
        assert ended.before == {"load": 0.5, "held": {"governor": "performance"}}
        assert ended.after == {"load": 0.75}
        assert ended.started_at <= ended.ended_at
        assert store.runs(Target("other", "executorch", "1.5.1", 1)) == []
        assert len(store.row_sessions(row)) == 3


def test_clocks_and_probes_of_the_third_schema(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript((GOLDEN / "schema-3.sql").read_text())
    connection.close()
    with MeasurementStore(path) as store:
        assert store.clock(CONDITIONS) == 2.1e-05
        (timing,) = store.timings(TARGET, fingerprint(CONDITIONS))
        first, second, _ = store.sessions(WORKLOAD, TARGET, timing, CONDITIONS, build="b1")
        assert (first.probe_s, first.crowding, first.disturbed) == (2.15e-05, 1.34, 7)
        assert (second.probe_s, second.crowding, second.disturbed) == (0.0, 0.0, 0)


def test_the_first_clock_of_a_set_of_conditions_stays(path):
    with MeasurementStore(path) as store:
        assert store.clock(CONDITIONS) == 0.0
        assert store.clock(CONDITIONS, 0.0) == 0.0
        assert store.clock(CONDITIONS, 2e-5) == 2e-5
        assert store.clock(CONDITIONS, 3e-5) == 2e-5
        assert store.clock({"device": "another"}) == 0.0
    with MeasurementStore(path) as store:
        assert store.clock(CONDITIONS) == 2e-5


def test_the_memory_of_the_fourth_schema(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript((GOLDEN / "schema-4.sql").read_text())
    connection.close()
    with MeasurementStore(path) as store:
        (timing,) = store.timings(TARGET, fingerprint(CONDITIONS))
        first, second, _ = store.sessions(WORKLOAD, TARGET, timing, CONDITIONS, build="b1")
        assert (first.memory, second.memory) == (6.25, 0.0)


def test_what_the_quietest_sessions_of_a_set_of_conditions_tell(path):
    with MeasurementStore(path) as store:
        row = store.begin(*IDENTITY)
        for crowding, memory in ((1.5, 7.0), (0.0, 0.0), (1.2, 0.0), (1.3, 6.0), (1.1, 0.0)):
            store.add_session(row, replace(session(), crowding=crowding, memory=memory))
        told = store.undisturbed(CONDITIONS)
        assert (told.crowding.known, told.crowding.usual) == (1.3, 1.3)
        assert (told.memory.known, told.memory.usual) == (0.0, 7.0)  # two are too few to be sure
        assert store.undisturbed({"device": "another"}).crowding.usual == 0.0


def test_a_reopened_row_is_missing_and_its_sessions_stay(path):
    with MeasurementStore(path) as store:
        add_finished(store)
        assert store.missing([WORKLOAD, OTHER], *IDENTITY[1:]) == [OTHER]
        assert store.reopen([WORKLOAD, WORKLOAD, OTHER], *IDENTITY[1:]) == 1
        assert store.missing([WORKLOAD, OTHER], *IDENTITY[1:]) == [WORKLOAD, OTHER]
        assert store.reopen([WORKLOAD], *IDENTITY[1:]) == 0
        assert store.sessions(*IDENTITY) == ()
        old = list(store.taken(TARGET))
        assert old
        assert not any(taken.current for taken in old)
        add_finished(store)
        assert len(store.sessions(*IDENTITY)) == len(old)


def several(store, target=TARGET, conditions=CONDITIONS, **options):
    """The latencies of the only row that was measured on several occasions, in their order; empty: there is none."""
    found = store.occasions(target, conditions, **options).several
    assert {workload for workload, _ in found} <= {WORKLOAD}
    return [stats for by_occasion in found.values() for _, stats in sorted(by_occasion.items())]


def test_sessions_of_rows_that_were_measured_anew_come_by_occasion(path):
    with MeasurementStore(path) as store:
        row = add_finished(store, sessions=2, median_s=0.001)
        store.add_session(row, session(0.005), suspect="preempted")
        add_finished(store, workload=OTHER)
        assert several(store) == []
        store.database.select(
            "UPDATE sessions SET taken_at = datetime(taken_at, '-1 hour') || '+00:00', boot_s = boot_s - 3600"
        )
        store.reopen([WORKLOAD], *IDENTITY[1:])
        assert several(store) == []
        add_finished(store, sessions=3, median_s=0.002)
        before, after = several(store)
        assert (before.median_s, before.num_sessions) == (0.001, 2)
        assert (after.median_s, after.num_sessions) == (0.002, 3)
        assert several(store, apart_s=4000) == []
        assert several(store, conditions={"device": "another"}) == []
        assert several(store, replace(TARGET, threads=2)) == []


def test_19_23_a_step_of_the_clock_neither_splits_nor_joins_occasions(path):
    with MeasurementStore(path) as store:
        add_finished(store, sessions=3, median_s=0.001)
        store.reopen([WORKLOAD], *IDENTITY[1:])
        row = add_finished(store, sessions=2, median_s=0.002)
        store.add_session(row, session(0.003))
        assert several(store) == []
        # the clock steps forward in the middle of an occasion: it goes on
        store.database.select("UPDATE sessions SET taken_at = datetime(taken_at, '+1 day') || '+00:00' WHERE id % 2")
        assert several(store) == []
        # an hour passed, and the clock was set back by one
        store.database.select("UPDATE sessions SET boot_s = boot_s - 3600 WHERE id <= 3")
        assert [one.num_sessions for one in several(store)] == [3, 3]
        # the start of the host is not known: the clock decides, unless it was set back
        store.database.select("UPDATE sessions SET boot = '', taken_at = datetime('2026-01-02') || '+00:00'")
        assert several(store) == []
        for day in ("2026-01-03", "2026-01-01"):
            store.database.select(f"UPDATE sessions SET taken_at = datetime('{day}') || '+00:00' WHERE id > 4")
            assert [one.num_sessions for one in several(store)] == [4, 2]


def test_19_23_sessions_of_before_go_by_the_clock_and_new_ones_by_the_fifth_schema(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript((GOLDEN / "schema-5.sql").read_text())
    connection.close()
    with MeasurementStore(path) as store:
        rows = store.database.select("SELECT boot, boot_s FROM sessions ORDER BY id")
        assert rows == [("5d0c7fb0-6c4b-4c39-9d3c-0f4a7f1c2b11", 86400.5), ("", 0.0), ("", 0.0)]


def test_runs_of_the_second_schema(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript((GOLDEN / "schema-2.sql").read_text())
    connection.close()
    with MeasurementStore(path) as store:
        (run,) = store.runs(TARGET)
        assert (run.sessions, run.after) == (1, {"load": 0.5})


def test_rows_of_another_store_come_with_their_sessions_runs_and_clock(path, tmp_path):
    third = Workload.parse("x3d_i24_m72_o24_k1x3x3_swish@1x24x4x28x28/fp32/auto")
    with MeasurementStore(path) as store, MeasurementStore(tmp_path / "other.sqlite") as other:
        add_finished(store, OTHER, median_s=0.005)
        store.end_run(store.begin_run(TARGET, {}, {"own": 1}), {})
        run = other.begin_run(TARGET, CONDITIONS, {"celsius": 31})
        other.clock(CONDITIONS, 3e-6)
        rows = {w: other.begin(w, TARGET, TIMING, CONDITIONS, artifact_sha256="f00") for w in (WORKLOAD, OTHER, third)}
        for number in (1, 2, 3):
            for row in rows.values():
                suspect = "preempted" if number == 2 else ""
                other.add_session(row, session(number / 1000, crowding=1.3), suspect=suspect, run=run)
        other.end_run(run, {"celsius": 40})
        other.finish(rows[WORKLOAD])
        other.fail(rows[third], Outcome.NOISY, "the neighbours")
        assert store.take_over(other, [WORKLOAD, OTHER, WORKLOAD]) == 1
        assert store.take_over(other, [WORKLOAD]) == 0
        assert store.measurement(*IDENTITY) == other.measurement(*IDENTITY)
        assert store.measurement(OTHER, *IDENTITY[1:]).stats.median_s == pytest.approx(0.005)
        assert third not in [*store.workloads(TARGET)]
        assert store.clock(CONDITIONS) == 3e-6
        (copied,) = [one for one in store.runs(TARGET) if one.before == {"celsius": 31}]
        assert (copied.after, copied.sessions) == ({"celsius": 40}, 3)
        mine = [one for one in store.taken(TARGET) if one.workload == WORKLOAD]
        theirs = [one for one in other.taken(TARGET) if one.workload == WORKLOAD]
        assert [(one.session, one.suspect, one.taken_at) for one in mine] == [
            (one.session, one.suspect, one.taken_at) for one in theirs
        ]
        assert {one.run for one in mine} == {copied.id}
        assert store.take_over(other, [third]) == 1
        assert store.counts() == {"noisy": 1, "ok": 2}
        assert len(store.runs(TARGET)) == 3  # the run is another one for those who took over a part before
    with MeasurementStore(path) as store:
        assert store.counts() == {"noisy": 1, "ok": 2}


def test_nothing_is_taken_over_where_a_part_cannot_be(path, tmp_path):
    with MeasurementStore(path) as store, MeasurementStore(tmp_path / "other.sqlite") as other:
        add_finished(other)
        add_finished(other, OTHER)
        store.database.connection.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON main.sessions WHEN (SELECT count(*) FROM main.sessions) = 4 "
            "BEGIN SELECT RAISE(ABORT, 'no space'); END"
        )
        with pytest.raises(sqlite3.IntegrityError, match="no space"):
            store.take_over(other, [WORKLOAD, OTHER])
        store.database.connection.execute("DROP TRIGGER full")
        assert store.counts() == {}
        assert store.take_over(other, [WORKLOAD, OTHER]) == 2


def test_a_store_beside_another_shares_its_clock_and_its_quiet_core(path, tmp_path):
    with MeasurementStore(path) as known, MeasurementStore(tmp_path / "aside.sqlite", beside=known) as aside:
        known.clock(CONDITIONS, 2e-6)
        row = known.begin(*IDENTITY)
        for crowding in (1.31, 1.30, 1.29, 1.7):
            known.add_session(row, session(crowding=crowding))
        assert aside.clock(CONDITIONS) == 2e-6
        assert aside.clock(CONDITIONS, 5e-6) == 2e-6
        assert aside.undisturbed(CONDITIONS).crowding.known == 1.31
        aside.add_session(aside.begin(*IDENTITY), session(crowding=1.2))
        assert aside.undisturbed(CONDITIONS).crowding.known == 1.30
        assert known.undisturbed(CONDITIONS).crowding.known == 1.31
        assert aside.clock({"device": "new"}, 7e-6) == 7e-6
        assert known.clock({"device": "new"}) == 0
    with MeasurementStore(tmp_path / "aside.sqlite") as alone:
        assert alone.clock(CONDITIONS) == 2e-6
