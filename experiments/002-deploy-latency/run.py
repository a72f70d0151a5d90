"""X3D in every engine on one thread: PyTorch in three ways, ONNX Runtime, LiteRT, OpenVINO, ours. See README.md.

python experiments/002-deploy-latency/run.py [--models x3d-xs x3d-s x3d-m] [--rounds 7] [--device local]
"""

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiled_runtime import offered

from hwbench.blocks.mobile_cpu.layouts import variants
from hwbench.devices import Device, load_device
from hwbench.errors import MissingDependency
from hwbench.latency import macs
from hwbench.measure.artifact_check import profile_ops
from hwbench.measure.bench import Bench, open_bench
from hwbench.measure.builder import BuildFailure, build_all
from hwbench.measure.file_profile import kind_of
from hwbench.measure.runner import measure_sessions
from hwbench.runtimes import get
from hwbench.spaces import resolve
from hwbench.specs import AUTO, Artifact, LatencyStats, Network, Precision, Session, Timing, Workload
from hwbench.workspace import Workspace

SESSION = Timing(min_samples=5, min_session_s=0.5, max_session_s=10.0, timeout_s=300.0)
THREADS = 1
FP32, INT8 = Precision.FP32, Precision.INT8
PER_FRAME = "per-frame"
# A product of a 3136 x 768 and a 768 x 768 matrix, as a 1 x 1 x 1 convolution: what a core gives at best through an
# engine. It takes tens of milliseconds, so that what a call costs does not show.
GEMM = Workload.parse("conv_i768_o768_k1x1x1_relu@1x768x4x28x28/fp32/auto")


# What a file is: ("net" or "gemm", row).
Name = tuple[str, str]


@dataclass(frozen=True)
class Entry:
    """A row of the table: the network in an engine, at a precision, in a layout."""

    runtime: str
    precision: Precision = FP32
    variant: str = AUTO

    def workload(self, network: Network) -> Workload:
        return network.workload(self.precision, self.variant)

    @property
    def gemm(self) -> Workload:
        return Workload(GEMM.blocks, GEMM.input, self.precision)


ENTRIES = {
    "eager PyTorch": Entry("torch"),
    "TorchScript": Entry("torchscript"),
    "ONNX Runtime": Entry("onnx"),
    "torch.compile": Entry("torch-compile"),
    "OpenVINO": Entry("openvino"),
    "LiteRT": Entry("litert"),
    "per frame (2021)": Entry("torchscript", variant=PER_FRAME),
    "hwbench": Entry("executorch"),
    "TorchScript int8": Entry("torchscript", INT8),
    "ONNX Runtime int8": Entry("onnx", INT8),
    "OpenVINO int8": Entry("openvino", INT8),
    "LiteRT int8": Entry("litert", INT8),
    "per frame (2021) int8": Entry("torchscript", INT8, PER_FRAME),
    "hwbench int8": Entry("executorch", INT8),
}
OURS = {FP32: "hwbench", INT8: "hwbench int8"}
OPENVINO = {FP32: "OpenVINO", INT8: "OpenVINO int8"}


def build(wanted: Mapping[Name, tuple[str, Workload]], workspace: Workspace) -> dict[Name, Artifact]:
    """The files by name, through the cache; what does not build is told and left out."""
    by_runtime: dict[str, dict[Workload, list[Name]]] = defaultdict(lambda: defaultdict(list))
    for name, (runtime, workload) in wanted.items():
        by_runtime[runtime][workload].append(name)
    found = {}
    for runtime, names in by_runtime.items():
        for result in build_all(names, runtime, workspace.cache):
            for name in names[result.workload]:
                if isinstance(result, BuildFailure):
                    print(f"{': '.join(name)}: does not build: {result.reason}")
                else:
                    found[name] = result
    return found


def interleaved(files: Mapping[Name, Artifact], rounds: int, bench: Bench) -> dict[Name, list[float]]:
    """Milliseconds of every round, by name. A round visits all files in fresh random order, all in one process."""
    medians: dict[Name, list[float]] = defaultdict(list)
    names = {file.sha256: name for name, file in files.items()}
    once = list({file.sha256: file for file in files.values()}.values())

    def keep(file: Artifact, session: Session) -> None:
        medians[names[file.sha256]].append(1e3 * LatencyStats.of([session]).median_s)
        if sum(map(len, medians.values())) % len(once) == 0:
            print(f"{sum(map(len, medians.values())) // len(once)} of {rounds} rounds", flush=True)

    for failure in measure_sessions(once, rounds=rounds, seed=0, on_session=keep, bench=bench, timing=SESSION):
        print(f"{failure.workload.key}: {failure.outcome}: {failure.reason}", flush=True)
    return medians


