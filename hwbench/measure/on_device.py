"""Measuring on a real device: transport, runner, cache and conditions put together, for campaigns and for one file."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwbench.devices import Conditions, Device, DeviceState, probe_device, read_state
from hwbench.devices.preflight import Level, crowded, passing, read_busy, wait_until_cool
from hwbench.errors import DeviceLost
from hwbench.measure.bench import Bench, open_bench
from hwbench.measure.build_ahead import builds_ahead
from hwbench.measure.builder import Builder
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import Drift, OnDrift, Pauses, Undisturbed
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.judge import Judge, JudgedSessions
from hwbench.measure.quality import REPEATS, verdict
from hwbench.measure.repeatability import compare_with_itself
from hwbench.measure.runner import measure_sessions
from hwbench.measure.sentinel import build_sentinel
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import trusted
from hwbench.runtimes.capabilities import PYTHON
from hwbench.specs import LOCAL, Artifact, Measurement, Outcome, Precision, Repeatability, Session, Target, Timing

# An interval that every row meets.
ANY_RATIO = 1e6
# Under emulation one execution of X3D-XS takes up to a quarter of a minute.
EMULATED = Timing(
    warmup_s=0.0, min_samples=2, min_session_s=0.0, max_session_s=600.0, min_rounds=2, max_rounds=2, timeout_s=600.0
)


@contextmanager
def campaign_on(
    device: Device,
    *,
    store: MeasurementStore,
    cache_dir: Path,
    runtime: str = "executorch",
    threads: int | None = None,
    conditions: Conditions | None = None,
    timing: Timing | None = None,
    precisions: Collection[Precision] = (),
    processes: int | None = None,
    builder: Builder | None = None,
    retry: Collection[Outcome] = (Outcome.LOST,),
    report: Callable[[str], None] | None = None,
) -> Iterator[Campaign]:
    """Opens a device for measuring; its transport ends with the block, and so do build workers of its own.

    Args:
        device: Where to measure.
        store: Where sessions go.
        cache_dir: Where built files and the runner lie.
        runtime: Name of the runtime.
        threads: Threads of the engine; default: what the device file says.
        conditions: Whether the knobs of the device are held; default: what the device file says.
        timing: The protocol of the rows.
        precisions: Of the rows, as far as they are known: a device that does not compute in one is refused.
        processes: Build workers; default: what fits.
        builder: Builds for this runtime into this cache, and goes on living; default: one of its own.
        retry: Outcomes that are tried again.
        report: Told what takes long, and what is not as it should be.

    Raises:
        UnknownName: No such runtime.
        MissingDependency: The engine is not installed.
        InvalidValue: The device has fewer cores than ``threads``, or does not compute in a precision.
        DeviceError: The device does not answer.
    """
    timing = protocol_for(device, timing)
    with contextlib.ExitStack() as stack:
        builder = builder or stack.enter_context(Builder(runtime, cache_dir, processes=processes))
        bench = stack.enter_context(
            open_bench(
                device,
                runtime,
                cache_dir=cache_dir,
                threads=threads,
                conditions=conditions,
                precisions=precisions,
                report=report,
            )
        )
        yield Campaign(
            store=store,
            target=Target(device.name, runtime, builder.cache.version, bench.threads),
            conditions=bench.conditions,
            build=builder.build,
            measure=_Measure(builder, bench, timing, store, watched=not device.emulated),
            timing=timing,
            build_key=builder.cache.key,
            retry=retry,
            emulated=device.emulated,
            state=_State(device, bench),
            repeat=None if device.emulated else functools.partial(_repeat, builder, bench, timing, store),
            ahead=None if device.transport_name == LOCAL else functools.partial(builds_ahead, builder),
            runner_build=bench.runner.build,
        )


def measure_artifact(
    artifact: Artifact,
    device: Device,
    *,
    cache_dir: Path,
    threads: int | None = None,
    conditions: Conditions | None = None,
    timing: Timing | None = None,
    undisturbed: Callable[[Mapping[str, str], str], Undisturbed] | None = None,
    report: Callable[[str], None] | None = None,
) -> Measurement:
    """Times one file by itself, now; nothing is stored, and no sentinel is built for it.

    Args:
        artifact: The file; of its workload only the precision is looked at.
        device: Where to measure.
        cache_dir: Where the runner lies.
        threads: Threads of the engine; default: what the device file says.
        conditions: Whether the knobs of the device are held; default: what the device file says.
        timing: Protocol and stop rule.
        undisturbed: What earlier sessions under given conditions, by a given build of the runner, told of core and
            memory, as ``MeasurementStore.undisturbed`` knows it; the runner then waits while others use the core.
            Without it that is only noticed where the core becomes free in between.
        report: Told what takes long, and what is not as it should be.

    Raises:
        InvalidValue: The device has fewer cores than ``threads``.
        DeviceError: The device does not answer.
    """
    timing = protocol_for(device, timing)
    with open_bench(
        device,
        artifact.runtime,
        cache_dir=cache_dir,
        threads=threads,
        conditions=conditions,
        precisions=(artifact.workload.precision,),
        report=report,
    ) as bench:
        known = undisturbed(bench.conditions, bench.runner.build) if undisturbed else Undisturbed()
        taken = JudgedSessions(Judge(bench.threads, device.emulated, known), timing)
        most = timing.max_rounds + REPEATS if bench.runner.kind == PYTHON else 0

        def keep(artifact: Artifact, session: Session) -> None:
            taken.add(session)
            if most and not taken.needed:
                raise _Enough

        failures: Sequence[MeasurementFailure] = ()
        with contextlib.suppress(_Enough):
            while not failures and (rounds := taken.needed):
                failures = measure_sessions(
                    [artifact],
                    rounds=max(rounds, most),
                    seed=len(taken),
                    on_session=keep,
                    bench=bench,
                    timing=timing,
                    undisturbed=known,
                )
    return measurement(artifact, device, bench, timing, taken, failures)


class _Enough(Exception):
    """Ends a runner in Python, which takes seconds to load its engine: it was asked for as many sessions as can be."""


def measurement(
    artifact: Artifact,
    device: Device,
    bench: Bench,
    timing: Timing,
    taken: JudgedSessions,
    failures: Sequence[MeasurementFailure],
) -> Measurement:
    """What came of one file: its sessions, judged by all of them, or why there are no more."""
    sessions = taken.judged()
    outcome, reason = (failures[0].outcome, failures[0].reason) if failures else verdict(sessions, timing)
    return Measurement(
        workload=artifact.workload,
        target=Target(device.name, artifact.runtime, artifact.version, bench.threads),
        timing=timing,
        outcome=outcome,
        sessions=trusted(sessions, timing),
        reason=reason,
        artifact_sha256=artifact.sha256,
        conditions=bench.conditions,
        emulated=device.emulated,
    )


def _repeat(builder: Builder, bench: Bench, timing: Timing, store: MeasurementStore) -> Repeatability:
    """Waits for the core as the rows did, whose error it is to tell."""
    return compare_with_itself(build_sentinel(builder), bench=bench, timing=timing, drift=_known_drift(store, bench))


def _known_drift(store: MeasurementStore, bench: Bench) -> Drift:
    """What earlier sessions under the same conditions told."""
    drift = Drift()
    drift.undisturbed = store.undisturbed(bench.conditions, bench.runner.build)
    drift.clock_s = store.clock(bench.conditions)
    drift.clock_sensitivity = store.clock_sensitivity(bench.conditions)
    return drift


def protocol_for(device: Device, timing: Timing | None) -> Timing:
    """The protocol for a device; under emulation times mean nothing, so few are taken and no interval is waited for."""
    if not device.emulated:
        return timing or Timing()
    return replace(timing or EMULATED, ci_ratio=ANY_RATIO)


class _State:
    """Reads the device's state. Before the first time it says what speaks against measuring, and lets it cool down."""

    def __init__(self, device: Device, bench: Bench) -> None:
        self._device = device
        self._bench = bench
        self._asked = False

    def __call__(self) -> Mapping[str, Any]:
        try:
            state = read_state(self._bench.transport, self._device.files_dir)
            if not self._asked:
                self._asked = True
                state = self._first(state)
        except DeviceLost:  # whoever measures next reaches it again, or says that it is lost
            return {}
        control = self._bench.control
        return {**state.as_json(), "conditions": control.conditions, "held": control.held, "free": control.free}

    def _first(self, state: DeviceState) -> DeviceState:
        report = self._bench.report
        if report is None:
            return state
        probe = probe_device(self._bench.transport)
        busy = read_busy(self._bench.transport) if crowded(probe, state) else None
        for finding in passing(self._device, probe, state, busy):
            if finding.level is not Level.OK:
                report(str(finding))
        return wait_until_cool(self._device, self._bench.transport, state, report)


