"""Predicted against measured latencies of networks that were never used to predict. See README.md.

python experiments/006-latency-accuracy/run.py            # every figure again, from the raw data in the folders
python experiments/006-latency-accuracy/run.py plan       # draw the networks; what must be measured to predict them
python experiments/006-latency-accuracy/run.py build      # build all of it, which takes an hour on two cores
python experiments/006-latency-accuracy/run.py measure --to NAME    # measure it on this machine, write it to NAME/
"""

import argparse
import csv
import io
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from hwbench.devices import load_device
from hwbench.latency import (
    AdditivePredictor,
    Comparison,
    LatencyRow,
    LatencyTable,
    Role,
    Validation,
    context_chains,
    convolutions,
    macs,
)
from hwbench.latency.predictor import NOMINAL
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.campaign import Watch
from hwbench.measure.drift import by_clock, followed
from hwbench.measure.on_device import campaign_on
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import StagedSpace, load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import (
    BlockSpec,
    Estimate,
    LatencyStats,
    Measurement,
    Outcome,
    Precision,
    Session,
    Target,
    TensorSpec,
    Timing,
    Workload,
)
from hwbench.specs.block import ACTIVATIONS
from hwbench.workspace import Workspace

HERE = Path(__file__).parent
SPACE, CLASSES, SEED = "x3d-mobile", 400, 6
# Budgets that bound the bands, in multiply-adds: before there is a table there are no milliseconds to draw by.
BANDS = ((0.15e9, 0.3e9), (0.3e9, 0.6e9), (0.6e9, 1.2e9), (1.2e9, 2.4e9), (2.4e9, 4.8e9))
# Networks of each band, by role. Those of MORE and LATE were drawn later, and are not in the data of every machine;
# LATE when the predictor had got its present form.
FIRST = {"held-out": 8, "calibration": 4}
MORE = {"more-held-out": 4, "more-calibration": 4}
LATE = {"late-held-out": 12, "late-calibration": 8}
HELD_OUT, CALIBRATION = (tuple(roles) for roles in zip(FIRST, MORE, LATE))
BLOCKS = ("block", "late-block")
# Boundaries told by probes, chains of blocks (as was done before), and kernels of each kind.
BOUNDARIES, CHAINS, CHAIN_LENGTH, KERNELS = 40, 40, 4, 75
SPLITS = 200
# Sessions of one row lie minutes apart: what others do to the memory of this machine lasts for seconds.
TIMING = Timing(warmup_s=0.02, min_session_s=0.05, min_rounds=5, max_rounds=7)
# Whole networks are what predictions are held against, and vary by 2 to 3 % from session to session.
TIMING_OF_NETWORKS = replace(TIMING, min_rounds=12, max_rounds=15)
BATCH = 215
# A workload is told by the beginning of its digest, of which older files have more; plan.json has it whole.
DIGEST = 10
COLUMNS = ("role", "workload", "outcome", "drift", "samples", "median_ns", "p10_ns", "p90_ns")
RETRY = (Outcome.LOST, Outcome.NOISY)
BUILD_ORDER = (*CALIBRATION, *HELD_OUT, "boundary", *BLOCKS, "chain", "kernel")


def plan() -> None:
    """Draws the networks, uniformly from each band, and lists what must be measured; writes ``plan.json``."""
    space = load_space(Workspace.find(), SPACE)
    sums = SpaceSums.of(space, lambda b, x: float(macs(Workload((b,), x))), num_classes=CLASSES)
    rng = np.random.default_rng(SEED)
    seen: dict[Workload, None] = {}
    roles = draw(space, sums, FIRST, rng, seen)
    parts = [part for network in seen for part in network.parts()]
    chains = chains_of_blocks(parts)
    roles |= draw(space, sums, MORE, np.random.default_rng([SEED, 1]), seen)
    roles["block"] = [w.key for w in sorted({part for whole in (*seen, *chains) for part in whole.parts()})]
    roles["chain"] = [w.key for w in chains]
    roles["boundary"] = [w.key for w in context_chains(parts, BOUNDARIES)]
    members = (space.network(space.random(rng), CLASSES).workload(Precision.FP32) for _ in range(1000))
    roles["kernel"] = [w.key for w in some_kernels(members)]
    roles |= draw(space, sums, LATE, np.random.default_rng([SEED, 2]), seen)
    later = {part.key for network in seen for part in network.parts()}.difference(roles["block"])
    roles["late-block"] = sorted(later)
    text = {"space": SPACE, "classes": CLASSES, "seed": SEED, "bands_macs": BANDS, **roles}
    (HERE / "plan.json").write_text(json.dumps(text, indent=1) + "\n")
    print({role: len(keys) for role, keys in roles.items()})


