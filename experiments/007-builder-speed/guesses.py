"""How much of an adaptive profile's next batch is known before this one is measured. See README.md.

python experiments/007-builder-speed/guesses.py     # guesses.json
"""

import json
import random
import zlib
from pathlib import Path

from hwbench.latency import LatencyRow, LatencyTable, Role
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision, Workload
from hwbench.studies.profiling_walk import ProfilingWalk
from hwbench.testing.tables import CLASSES, installed_target, stats_of_law, work
from hwbench.workspace import Workspace

SPACES, SEEDS, BATCHES = ("x3d-mini", "x3d-mobile"), (0, 1), 4
# Standard deviation of the logarithm of each row, of which no model knows.
ROW_ERROR = 0.03


def row(workload: Workload, seed: int) -> LatencyRow:
    """A block or network on a simulated device: a law of work, with squeeze-excite and swish dearer, and an error."""
    seconds = 2e-5 + sum(
        (work(part) - 2e-5) * (1.3 if part.blocks[0].se_channels else 1.0) * (1.2 if "swish" in part.key else 1.0)
        for part in workload.parts()
    )
    error = random.Random(f"{seed} {zlib.crc32(workload.key.encode())}").gauss(0.0, ROW_ERROR)
    stats = stats_of_law(seconds * (1.0 + error))
    return LatencyRow(Role.of(workload), workload, Outcome.OK, stats, "2026-01-31", "c0ffee")


def shares(name: str, seed: int) -> list[float]:
    """The share of each batch, from the third on, that was expected while the one before it was measured."""
    walk = ProfilingWalk(load_space(Workspace.find(), name), Precision.INT8, CLASSES)
    known: dict[Workload, LatencyRow] = {}
    expected: set[Workload] = set()
    found = []
    for _ in range(BATCHES + 2):
        table = LatencyTable(installed_target(), Precision.INT8, known.values())
        batch = walk.batch(table)
        if expected:
            found.append(round(len(expected & set(batch)) / len(batch), 3))
        expected = set(walk.expected(table))
        known |= {workload: row(workload, seed) for workload in batch}
    return found


def main() -> None:
    results = {name: {str(seed): shares(name, seed) for seed in SEEDS} for name in SPACES}
    Path(__file__).with_name("guesses.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
