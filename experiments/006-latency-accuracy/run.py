"""Predicted against measured latencies of networks that were never used to predict. See README.md.

python experiments/006-latency-accuracy/run.py            # every figure again, from the raw data in the folders
python experiments/006-latency-accuracy/run.py plan       # draw the networks; what must be measured to predict them
python experiments/006-latency-accuracy/run.py build      # build all of it, which takes three hours on two cores
python experiments/006-latency-accuracy/run.py measure --to NAME    # measure it on this machine, write it to NAME/
"""

import argparse
import itertools
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from data import Data, as_csv
from networks import BANDS, BLOCKS, CALIBRATION, HELD_OUT, HERE, ROLES, SEED, SPACE, plan, planned
from predictors import compared, draws_apart, isolated_sum, of_macs, ours, per_operator, split_again

from hwbench.devices import load_device
from hwbench.latency import AdditivePredictor, Validation
from hwbench.latency.calibration import NOMINAL
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.campaign import CampaignWatch
from hwbench.measure.on_device import campaign_on
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Measurement, Outcome, Precision, Timing, Workload
from hwbench.workspace import Workspace

SPLITS = 200
# Networks to calibrate with that are dealt besides, as many of each band.
FEW, FEW_SPLITS = (5, 10, 20, 40), 50
# Sessions of one row lie minutes apart: what others do to the memory of this machine lasts for seconds.
TIMING = Timing(warmup_s=0.02, min_session_s=0.05, min_rounds=5, max_rounds=7)
# Whole networks are what predictions are held against, and vary by 2 to 3 % from session to session.
TIMING_OF_NETWORKS = replace(TIMING, min_rounds=12, max_rounds=15)
# Where time is short (``--short``).
SHORT = (replace(TIMING, max_rounds=5), replace(TIMING, min_rounds=8, max_rounds=9))
BATCH = 215
RETRY = (Outcome.LOST, Outcome.NOISY)


def needed(precision: Precision, roles: list[str]) -> dict[str, list[Workload]]:
    """What is planned of these roles, but of blocks only those that the networks and chains among it consist of.

    Behind the name of a role may stand how many of each band are enough: ``held-out:4``.
    """
    text, wanted = planned(precision), {}
    for role, _, count in (role.partition(":") for role in roles):
        bands = np.array_split(np.arange(len(text[role])), len(BANDS) if count else 1)
        wanted[role] = [text[role][at] for band in bands for at in band[: int(count) if count else None]]
    whole = [w for role in wanted if role not in (*BLOCKS, "boundary", "kernel") for w in wanted[role]]
    parts = {part for workload in whole for part in workload.parts()}
    for role in set(BLOCKS).intersection(wanted):
        wanted[role] = [part for part in wanted[role] if part in parts]
    return wanted


def build(precisions: list[Precision], roles: list[str]) -> None:
    """Fills the cache of the workspace."""
    start, done = time.monotonic(), 0
    with Builder("executorch", Workspace.find().cache, time_limit_s=3600) as builder:
        for precision in precisions:
            for result in builder.build(itertools.chain.from_iterable(needed(precision, roles).values())):
                done += 1
                said = result.reason if isinstance(result, BuildFailure) else "ok"
                blocks = len(result.workload.blocks)
                print(f"{time.monotonic() - start:.0f} s, {done}, {precision}, {blocks} blocks: {said}", flush=True)


def measure(
    precisions: list[Precision], roles: list[str], to: Path, *, anew: bool, timings: tuple[Timing, Timing]
) -> None:
    """Measures what is planned, networks after the rest, each in one random order, and writes ``PRECISION.csv`` and, of
    what was drawn late, ``PRECISION-late.csv``: a line for each session.

    What this workspace has rows of is not measured again, except ``anew``. ``timings`` are those of the parts of
    networks and of networks.
    """
    workspace = Workspace.find()
    to.mkdir(exist_ok=True)
    device = load_device(workspace, "local")
    for precision in precisions:
        role_of = {w: role for role, workloads in needed(precision, roles).items() for w in workloads}
        networks = [w for w, role in role_of.items() if role in (*CALIBRATION, *HELD_OUT)]
        parts = [w for w, role in role_of.items() if role not in (*CALIBRATION, *HELD_OUT)]
        rows: list[Measurement] = []
        seconds = 0.0
        with MeasurementStore(workspace.store) as store:
            for timing, some in [(t, w) for t, w in zip(timings, (parts, networks)) if w]:
                order = [some[i] for i in np.random.default_rng(SEED).permutation(len(some))]
                with campaign_on(
                    device, store=store, cache_dir=workspace.cache, threads=1, timing=timing, retry=RETRY, report=print
                ) as campaign:
                    if anew:
                        campaign.reopen(order)
                    result = replace(campaign, batch=BATCH).run(order, Progress())
                    said = {**campaign.conditions, "target": campaign.target.key}
                    clock_s = store.clock(campaign.conditions)
                rows += result.measurements
                seconds += result.seconds
        failed = sum(row.outcome is not Outcome.OK for row in rows)
        print(f"{precision}: {len(rows) - failed} ok, {failed} failed, {seconds:.0f} s")
        header = f"# {json.dumps(said | {'seconds': round(seconds)}, sort_keys=True)}\n"
        for name, late in ((f"{precision}.csv", False), (f"{precision}-late.csv", True)):
            those = [(role, row) for row in rows if (role := role_of[row.workload]).startswith("late-") == late]
            if those:
                (to / name).write_text(header + as_csv(those, clock_s))