def draw(
    space: StagedSpace, sums: SpaceSums, roles: dict[str, int], rng: np.random.Generator, seen: dict[Workload, None]
) -> dict[str, list[str]]:
    """So many networks of each role from each band, none of which was ``seen``; the roles follow the order of bands."""
    found: dict[str, list[str]] = {role: [] for role in roles}
    for low, high in BANDS:
        feasible = FeasibleSet(sums, high)
        for role, count in roles.items():
            wanted = len(found[role]) + count
            while len(found[role]) < wanted:
                network = space.network(feasible.draw(rng, (low / high, 1.0)), CLASSES).workload(Precision.FP32)
                found[role] += [] if network in seen else [network.key]
                seen[network] = None
    return found


def chains_of_blocks(parts: list[Workload]) -> list[Workload]:
    """Chains of the cheapest blocks between whose copies an activation lies, or of a pair of blocks around it."""
    ends: dict[TensorSpec, tuple[list[Workload], list[Workload]]] = {}
    for part in dict.fromkeys(parts):
        ends.setdefault(part.output, ([], []))[0].append(part)
        ends.setdefault(part.input, ([], []))[1].append(part)
    found = []
    for before, after in ends.values():
        copied = [part for part in after if part.output == part.input]
        if copied:
            least = min(copied, key=lambda part: (macs(part), part.key))
            found.append(Workload(least.blocks * CHAIN_LENGTH, least.input, least.precision))
        elif before and after:
            first, last = (min(those, key=lambda part: (macs(part), part.key)) for those in (before, after))
            found.append(Workload(first.blocks + last.blocks, first.input, first.precision))
    found.sort(key=lambda chain: (list(chain.parts())[1].input.numel, chain.key))
    return [found[at] for at in sorted(set(np.linspace(0, len(found) - 1, CHAINS).astype(int).tolist()))]


def kernels_of(part: Workload) -> list[Workload]:
    """The convolutions of a block, each with the activation that is fused to it, as blocks of their own."""
    (block,) = part.blocks
    found = []
    for conv in convolutions(block, part.input):
        act = "identity" if conv.role == "gate" else block.activation if conv.groups > 1 else "relu"
        groups, stride = conv.groups, conv.stride
        spec = BlockSpec(
            "conv", conv.input.c, conv.out_channels, kernel=(conv.kernel,), stride=stride, groups=groups, activation=act
        )
        found.append(Workload((spec,), conv.input, part.precision))
    return found


def some_kernels(networks: Iterable[Workload]) -> list[Workload]:
    """``KERNELS`` depthwise and as many other convolutions, one of each kind from each network."""
    found: dict[bool, dict[Workload, None]] = {True: {}, False: {}}
    rng = np.random.default_rng(SEED)
    for network in networks:
        for depthwise, those in found.items():
            drawn = [k for p in network.parts() for k in kernels_of(p) if (k.blocks[0].groups > 1) == depthwise]
            those[drawn[int(rng.integers(len(drawn)))]] = None
        if min(map(len, found.values())) >= KERNELS:
            break
    return [kernel for those in found.values() for kernel in list(those)[:KERNELS]]


