"""Files of several engines on one device, in turn: what changes on the device meanwhile meets all of them alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hwbench.devices import Device
from hwbench.errors import DeviceError
from hwbench.measure.bench import Bench, open_benches
from hwbench.measure.drift import Undisturbed
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.judge import Judge, JudgedSessions
from hwbench.measure.on_device import measurement, protocol_for
from hwbench.measure.runner import measure_sessions
from hwbench.specs import Artifact, Measurement, Outcome, Session, Target, Timing


def measure_interleaved(
    artifacts: Sequence[Artifact],
    device: Device,
    *,
    cache_dir: Path,
    threads: int | None = None,
    timing: Timing | None = None,
    undisturbed: Callable[[Mapping[str, str], str], Undisturbed] | None = None,
    on_session: Callable[[int, int], None] | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Measurement]:
    """Times files of different runtimes: one session of each a round, in fresh random order; nothing is stored.

    All take part in every round until each that runs has the sessions that it needs. Each session has its
    ``Session.round``: sessions of one round are of the same minute, whichever of the others are doubted.

    Args:
        artifacts: One file for each runtime.
        device: Where to measure.
        cache_dir: Where the runners lie.
        threads: Threads of the engines; default: what the device file says.
        timing: Protocol and stop rule.
        undisturbed: As of ``measure_artifact``.
        on_session: Told (rounds done, rounds at the most).
        report: Told what takes long, and what is not as it should be.

    Returns:
        A measurement for each file, in their order; one that does not run, or whose runner does not or ends again and
        again, is a failed one.

    Raises:
        InvalidValue: The device has fewer cores than ``threads``, or does not compute in a precision.
        DeviceError: The device does not answer, or no runner works there to the end.
    """
    timing, unfit = protocol_for(device, timing), dict[str, DeviceError]()
    with open_benches(
        device,
        [artifact.runtime for artifact in artifacts],
        cache_dir=cache_dir,
        threads=threads,
        precisions={artifact.workload.precision for artifact in artifacts},
        report=report,
        unfit=unfit,
    ) as benches:
        turns = {
            one.runtime: _EngineSessions(one, benches[one.runtime], device, timing, undisturbed)
            for one in artifacts
            if one.runtime in benches
        }
        most, chance = timing.max_rounds, random.Random(0)
        for done in range(most):
            running = [turn for turn in turns.values() if not turn.failures]
            if not any(turn.needed for turn in running):
                break
            for turn in chance.sample(running, len(running)):
                turn.take(done)
            if on_session is not None:
                on_session(done + 1, most)
        lost = [turn.lost for turn in turns.values() if turn.lost is not None]
        if lost and len(lost) == len(turns):
            raise lost[0]
        return [
            _without_runner(one, device, threads, timing, unfit[one.runtime])
            if one.runtime in unfit
            else turns[one.runtime].measurement(device)
            for one in artifacts
        ]


def _without_runner(
    artifact: Artifact, device: Device, threads: int | None, timing: Timing, error: DeviceError
) -> Measurement:
    target = Target(device.name, artifact.runtime, artifact.version, threads or device.threads)
    return Measurement(artifact.workload, target, timing, Outcome.PUSH, (), str(error), artifact.sha256)


class _EngineSessions:
    """A file with the sessions that were taken of it."""

    def __init__(
        self,
        artifact: Artifact,
        bench: Bench,
        device: Device,
        timing: Timing,
        undisturbed: Callable[[Mapping[str, str], str], Undisturbed] | None,
    ) -> None:
        self.artifact, self.bench = artifact, bench
        self.failures: Sequence[MeasurementFailure] = ()
        # What ended the runner, or took the device away, where that is not about the file.
        self.lost: DeviceError | None = None
        self._timing = timing
        self._known = undisturbed(bench.conditions, bench.runner.build) if undisturbed else Undisturbed()
        self._taken = JudgedSessions(Judge(bench.threads, device.emulated, self._known), timing)

    @property
    def needed(self) -> bool:
        """Whether it can be judged only after more sessions."""
        return self._taken.needed > 0

    def measurement(self, device: Device) -> Measurement:
        """What came of the file."""
        # Time that ran out in a session more than the file needs takes nothing from those before.
        spared = not self.needed and all(one.outcome is Outcome.TIMEOUT for one in self.failures)
        failures = () if spared else self.failures
        return measurement(self.artifact, device, self.bench, self._timing, self._taken, failures)

    def take(self, round: int) -> None:
        """Takes the session of a round; a runner that ends again and again is a failure of its engine alone."""

        def keep(artifact: Artifact, session: Session) -> None:
            self._taken.add(replace(session, round=round))

        try:
            self.failures = measure_sessions(
                [self.artifact],
                rounds=1,
                seed=round,
                on_session=keep,
                bench=self.bench,
                timing=self._timing,
                undisturbed=self._known,
            )
        except DeviceError as error:
            self.lost = error
            self.failures = [MeasurementFailure(self.artifact.workload, Outcome.LOST, str(error))]
