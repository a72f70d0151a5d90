"""The shares of a measurement store work alone, each on a database; together they are the store."""

import pytest

from hwbench.errors import InvalidValue
from hwbench.measure.database import Database
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_clock import ClockMemory
from hwbench.measure.store_occasions import Occasions
from hwbench.measure.store_reading import RowReader
from hwbench.measure.store_rows import RowLedger
from hwbench.measure.store_sessions import SessionLog
from hwbench.specs import Outcome, Session, Target, Timing, Workload

WORKLOAD = Workload.parse("x3d_i24_m54_o24_k3x3x3_swish@1x24x8x14x14/fp32/auto")
TARGET, TIMING, CONDITIONS = Target("local", "executorch", "1.5.1", 1), Timing(), {"device": "one"}
SESSION = Session(samples_s=(0.001, 0.002, 0.003), cpu_s=0.006, wall_s=0.006, probe_s=2e-6, crowding=1.25)


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path / "measurements.sqlite")
    yield database
    database.close()


def test_rows_sessions_and_reading_meet_in_the_file_alone(database):
    rows, log, reader = RowLedger(database), SessionLog(database), RowReader(database)
    row = rows.begin(WORKLOAD, TARGET, TIMING, CONDITIONS)
    with pytest.raises(InvalidValue, match="without sessions"):
        rows.finish(row)
    run = log.begin_run(TARGET, CONDITIONS, {})
    number = log.add_session(row, SESSION, run=run)
    log.correct_session(number, 1.02, suspect="hot")
    assert rows.missing([WORKLOAD], TARGET, TIMING, CONDITIONS) == [WORKLOAD]
    rows.finish(row)
    assert rows.missing([WORKLOAD], TARGET, TIMING, CONDITIONS) == []
    found = reader.measurement(WORKLOAD, TARGET, TIMING, CONDITIONS)
    assert (found.outcome, found.sessions[0].drift) == (Outcome.OK, 1.02)
    assert [one.suspect for one in log.taken(TARGET)] == ["hot"]


def test_what_is_known_of_a_device_is_that_of_another_store_too(database, tmp_path):
    with MeasurementStore(tmp_path / "beside.sqlite") as beside:
        beside.add_session(beside.begin(WORKLOAD, TARGET, TIMING, CONDITIONS), SESSION)
        beside.clock(CONDITIONS, 2e-6)
        memory = ClockMemory(database, beside)
        assert memory.clock(CONDITIONS, 3e-6) == 2e-6
        assert memory.undisturbed(CONDITIONS).crowding.usual == 1.25


def test_occasions_are_read_from_the_sessions_of_attempts(database):
    rows, log = RowLedger(database), SessionLog(database)
    row = rows.begin(WORKLOAD, TARGET, TIMING, CONDITIONS)
    log.add_session(row, SESSION)
    rows.finish(row)
    assert rows.reopen([WORKLOAD], TARGET, TIMING, CONDITIONS) == 1
    log.add_session(row, SESSION)
    (((workload, _), occasions),) = Occasions(database).occasions(TARGET, CONDITIONS, apart_s=-1.0).several.items()
    assert (workload, [stats.num_sessions for stats in occasions.values()]) == (WORKLOAD, [1, 1])


def test_occasions_tell_what_a_row_was_before_it_is_measured_anew(database):
    rows, log, occasions = RowLedger(database), SessionLog(database), Occasions(database)
    row = rows.begin(WORKLOAD, TARGET, TIMING, CONDITIONS)
    log.add_session(row, SESSION)
    log.add_session(row, SESSION)
    rows.finish(row)
    assert not occasions.occasions(TARGET, CONDITIONS).earlier
    rows.reopen([WORKLOAD], TARGET, TIMING, CONDITIONS)
    database.select("UPDATE sessions SET taken_at = '2026-01-31T22:15:00+00:00', boot = ''")
    rows.fail(row, Outcome.CRASH, "out of memory")
    (ended,) = database.select("SELECT finished_at FROM measurements")
    found = occasions.occasions(TARGET, CONDITIONS)
    (((at, stats),),) = found.earlier.values()
    assert (at, stats.num_sessions, stats.median_s) == (0, 2, 0.002)
    assert found.days == {WORKLOAD: {"2026-01-31", ended[0][:10]}}
    log.add_session(rows.begin(WORKLOAD, TARGET, TIMING, CONDITIONS), SESSION)
    rows.finish(row)
    assert not occasions.occasions(TARGET, CONDITIONS).earlier


@pytest.mark.parametrize(
    ("moments", "boot_s"),
    [
        (("2026-01-31T18:00", "2026-01-31T13:00"), (7200.0, 120.0)),
        (("2026-01-31T18:00", "2026-01-31T13:00"), (120.0, 7200.0)),
        (("2026-01-01T00:02", "2026-01-01T00:04"), (120.0, 240.0)),
        (("2026-01-01T00:04", "2026-01-01T00:02"), (240.0, 120.0)),
        (("2026-01-31T22:00", "2026-01-31T22:07"), (7200.0, 240.0)),
    ],
    ids=["ahead", "ahead-long-ago", "same-beginning", "same-beginning-earlier", "goes-on-from-where-it-stopped"],
)
def test_another_start_of_the_host_is_another_occasion_whatever_its_clock_says(database, moments, boot_s):
    """A clock that was ahead before the start, or one without a battery: the host may have been off for a night."""
    rows, log, occasions = RowLedger(database), SessionLog(database), Occasions(database)
    row = rows.begin(WORKLOAD, TARGET, TIMING, CONDITIONS)
    for number, (moment, since_s) in enumerate(zip(moments, boot_s), start=1):
        for further_s in (0, 30):
            session = log.add_session(row, SESSION)
            database.select(
                f"UPDATE sessions SET taken_at = '{moment}:{further_s:02}+00:00', boot = 'start {number}', "
                f"boot_s = {since_s + further_s} WHERE id = {session}"
            )
    rows.finish(row)
    (several,) = occasions.occasions(TARGET, CONDITIONS).several.values()
    assert {at: stats.num_sessions for at, stats in several.items()} == {0: 2, 1: 2}


@pytest.mark.parametrize("boot", ["another start", ""])
def test_a_session_that_a_later_clock_dates_is_not_of_just_now(database, boot):
    rows, log, occasions = RowLedger(database), SessionLog(database), Occasions(database)
    log.add_session(rows.begin(WORKLOAD, TARGET, TIMING, CONDITIONS), SESSION)
    assert 0 <= occasions.since_last_session_s(TARGET, CONDITIONS) < 600
    database.select(f"UPDATE sessions SET boot = '{boot}', taken_at = '2999-01-31T22:15:00+00:00'")
    assert occasions.since_last_session_s(TARGET, CONDITIONS) > 600