def planned(precision: Precision) -> dict[str, list[Workload]]:
    """The workloads of each role."""
    text = json.loads((HERE / "plan.json").read_text())
    return {role: [with_precision(Workload.parse(key), precision) for key in text[role]] for role in BUILD_ORDER}


def with_precision(workload: Workload, precision: Precision) -> Workload:
    return Workload(workload.blocks, workload.input, precision, workload.variant)


def build(precisions: list[Precision], roles: list[str]) -> None:
    """Fills the cache of the workspace."""
    start, done = time.monotonic(), 0
    with Builder("executorch", Workspace.find().cache, time_limit_s=3600) as builder:
        for precision in precisions:
            wanted = planned(precision)
            for result in builder.build([w for role in roles for w in wanted[role]]):
                done += 1
                said = result.reason if isinstance(result, BuildFailure) else "ok"
                blocks = len(result.workload.blocks)
                print(f"{time.monotonic() - start:.0f} s, {done}, {precision}, {blocks} blocks: {said}", flush=True)


def measure(precisions: list[Precision], roles: list[str], to: Path, *, anew: bool) -> None:
    """Measures what is planned, networks after the rest, each in one random order, and writes ``PRECISION.csv`` and, of
    what was drawn late, ``PRECISION-late.csv``: a line for each session.

    What this workspace has rows of is not measured again, except ``anew``.
    """
    workspace = Workspace.find()
    to.mkdir(exist_ok=True)
    device = load_device(workspace, "local")
    for precision in precisions:
        wanted = {role: workloads for role, workloads in planned(precision).items() if role in roles}
        alone = (*BLOCKS, "boundary", "kernel")
        whole = [w for role in roles if role not in alone for w in wanted[role]]
        needed = {part for workload in whole for part in workload.parts()}
        for role in set(BLOCKS).intersection(wanted):
            wanted[role] = [part for part in wanted[role] if part in needed]
        role_of = {workload: role for role, workloads in wanted.items() for workload in workloads}
        networks = [w for w, role in role_of.items() if role in (*CALIBRATION, *HELD_OUT)]
        parts = [w for w, role in role_of.items() if role not in (*CALIBRATION, *HELD_OUT)]
        rows: list[Measurement] = []
        seconds = 0.0
        with MeasurementStore(workspace.store) as store:
            for timing, some in [(t, w) for t, w in ((TIMING, parts), (TIMING_OF_NETWORKS, networks)) if w]:
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