def rows(
    entries: Mapping[str, Entry], network: Network, files: Mapping[Name, Artifact], ms: Mapping[Name, list[float]]
) -> dict:
    """What there is to say about each row; one that failed has no number."""
    work, gemm_work = macs(network.workload(FP32)), macs(GEMM)
    made = {}
    for name, entry in entries.items():
        file, times, peak_times = files.get(("net", name)), ms.get(("net", name)), ms.get(("gemm", gemm_name(entry)))
        if file is None or not times:
            continue
        median = statistics.median(times)
        rate = 1e-6 * work / median
        peak = 1e-6 * gemm_work / statistics.median(peak_times) if peak_times else None
        made[name] = {
            "runtime": file.runtime,
            "version": file.version,
            "precision": entry.precision.value,
            "variant": entry.variant,
            "ms": round(median, 2),
            "fastest_round_ms": round(min(times), 2),
            "rounds_ms": [round(value, 2) for value in times],
            "gmacs": round(rate, 2),
            "gemm_gmacs": peak and round(peak, 2),
            "share_of_gemm": peak and round(rate / peak, 3),
        }
    return made


def gemm_name(entry: Entry) -> str:
    return f"{entry.runtime} {entry.precision}"


def ratios(made: Mapping[str, dict]) -> dict:
    """Ours by the best peer in fp32, which is what the bars of the project are about, and by eager PyTorch."""
    peers = {
        name: row["ms"] for name, row in made.items() if row["precision"] == FP32 and row["runtime"] != "executorch"
    }
    if not peers:
        return {}
    best = min(peers, key=peers.__getitem__)
    found: dict[str, object] = {"best_peer": best}
    for precision, name in OURS.items():
        if name in made:
            found[f"{precision}_of_best_peer"] = round(made[name]["ms"] / peers[best], 3)
            if OPENVINO[precision] in made:
                peer = made[OPENVINO[precision]]
                found[f"{precision}_of_openvino"] = round(made[name]["ms"] / peer["ms"], 3)
                quiet = made[name]["fastest_round_ms"] / peer["fastest_round_ms"]
                found[f"{precision}_of_openvino_fastest_rounds"] = round(quiet, 3)
            if "eager PyTorch" in peers:
                found[f"{precision}_of_eager"] = round(made[name]["ms"] / peers["eager PyTorch"], 3)
    return found


