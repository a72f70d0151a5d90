"""Files that are timed by themselves, or in turn with others: their sessions are doubted as those of campaigns are."""

import contextlib
from pathlib import Path

import pytest

from hwbench.devices import Device
from hwbench.measure import interleaved, on_device
from hwbench.measure.bench import Bench
from hwbench.measure.drift import Undisturbed
from hwbench.measure.judge import Judge, JudgedSessions
from hwbench.runtimes.runners import Runner
from hwbench.specs import Artifact, DelegationReport, Outcome, Session, Timing, Workload

BLOCK = Workload.parse("conv_i3_o4_k1x1x1_relu@1x3x2x4x4/fp32/auto")
TIMING = Timing(min_rounds=5, max_rounds=10)
N = 30


def session(median_s=0.010, busy_s=0.019, clock_hz=2.4e9):
    """Of two threads, which are busy for 19 ms together however long one waits for its core."""
    return Session((median_s,) * N, cpu_s=busy_s * N, wall_s=median_s * N, clock_hz=clock_hz)


WAITED = session(0.014)
SLOW = session(0.012, busy_s=0.0228, clock_hz=2.0e9)


@pytest.fixture(params=["alone", "in turn"])
def measure(request, monkeypatch):
    """Measures files of two threads, by themselves and in turn, of which these sessions come one after the other."""

    def made_up(sessions, emulated=False, kind="native"):
        coming = iter(sessions)

        def visit(artifacts, *, rounds, on_session, **options):
            for _ in range(rounds):
                on_session(artifacts[0], next(coming))
            return []

        bench = Bench(None, Runner(kind, ("runner",)), threads=2)
        monkeypatch.setattr(on_device, "open_bench", lambda *_, **__: contextlib.nullcontext(bench))
        monkeypatch.setattr(interleaved, "open_benches", lambda *_, **__: contextlib.nullcontext({"torch": bench}))
        monkeypatch.setattr(on_device, "measure_sessions", visit)
        monkeypatch.setattr(interleaved, "measure_sessions", visit)
        file = Artifact(Path("model"), "0" * 64, BLOCK, "torch", "1", DelegationReport(0))
        device, options = Device("made-up", "local", emulated=emulated), {"cache_dir": Path(), "timing": TIMING}
        if request.param == "alone":
            return on_device.measure_artifact(file, device, **options)
        (measured,) = interleaved.measure_interleaved([file], device, **options)
        return measured

    return made_up


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize("odd", [WAITED, SLOW], ids=["waited", "other clock"])
@pytest.mark.parametrize("places", [(0, 1), (0, 1, 2), (4, 5), (1, 3, 5)])
def test_sessions_that_waited_or_had_another_clock_do_not_count(measure, kind, odd, places):
    measured = measure([odd if place in places else session() for place in range(20)], kind=kind)
    assert measured.outcome is Outcome.OK
    assert measured.stats.median_s == pytest.approx(0.010)
    assert {one.median_s for one in measured.sessions} == {0.010}
    assert len(measured.sessions) >= TIMING.min_rounds


def test_under_emulation_no_session_is_doubted(measure):
    measured = measure([session(), session(), WAITED, SLOW, session()] * 2, emulated=True)
    assert 0.014 in {one.median_s for one in measured.sessions}


def test_a_session_is_judged_once_more_by_those_that_came_later():
    taken = JudgedSessions(Judge(2, emulated=False, undisturbed=Undisturbed()), TIMING)
    for one in (WAITED, WAITED, session(), session(), session()):
        taken.add(one)
    assert taken.needed == 2
    assert [bool(suspect) for _, suspect in taken.judged()] == [True, True, False, False, False]
    assert len(taken) == 5