def as_csv(rows: list[tuple[str, Measurement]], clock_s: float) -> str:
    """A line for each session of rows with their roles, or one for a row without."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(COLUMNS)
    for role, row in rows:
        first = (role, row.workload.sha256[:DIGEST], row.outcome)
        lines.writerows((*first, *numbers(session, clock_s)) for session in row.sessions)
        if not row.sessions:
            lines.writerow((*first, "", "", "", "", ""))
    return file.getvalue()


class Progress(Watch):
    """Prints a line for every fiftieth row, and every failure."""

    def __init__(self) -> None:
        self._count, self._start = 0, time.monotonic()

    def measured(self, measurement: Measurement) -> None:
        self._count += 1
        if measurement.outcome is not Outcome.OK:
            print(f"{measurement.workload.key[:80]}: {measurement.outcome}: {measurement.reason}", flush=True)
        if self._count % 50 == 0:
            print(f"{time.monotonic() - self._start:.0f} s: {self._count} rows", flush=True)


def numbers(session: Session, clock_s: float) -> tuple[object, ...]:
    """Under ``drift`` stands the clock: how far latencies follow it is told from the data, when they are read."""
    low, centre, high = (round(1e9 * float(q)) for q in np.quantile(session.samples_s, (0.1, 0.5, 0.9)))
    return f"{session.probe_s / clock_s:.5f}", len(session.samples_s), centre, low, high


@dataclass(frozen=True)
class Data:
    """The raw data of one precision on one machine: statistics by role and workload.

    ``followed`` is how far its latencies follow the clock.
    """

    target: Target
    precision: Precision
    rows: dict[tuple[str, Workload], LatencyStats]
    followed: float

    @classmethod
    def read(cls, folder: Path, precision: Precision) -> "Data":
        """What was drawn late is read, too, where it was measured."""
        paths = [p for name in (f"{precision}.csv", f"{precision}-late.csv") if (p := folder / name).exists()]
        lines = [path.read_text().splitlines() for path in paths]
        known = {(role, w.sha256[:DIGEST]): w for role, those in planned(precision).items() for w in those}
        sessions: dict[tuple[str, Workload], list[Session]] = {}
        for line in itertools.chain.from_iterable(csv.DictReader(those[1:]) for those in lines):
            if line["outcome"] == Outcome.OK:
                samples = tuple(int(line[name]) / 1e9 for name in ("p10_ns", "median_ns", "p90_ns"))
                place = line["role"], known[line["role"], line["workload"][:DIGEST]]
                sessions.setdefault(place, []).append(Session(samples, probe_s=float(line["drift"])))
        follow = followed(sessions.values())
        rows = {
            place: LatencyStats.of([replace(s, drift=by_clock(s.probe_s, 1.0, follow)) for s in found])
            for place, found in sessions.items()
        }
        return cls(Target.parse(json.loads(lines[0][0][2:])["target"]), precision, rows, follow)

    def without(self, *roles: str) -> "Data":
        """As if workloads had not been measured in these roles."""
        return replace(self, rows={place: stats for place, stats in self.rows.items() if place[0] not in roles})

    def role(self, *roles: str) -> dict[Workload, LatencyStats]:
        """What was measured in one of these roles."""
        return {workload: stats for (its, workload), stats in self.rows.items() if its in roles}

    def bands(self, *roles: str) -> list[list[Workload]]:
        """The measured networks of these roles, by band."""
        wanted, measured = planned(self.precision), self.role(*roles)
        found: list[list[Workload]] = [[] for _ in BANDS]
        for role in roles:
            for band, part in zip(found, np.array_split(np.arange(len(wanted[role])), len(BANDS))):
                band += [wanted[role][at] for at in part if wanted[role][at] in measured]
        return found

    def table(self, networks: int | None = None, chains: str = "boundary") -> LatencyTable:
        """The table as ``hwbench profile`` makes it, with some of the calibration networks, spread over the bands.

        ``chains`` is the role that tells of boundaries; without rows of it, chains of blocks do.
        """
        those = self.role(*CALIBRATION)
        if networks is not None:
            turns = itertools.chain.from_iterable(itertools.zip_longest(*self.bands(*CALIBRATION)))
            those = {network: those[network] for network in [n for n in turns if n is not None][:networks]}
        return self.table_with(those, chains)

    def table_with(self, networks: dict[Workload, LatencyStats], chains: str = "boundary") -> LatencyTable:
        """Likewise, with these calibration networks."""
        roles = (
            (Role.BLOCK, self.role(*BLOCKS)),
            (Role.CHAIN, self.role(chains) or self.role("chain")),
            (Role.NETWORK, networks),
        )
        rows = [LatencyRow(role, w, Outcome.OK, s, "2026-11-21") for role, those in roles for w, s in those.items()]
        return LatencyTable(self.target, self.precision, rows)


Predict = Callable[[Workload], float]


def of_macs(data: Data) -> Predict:
    """Multiply-adds, scaled."""
    return macs


def isolated_sum(data: Data) -> Predict:
    """Every block as it was measured alone."""
    table = data.table()
    return lambda network: sum(table[part].median_s for part in network.parts())


def operators(data: Data) -> Predict:
    """Every convolution by itself, from random forests over measured convolutions (nn-Meter, Zhang et al. 2021)."""
    forests = {}
    measured = data.role("kernel")
    for depthwise in (True, False):
        those = {w: stats for w, stats in measured.items() if (w.blocks[0].groups > 1) == depthwise}
        forest = RandomForestRegressor(n_estimators=100, random_state=SEED, n_jobs=1)
        # Per multiply-add: trees do not extrapolate, and this hardly varies.
        forests[depthwise] = forest.fit(
            [features(w) for w in those], [math.log(stats.median_s / macs(w)) for w, stats in those.items()]
        )

    def predict(network: Workload) -> float:
        kernels = [kernel for part in network.parts() for kernel in kernels_of(part)]
        total = 0.0
        for depthwise, forest in forests.items():
            those = [kernel for kernel in kernels if (kernel.blocks[0].groups > 1) == depthwise]
            per_mac = np.exp(forest.predict([features(kernel) for kernel in those]))
            total += float(per_mac @ [macs(kernel) for kernel in those])
        return total

    return predict


def per_operator(data: Data) -> dict[str, list[Comparison]]:
    """Both forms of ``operators``; none where no convolution was measured by itself."""
    if not data.role("kernel"):
        return {}
    predict = operators(data)
    return {
        "per operator, scaled": compared(data, predict, fitted=True),
        "per operator": compared(data, predict, fitted=False),
    }


def features(kernel: Workload) -> list[float]:
    (block,), x = kernel.blocks, kernel.input
    ((time_, height, _),) = block.kernel
    acts = [float(block.activation == act) for act in ACTIVATIONS]
    sizes = (macs(kernel), x.c, block.out_channels, x.t, x.h, x.numel, kernel.output.numel)
    return [*(math.log(size) for size in sizes), time_, height, block.stride, *acts]


def compared(data: Data, predict: Predict, *, fitted: bool) -> list[Comparison]:
    """A simple predictor on the held-out networks, scaled to the calibration networks or as it is."""
    ratios = [stats.median_s / predict(w) for w, stats in data.role(*CALIBRATION).items()]
    gain = statistics.median(ratios) if fitted else 1.0
    left_out = sorted(
        abs(math.log(ratio / (statistics.median(ratios[:i] + ratios[i + 1 :]) if fitted else 1.0)))
        for i, ratio in enumerate(ratios)
    )
    spread = math.exp(left_out[min(math.ceil((len(left_out) + 1) * NOMINAL), len(left_out)) - 1])
    found = []
    for network, stats in data.role(*HELD_OUT).items():
        seconds = gain * predict(network)
        interval = Estimate(seconds, seconds / spread, seconds * spread)
        found.append(Comparison(network.sha256[:8], interval, stats.median_s))
    return found


def ours(data: Data, networks: int | None = None, chains: str = "boundary") -> list[Comparison]:
    """``hwbench``'s predictor on the held-out networks."""
    predictor = AdditivePredictor.fit(data.table(networks, chains), space=SPACE)
    held_out = data.role(*HELD_OUT).items()
    return [Comparison(w.sha256[:8], predictor.predict(w), stats.median_s) for w, stats in held_out]


