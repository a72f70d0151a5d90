"""The sentinel of a campaign: visits to it alone, and waiting until it is as fast as at first."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import InvalidFile
from hwbench.measure.bench import Bench
from hwbench.measure.drift import MAX_REFERENCE_VISITS, RECOVERED, Drift, Pauses
from hwbench.runtimes import protocol
from hwbench.runtimes.runners import STARTUP_S
from hwbench.scratch import scratch_folder
from hwbench.specs import Timing


@dataclass(frozen=True)
class Reference:
    """The sentinel of a campaign: what it takes, what it says, and waiting for it."""

    bench: Bench
    timing: Timing
    path: Path
    drift: Drift
    pauses: Pauses
    wait: Callable[[float], None]

    def warm_up(self) -> None:
        """Visits the sentinel until there is something to compare with."""
        if not self.drift.settled:
            for visit in self._visits(lambda: self.drift.settled):
                self.drift.add(median_s(visit))
                self.drift.crowded(visit.crowding_ppm * 1e-6)

    def waits(self, visit: protocol.Visit) -> bool:
        """The sentinel is too slow, and waiting may help: because of heat, or of another program on the core.

        A machine that tells neither clock nor heat is not hot.
        """
        told = bool(visit.clock_khz or visit.temp_mc)
        crowded = self.drift.crowded(visit.crowding_ppm * 1e-6)
        return self.drift.excessive and self.pauses.possible and (told or crowded)

    def _recovered(self, visit: protocol.Visit) -> bool:
        """As fast as at first; where only the probe tells of the clock, alone on its core."""
        if visit.probe_ns and not (visit.clock_khz or visit.temp_mc):
            return not self.drift.crowded(visit.crowding_ppm * 1e-6)
        return self.drift.ratio <= 1 + RECOVERED

    def still_slow(self) -> bool:
        """Visits the sentinel once more, at once: one slow visit may have been disturbed."""
        for visit in self._visits(lambda: False):
            self.drift.add(median_s(visit))
            break
        return self.drift.excessive

    def wait_until_recovered(self) -> None:
        """Waits for a machine that has become slow, as long as ``pauses`` allows."""
        if not self.drift.excessive:
            return
        for pause in self.pauses:
            if self.bench.report is not None:
                slower = self.drift.ratio - 1
                self.bench.report(
                    f"the device is {slower:.0%} slower than at first; waiting {pause:.0f} s for it to recover"
                )
            self.wait(pause)
            if self._has_recovered():
                return

    def _has_recovered(self) -> bool:
        for count, visit in enumerate(self._visits(lambda: False), 1):
            self.drift.add(median_s(visit))
            if self._recovered(visit):
                return True
            if count >= MAX_REFERENCE_VISITS:
                break
        return False

    def _visits(self, enough: Callable[[], bool]) -> Iterator[protocol.Visit]:
        """Visits to the sentinel alone, one after another in one process, until they are enough."""
        bench, limit = self.bench, STARTUP_S + self.timing.timeout_s
        with scratch_folder() as folder:
            listing = Path(folder, "list.tsv")
            listing.write_bytes(os.fsencode(f"{protocol.SENTINEL}\t{bench.push(self.path)}\n"))
            pushed = bench.push(listing)
            options = bench.options(self.timing, self.drift.undisturbed, list=pushed, rounds=MAX_REFERENCE_VISITS)
            process, since = bench.spawn(options), time.monotonic()
            try:
                while not enough() and (line := process.read_line(limit)) is not None:
                    if time.monotonic() - since > 2 * limit:
                        return  # it talks and comes to no end; so it will in the turn that follows
                    message = protocol.parse_line(line)
                    if isinstance(message, protocol.Error) and message.id == protocol.SENTINEL:
                        raise self.broken(message)
                    if isinstance(message, protocol.Visit):
                        yield message
                        since = time.monotonic()
            except (TimeoutError, protocol.MalformedLine):
                return  # the turn that follows meets the same and says so
            finally:
                process.kill()

    def broken(self, message: protocol.Error) -> InvalidFile:
        """What to raise where the sentinel does not load or run."""
        return InvalidFile(f"{self.path}: the sentinel cannot be run: {message.reason}")


def median_s(visit: protocol.Visit) -> float:
    """Median of the samples of a visit, in seconds."""
    return statistics.median(visit.samples_ns) * 1e-9
