"""A device with a known latency law, for campaigns without hardware: results can be checked against the truth."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.measure.build_ahead import Following
from hwbench.measure.builder import BuildFailure
from hwbench.measure.drift import OnDrift
from hwbench.measure.failures import MeasurementFailure
from hwbench.specs import Artifact, DelegationReport, Outcome, Session, Workload

# What the probe takes at the clock that latencies are told for.
PROBE_S = 2e-5


def proportional(workload: Workload) -> float:
    """A latency law: a nanosecond for each value that flows between the blocks."""
    x, seconds = workload.input, 0.0
    for block in workload.blocks:
        x = block.output(x)
        seconds += 1e-9 * x.numel
    return seconds


class NotedAhead:
    """Notes for each batch of a campaign what is to be built meanwhile, in place of building it."""

    def __init__(self) -> None:
        self.asked: list[list[Workload]] = []

    @contextmanager
    def __call__(self, following: Following) -> Iterator[None]:
        self.asked.append(list(following()))
        yield


@dataclass
class FakeDevice:
    """Builds and times like the real ones, in no time, and remembers what it was asked.

    Args:
        folder: Where the files of ``build`` go.
        law: True latency of a workload in seconds.
        noise: Spread of the medians of sessions, relative; samples of one session spread by a fifth of it.
        build_failures: Workloads that do not build, with the reason.
        build_outcome: Of those.
        failures: Workloads whose every visit fails, and how.
        interrupt_after: Number of sessions after which ``measure`` raises KeyboardInterrupt, once.
        preempted: Workloads whose sessions lose the processor in the middle.
        drifts: What becomes known of the drift of a workload's first sessions, after each of them.
        crowdings: What a workload's first sessions say of other users of the core; the others: nothing.
        wander: Spread of the clock from session to session, relative, which they tell; 0: they tell nothing.
        clock_sensitivity: How far latencies follow that clock, from 0 to 1.
        clocks: Clock in hertz of a workload's first sessions; the others, and those that follow: 2.4 GHz.
    """

    folder: Path
    law: Callable[[Workload], float] = proportional
    noise: float = 0.001
    build_failures: Mapping[Workload, str] = field(default_factory=dict)
    build_outcome: Outcome = Outcome.BUILD
    failures: Mapping[Workload, tuple[Outcome, str]] = field(default_factory=dict)
    interrupt_after: int | None = None
    preempted: frozenset[Workload] = frozenset()
    drifts: Mapping[Workload, Sequence[float]] = field(default_factory=dict)
    clocks: Mapping[Workload, Sequence[float]] = field(default_factory=dict)
    crowdings: Mapping[Workload, Sequence[float]] = field(default_factory=dict)
    wander: float = 0.0
    clock_sensitivity: float = 1.0
    builds: Counter[Workload] = field(default_factory=Counter)
    visits: list[Workload] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def build(self, workloads: Sequence[Workload], /) -> Iterator[Artifact | BuildFailure]:
        """One small file each; the last comes first, as workers do not keep the order."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for workload in reversed(workloads):
            self.builds[workload] += 1
            if workload in self.build_failures:
                yield BuildFailure(workload, self.build_failures[workload], self.build_outcome)
                continue
            path = self.folder / f"{workload.sha256}.fake"
            path.write_text(workload.key)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield Artifact(path, digest, workload, "fake", "1", DelegationReport(1))

    def measure(
        self,
        artifacts: Sequence[Artifact],
        /,
        *,
        rounds: int,
        seed: int,
        on_session: Callable[[Artifact, Session], None],
        on_drift: OnDrift | None = None,
    ) -> Sequence[MeasurementFailure]:
        """Visits every artifact once per round in random order; a broken one fails at its first visit."""
        chance = random.Random(seed)
        self.seeds.append(seed)
        broken: dict[Workload, MeasurementFailure] = {}
        handed: Counter[Workload] = Counter()
        for _ in range(rounds):
            for artifact in chance.sample(artifacts, len(artifacts)):
                workload = artifact.workload
                if workload in self.failures:
                    broken[workload] = MeasurementFailure(workload, *self.failures[workload])
                    continue
                if self.interrupt_after is not None and len(self.visits) >= self.interrupt_after:
                    self.interrupt_after = None
                    raise KeyboardInterrupt
                at = self.visits.count(workload)
                self.visits.append(workload)
                session = self.session(workload, chance, at)
                on_session(artifact, session)
                if on_drift is not None and at < len(self.drifts.get(workload, ())):
                    on_drift(artifact, handed[workload], self.drifts[workload][at])
                handed[workload] += 1
        return list(broken.values())

    def session(self, workload: Workload, chance: random.Random, number: int = 0) -> Session:
        """Twenty samples around the true latency."""
        clocks = self.clocks.get(workload, ())
        slow = math.exp(chance.gauss(0.0, self.wander)) if self.wander else 1.0
        centre = self.law(workload) * chance.gauss(1.0, self.noise) * slow**self.clock_sensitivity
        samples = tuple(centre * chance.gauss(1.0, self.noise / 5) for _ in range(20))
        crowdings = self.crowdings.get(workload, ())
        lost = workload in self.preempted
        return Session(
            samples_s=samples,
            cpu_s=sum(samples) * (0.5 if lost else 0.999),
            wall_s=sum(samples),
            involuntary_switches=len(samples) if lost else 0,
            load_s=0.001,
            first_s=samples[0],
            clock_hz=clocks[number] if number < len(clocks) else 2.4e9,
            crowding=crowdings[number] if number < len(crowdings) else 0.0,
            probe_s=PROBE_S * slow if self.wander else 0.0,
            drift=slow,
        )