def draws_apart(data: Data) -> dict[str, list[Comparison]]:
    """Likewise, with the networks of the first two draws only, and with those that were drawn late only."""
    first, late = (*FIRST, *MORE), tuple(LATE)
    if not data.role(*late):
        return {}
    return {"hwbench, first draws": ours(data.without(*late)), "hwbench, late draw": ours(data.without(*first))}


def split_again(data: Data) -> dict[str, object]:
    """Accuracy where other networks are held out: all are dealt again, in each band as many as in the plan.

    A hundred networks held out tell a coverage of 90 % to 3 % (one standard deviation), and those to calibrate with
    vary, too; this tells how it is on average.
    """
    measured = data.role(*HELD_OUT, *CALIBRATION)
    counts = [len(band) for band in data.bands(*CALIBRATION)]
    rng = np.random.default_rng(SEED)
    coverages, medians, within_5 = [], [], []
    for _ in range(SPLITS):
        chosen = {}
        for band, count in zip(data.bands(*HELD_OUT, *CALIBRATION), counts):
            chosen |= {band[i]: measured[band[i]] for i in rng.permutation(len(band))[:count]}
        predictor = AdditivePredictor.fit(data.table_with(chosen), space=SPACE)
        rest = {w: stats for w, stats in measured.items() if w not in chosen}
        found = Validation.of(
            [Comparison(w.sha256[:8], predictor.predict(w), stats.median_s) for w, stats in rest.items()], NOMINAL
        )
        coverages.append(found.coverage)
        medians.append(found.median_error)
        within_5.append(found.within_5)
    return {
        "splits": SPLITS,
        "coverage": statistics.fmean(coverages),
        "coverage_p10": float(np.quantile(coverages, 0.1)),
        "coverage_p90": float(np.quantile(coverages, 0.9)),
        "median_error": statistics.median(medians),
        "largest_median_error": max(medians),
        "within_5": statistics.fmean(within_5),
    }