class Progress(CampaignWatch):
    """Prints a line for every fiftieth row, and every failure."""

    def __init__(self) -> None:
        self._count, self._start = 0, time.monotonic()

    def measured(self, measurement: Measurement) -> None:
        self._count += 1
        if measurement.outcome is not Outcome.OK:
            print(f"{measurement.workload.key[:80]}: {measurement.outcome}: {measurement.reason}", flush=True)
        if self._count % 50 == 0:
            print(f"{time.monotonic() - self._start:.0f} s: {self._count} rows", flush=True)


def evaluate(precisions: list[Precision], folders: list[str]) -> None:
    """Prints every figure and writes them to ``results.json``, one set of data on each core; other sets stay there."""
    out = HERE / "results.json"
    results: dict[str, dict[str, dict[str, object]]] = json.loads(out.read_text()) if out.exists() else {}
    paths = (path for path in sorted(HERE.glob("*/*.csv")) if path.parent.name in folders or not folders)
    sets = [(path.parent, Precision(path.stem)) for path in paths if path.stem in precisions]
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for (folder, precision), (text, found) in zip(sets, processes.map(evaluate_set, *zip(*sets))):
            print(text, flush=True)
            results.setdefault(folder.name, {})[precision.value] = found
    out.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


def evaluate_set(folder: Path, precision: Precision) -> tuple[str, dict[str, object]]:
    """The figures of one set of data, as text and by name."""
    data = Data.read(folder, precision)
    count = len(data.role(*CALIBRATION))
    both = data.role("boundary") and data.role("chain")
    methods = {
        "hwbench": ours(data),
        **draws_apart(data),
        **({"hwbench, chains of blocks": ours(data, "chain")} if both else {}),
        "sum of isolated rows, scaled": compared(data, isolated_sum(data), fitted=True),
        "sum of isolated rows": compared(data, isolated_sum(data), fitted=False),
        **per_operator(data),
        "MACs, scaled": compared(data, of_macs(data), fitted=True),
    }
    summaries = {name: Validation.of(found, NOMINAL) for name, found in methods.items()}
    found: dict[str, object] = {name: asdict(summary) for name, summary in summaries.items()}
    calibration = AdditivePredictor.fit(data.table(), space=SPACE).calibration
    held_out = len(data.role(*HELD_OUT))
    lines = [
        f"{folder.name} {precision}: {held_out} held-out, {count} calibration networks; {calibration.form}",
        f"latencies follow the clock by {data.followed:.2f}",
        "| | median | mean | within 5 % | within 10 % | Spearman | coverage |",
        "| --- " * 7 + "|",
    ]
    for name, s in summaries.items():
        shares = f"{100 * s.within_5:.0f} | {100 * s.within_10:.0f} | {s.spearman:.3f} | {100 * s.coverage:.0f}"
        lines.append(f"| {name} | {100 * s.median_error:.2f} | {100 * s.mape:.2f} | {shares} |")
    for c in sorted(methods["hwbench"], key=lambda c: -abs(c.error)):
        lines.append(f"  {c.name} {c.error:+.1%} {1e3 * c.measured_s:.2f} ms {'' if c.covered else 'outside'}")
    planned_counts = [len(band) for band in data.bands(*CALIBRATION)]
    few = [(FEW_SPLITS, [some // len(BANDS)] * len(BANDS)) for some in FEW if some < count]
    for splits, counts in (*few, (SPLITS, planned_counts)):
        again = split_again(data, counts, splits)
        lines.append("dealt again: " + ", ".join(f"{name} {value:.3g}" for name, value in again.items()))
        found[f"hwbench, dealt again, {sum(counts)} networks"] = again
    return "\n".join(lines), found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", default="evaluate", choices=("plan", "build", "measure", "evaluate"))
    options.add_argument("--precision", nargs="+", type=Precision, default=list(Precision))
    options.add_argument(
        "--roles", nargs="+", default=ROLES, help=f"of {', '.join(ROLES)}; late-held-out:8: the first 8 of each band"
    )
    options.add_argument("--to", default="here", help="folder beside this file that takes what is measured")
    options.add_argument("--of", nargs="+", default=[], metavar="FOLDER", help="evaluate these only; all, if not said")
    options.add_argument("--short", action="store_true", help="fewer sessions: 5 of each block, 8 of each network")
    options.add_argument("--anew", action="store_true", help="measure again what is measured")
    given = options.parse_args()
    if unknown := {role.partition(":")[0] for role in given.roles}.difference(ROLES):
        options.error(f"--roles: expected some of {', '.join(ROLES)}, got {', '.join(sorted(unknown))}")
    if given.what == "plan":
        plan()
    elif given.what == "build":
        build(given.precision, given.roles)
    elif given.what == "measure":
        timings = SHORT if given.short else (TIMING, TIMING_OF_NETWORKS)
        measure(given.precision, given.roles, HERE / given.to, anew=given.anew, timings=timings)
    else:
        evaluate(given.precision, given.of)


if __name__ == "__main__":
    main()
