"""X3D against eager PyTorch on one thread: fp32 and int8 files, and what the time is spent on. See README.md.

python experiments/002-deploy-latency/run.py [--models x3d-xs] [--rounds 7] [--device local]
"""

import argparse
import json
import platform
import random
import re
import statistics
from collections import defaultdict
from pathlib import Path

from hwbench.devices import Device, load_device
from hwbench.measure.builder import BuildFailure, build_all
from hwbench.measure.on_device import measure_artifact
from hwbench.measure.runner import open_bench, profile_ops
from hwbench.spaces import resolve
from hwbench.specs import Artifact, LatencyStats, Precision, Timing, Workload
from hwbench.workspace import Workspace

SESSION = Timing(min_samples=5, min_session_s=0.5, min_rounds=1, max_rounds=1)


def build(workspace: Workspace, workload: Workload, runtime: str = "executorch") -> Artifact:
    (result,) = build_all([workload], runtime, workspace.cache, processes=1)
    if isinstance(result, BuildFailure):
        raise SystemExit(f"{workload.key}: {result.reason}")
    return result


def interleaved(artifacts: dict[str, Artifact], rounds: int, device: Device, workspace: Workspace) -> dict[str, float]:
    """Milliseconds by name: median of session medians; each round visits all, in random order."""
    order, medians = list(artifacts), defaultdict(list)
    chance = random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            found = measure_artifact(artifacts[name], device, cache_dir=workspace.cache, threads=1, timing=SESSION)
            medians[name].append(1e3 * LatencyStats.of(found.sessions).median_s)
    return {name: statistics.median(values) for name, values in medians.items()}


def by_kind(artifact: Artifact, device: Device, workspace: Workspace) -> tuple[dict[str, tuple[float, int]], int]:
    """Milliseconds and count by kind of operation, the longest first; and the number of all operations."""
    with open_bench(device, "executorch", cache_dir=workspace.cache, threads=1) as bench:
        operations = profile_ops(artifact.path, bench=bench).operations
    kinds: dict[str, list[float]] = defaultdict(list)
    for operation in operations:
        kinds[re.sub(r" #\d+$", "", operation.name)].append(1e3 * operation.seconds)
    rows = {kind: (round(sum(times), 2), len(times)) for kind, times in kinds.items()}
    return dict(sorted(rows.items(), key=lambda row: -row[1][0])), len(operations)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="+", default=["x3d-xs"])
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--device", default="local")
    given = options.parse_args()
    workspace = Workspace.find()
    device = load_device(workspace, given.device)
    for model in given.models:
        network = resolve(workspace, f"zoo:{model}")
        files = {precision.value: build(workspace, network.workload(precision)) for precision in Precision}
        eager = build(workspace, network.workload(Precision.FP32), "torch")
        ms = interleaved({"eager": eager, **files}, given.rounds, device, workspace)
        result = {
            "model": model,
            "input": network.input.key,
            "machine": platform.processor() or platform.machine(),
            "ms": {name: round(value, 2) for name, value in ms.items()},
            "of_eager": {name: round(value / ms["eager"], 3) for name, value in ms.items()},
            "delegates": {name: file.delegation.delegates for name, file in files.items()},
            "undelegated": {name: dict(file.delegation.undelegated) for name, file in files.items()},
        }
        twice = network.input.with_(t=2 * network.input.t)
        longer = build(workspace, Workload(network.blocks, twice, Precision.FP32))
        result["operations"] = {
            str(file.workload.input.t): by_kind(file, device, workspace)[1] for file in (files["fp32"], longer)
        }
        result["by_kind_ms"] = {name: by_kind(file, device, workspace)[0] for name, file in files.items()}
        print(json.dumps(result, indent=1))
        Path(__file__).with_name(f"{model}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
