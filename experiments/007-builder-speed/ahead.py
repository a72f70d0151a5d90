"""What building the next batch while a device measures saves. See README.md.

python experiments/007-builder-speed/ahead.py [--rows 144] [--row-s 1.5] [--space x3d-mini]     # ahead.json
"""

import argparse
import functools
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hwbench.measure.build_ahead import builds_ahead
from hwbench.measure.builder import Builder
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import OnDrift
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import load_space
from hwbench.specs import Artifact, Precision, Session, Target, Timing, Workload
from hwbench.testing.fakes import FakeDevice
from hwbench.workspace import Workspace

# As the adaptive profile has them.
BATCH = 48
TIMING = Timing(min_rounds=3, max_rounds=3)


class FarDevice:
    """A device elsewhere that takes so many seconds for all sessions of a row; this machine waits meanwhile."""

    def __init__(self, folder: Path, row_s: float) -> None:
        self._sessions = FakeDevice(folder)
        self._session_s = row_s / TIMING.min_rounds
        self.measuring_s = 0.0

    def measure(
        self,
        artifacts: Sequence[Artifact],
        /,
        *,
        rounds: int,
        seed: int,
        on_session: Callable[[Artifact, Session], None],
        on_drift: OnDrift,
    ) -> Sequence[MeasurementFailure]:
        def keep(artifact: Artifact, session: Session) -> None:
            time.sleep(self._session_s)
            on_session(artifact, session)

        started = time.perf_counter()
        try:
            return self._sessions.measure(artifacts, rounds=rounds, seed=seed, on_session=keep, on_drift=on_drift)
        finally:
            self.measuring_s += time.perf_counter() - started


def one(rows: Sequence[Workload], row_s: float, *, ahead: bool) -> dict[str, float]:
    """Seconds of a campaign with cold caches, and the share of them in which the device measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        device = FarDevice(folder / "files", row_s)
        with (
            MeasurementStore(folder / "measurements.sqlite") as store,
            Builder("executorch", folder / "cache", processes=2) as builder,
        ):
            campaign = Campaign(
                store,
                Target("far", "executorch", builder.cache.version, 1),
                {"device": "far"},
                builder.build,
                device.measure,
                TIMING,
                build_key=builder.cache.key,
                batch=BATCH,
                ahead=functools.partial(builds_ahead, builder) if ahead else None,
            )
            result = campaign.run(rows)
    if len(result.ok) != len(rows):
        raise SystemExit(f"{len(result.failed)} rows failed, the first: {result.failed[0].reason}")
    return {"seconds": round(result.seconds, 1), "measuring": round(device.measuring_s / result.seconds, 3)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=144)
    options.add_argument("--row-s", type=float, default=1.5)
    options.add_argument("--space", default="x3d-mini")
    options.add_argument("--precision", nargs="+", default=[Precision.FP32, Precision.INT8], type=Precision)
    given = options.parse_args()
    space = load_space(Workspace.find(), given.space)
    results: dict[str, object] = {"space": given.space, "rows": given.rows, "row_s": given.row_s, "batch": BATCH}
    for precision in given.precision:
        parts = sorted(set(space.parts(precision)), key=lambda part: part.key)
        rows = random.Random(7).sample(parts, given.rows)
        results[precision.value] = {
            "one after the other": one(rows, given.row_s, ahead=False),
            "meanwhile": one(rows, given.row_s, ahead=True),
        }
        print(precision.value, json.dumps(results[precision.value]), flush=True)
    Path(__file__).with_name("ahead.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