def evaluate(precisions: list[Precision]) -> None:
    """Prints every figure and writes them to ``results.json``."""
    results: dict[str, dict[str, dict[str, object]]] = {}
    for path in sorted(HERE.glob("*/*.csv")):
        if path.stem not in precisions:
            continue
        folder, precision = path.parent, Precision(path.stem)
        data = Data.read(folder, precision)
        count = len(data.role(*CALIBRATION))
        both = data.role("boundary") and data.role("chain")
        methods = {
            "hwbench": ours(data),
            **draws_apart(data),
            **{f"hwbench, {few} networks": ours(data, few) for few in (5, 10, 20, 40) if few < count},
            **({"hwbench, chains of blocks": ours(data, chains="chain")} if both else {}),
            "sum of isolated rows, scaled": compared(data, isolated_sum(data), fitted=True),
            "sum of isolated rows": compared(data, isolated_sum(data), fitted=False),
            **per_operator(data),
            "MACs, scaled": compared(data, of_macs(data), fitted=True),
        }
        summaries = {name: Validation.of(found, NOMINAL) for name, found in methods.items()}
        calibration = AdditivePredictor.fit(data.table(), space=SPACE).calibration
        held_out = len(data.role(*HELD_OUT))
        print(f"{folder.name} {precision}: {held_out} held-out, {count} calibration networks; {calibration.form}")
        print(f"latencies follow the clock by {data.followed:.2f}")
        print("| | median | mean | within 5 % | within 10 % | Spearman | coverage |", "| --- " * 7 + "|", sep="\n")
        for name, s in summaries.items():
            shares = f"{100 * s.within_5:.0f} | {100 * s.within_10:.0f} | {s.spearman:.3f} | {100 * s.coverage:.0f}"
            print(f"| {name} | {100 * s.median_error:.2f} | {100 * s.mape:.2f} | {shares} |")
        for c in sorted(methods["hwbench"], key=lambda c: -abs(c.error)):
            print(f"  {c.name} {c.error:+.1%} {1e3 * c.measured_s:.2f} ms", "" if c.covered else "outside")
        again = split_again(data)
        shown = ", ".join(f"{name} {value:.3g}" for name, value in again.items())
        print(f"dealt again: {shown}")
        found = {name: asdict(summary) for name, summary in summaries.items()} | {"hwbench, dealt again": again}
        results.setdefault(folder.name, {})[precision.value] = found
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", default="evaluate", choices=("plan", "build", "measure", "evaluate"))
    options.add_argument("--precision", nargs="+", type=Precision, default=list(Precision))
    options.add_argument("--roles", nargs="+", choices=BUILD_ORDER, default=BUILD_ORDER, help="and their blocks")
    options.add_argument("--to", default="here", help="folder beside this file that takes what is measured")
    options.add_argument("--anew", action="store_true", help="measure again what is measured")
    given = options.parse_args()
    if given.what == "plan":
        plan()
    elif given.what == "build":
        build(given.precision, given.roles)
    elif given.what == "measure":
        measure(given.precision, given.roles, HERE / given.to, anew=given.anew)
    else:
        evaluate(given.precision)


if __name__ == "__main__":
    main()