class _Measure:
    """``measure_sessions`` with everything bound; the sentinel is built when it is first needed.

    Without ``watched`` there is none: under emulation it would only tell how busy the host is.
    """

    def __init__(
        self, builder: Builder, bench: Bench, timing: Timing, store: MeasurementStore, *, watched: bool
    ) -> None:
        self._watched = watched
        self._builder = builder
        self._bench = bench
        self._timing = timing
        self._store = store
        self._drift = _known_drift(store, bench)
        self._pauses = Pauses()

    @functools.cached_property
    def _sentinel(self) -> Path:
        return build_sentinel(self._builder).path

    def __call__(
        self,
        artifacts: Sequence[Artifact],
        /,
        *,
        rounds: int,
        seed: int,
        on_session: Callable[[Artifact, Session], None],
        on_drift: OnDrift,
    ) -> Sequence[MeasurementFailure]:
        self._drift.clock_s = self._drift.clock_s or self._store.clock(self._bench.conditions)
        self._drift.clock_sensitivity = self._store.clock_sensitivity(self._bench.conditions)
        try:
            return measure_sessions(
                artifacts,
                rounds=rounds,
                seed=seed,
                on_session=on_session,
                on_drift=on_drift,
                bench=self._bench,
                timing=self._timing,
                sentinel=self._sentinel if self._watched else None,
                drift=self._drift,
                pauses=self._pauses,
            )
        finally:  # campaigns to come refer to the same clock
            self._store.clock(self._bench.conditions, self._drift.clock_s)