def table(results: list[dict]) -> str:
    lines = []
    for result in results:
        lines += [
            f"{result['model']}, {result['input']}, {1e-9 * result['macs']:.3f} GMAC, {result['rounds']} rounds",
            "",
            "| | ms | fastest round | GMAC/s | GMAC/s of a GEMM | share |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name, row in result["rows"].items():
            peak, share = (row[key] if row[key] is not None else "" for key in ("gemm_gmacs", "share_of_gemm"))
            lines.append(f"| {name} | {row['ms']} | {row['fastest_round_ms']} | {row['gmacs']} | {peak} | {share} |")
        lines += ["", ", ".join(f"{key}: {value}" for key, value in result["ratios"].items()), ""]
    return "\n".join(lines)


def by_kind(artifact: Artifact, bench: Bench) -> tuple[dict[str, tuple[float, int]], int]:
    """Milliseconds and count by kind of operation, the longest first; and the number of all operations."""
    operations = profile_ops(artifact.path, bench=bench, timing=SESSION).operations
    kinds: dict[str, list[float]] = defaultdict(list)
    for operation in operations:
        kinds[re.sub(r" #\d+$", "", operation.name)].append(1e3 * operation.seconds)
    found = {kind: (round(sum(times), 2), len(times)) for kind, times in kinds.items()}
    return dict(sorted(found.items(), key=lambda row: -row[1][0])), len(operations)


def by_common_kind(sides: Mapping[str, tuple[Artifact, Bench]], passes: int = 5) -> dict[str, dict[str, float]]:
    """Milliseconds by kind of operation, in words that are the same for all engines; the longest first.

    The files are profiled in turn. Of each the fastest pass counts: the one that others disturbed least.
    """
    fastest: dict[str, dict[str, float]] = {}
    for _ in range(passes):
        for side, (artifact, bench) in sides.items():
            kinds: dict[str, float] = defaultdict(float)
            for operation in profile_ops(artifact.path, bench=bench, timing=SESSION).operations:
                kinds[kind_of(operation.name)] += 1e3 * operation.seconds
            fastest[side] = min(fastest.get(side, kinds), kinds, key=lambda one: sum(one.values()))
    return {
        side: {kind: round(ms, 2) for kind, ms in sorted(kinds.items(), key=lambda row: -row[1])}
        for side, kinds in fastest.items()
    }


def here(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Those whose engine is installed; the others are told."""
    found = {}
    for name, entry in entries.items():
        try:
            get(entry.runtime).version()
            found[name] = entry
        except MissingDependency as error:
            print(f"{name}: left out: {error}")
    return found


def compare(model: str, given: argparse.Namespace, workspace: Workspace, device: Device) -> dict:
    network = resolve(workspace, model, None if model.startswith("zoo:") else 8)
    entries = {name: entry for name, entry in ENTRIES.items() if name not in given.skip}
    entries = here(entries)
    for variant in given.layouts:
        entries[f"hwbench {variant}"] = Entry("executorch", variant=variant)
        entries[f"hwbench {variant} int8"] = Entry("executorch", INT8, variant)
    for name, entry in [*entries.items()]:
        if entry.variant != AUTO and entry.variant not in variants:
            print(f"{name}: there is no layout {entry.variant!r} in this version; left out")
            del entries[name]
    wanted = {("net", name): (entry.runtime, entry.workload(network)) for name, entry in entries.items()}
    wanted |= {("gemm", gemm_name(entry)): (entry.runtime, entry.gemm) for entry in entries.values()}
    files = build(wanted, workspace)
    # The Python runner serves them all; it adds microseconds to a call of ours that its native runner does not.
    with (
        open_bench(device, "torch", cache_dir=workspace.cache, threads=THREADS, report=print) as every,
        open_bench(device, "executorch", cache_dir=workspace.cache, threads=THREADS, report=print) as native,
    ):
        made = rows(entries, network, files, interleaved(files, given.rounds, every))
        ours = {precision: files[key] for precision, name in OURS.items() if (key := ("net", name)) in files}
        result = {
            "model": model,
            "input": network.input.key,
            "macs": macs(network.workload(FP32)),
            "threads": THREADS,
            "rounds": given.rounds,
            "conditions": dict(every.conditions),
            "rows": made,
            "ratios": ratios(made),
            "delegates": {precision.value: file.delegation.delegates for precision, file in ours.items()},
            "undelegated": {precision.value: dict(file.delegation.undelegated) for precision, file in ours.items()},
        }
        profiles = {precision.value: by_kind(file, native) for precision, file in ours.items()}
        result["operations"] = {precision: count for precision, (_, count) in profiles.items()}
        if given.longer:
            twice = Workload(network.blocks, network.input.with_(t=2 * network.input.t))
            longer = build({("net", "longer"): ("executorch", twice)}, workspace)
            result["operations"]["fp32, twice the frames"] = by_kind(longer["net", "longer"], native)[1]
        sides = {**OURS, **{f"openvino {precision}": name for precision, name in OPENVINO.items()}}
        result["common_kinds_ms"] = by_common_kind(
            {
                str(side): (files[key], native if side in OURS else every)
                for side, name in sides.items()
                if (key := ("net", name)) in files
            }
        )
        result["by_kind_ms"] = {precision: kinds for precision, (kinds, _) in profiles.items()}
    return result


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="+", default=["x3d-xs", "x3d-s", "x3d-m"], help="zoo names or architectures")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument(
        "--skip", nargs="+", default=[], choices=list(ENTRIES), metavar="ROW", help="rows to leave out"
    )
    options.add_argument("--layouts", nargs="+", default=[], help="rows of ours in these layouts too")
    options.add_argument("--longer", action="store_true", help="count operations for twice the frames too")
    options.add_argument("--device", default="local")
    options.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the results")
    given = options.parse_args()
    workspace = Workspace.find()
    device = load_device(workspace, given.device)
    results = []
    given.out.mkdir(parents=True, exist_ok=True)
    for model in given.models:
        result = compare(model if ":" in model else f"zoo:{model}", given, workspace, device)
        results.append(result)
        name = re.sub(r"[^a-z0-9-].*", "", model.removeprefix("zoo:")) or "model"
        (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        (given.out / "table.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    with offered():
        main()
