"""One new frame of a causal X3D-XS beside clips of it, in one run: README.md."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from hwbench.models import workload_module
from hwbench.models.efficient_x3d import x3d_blocks
from hwbench.runtimes import get
from hwbench.runtimes.native.build import build_runner
from hwbench.runtimes.protocol import Options
from hwbench.specs import Network, Precision, TensorSpec, Workload

SIZE, CLASSES = 160, 400


def workloads(precisions: list[str], clips: list[int]) -> Iterator[tuple[str, int, Workload]]:
    """Name, frames and workload of each row."""
    for name in precisions:
        precision = Precision.parse(name)
        for frames in clips:
            network = Network("X3D-XS", x3d_blocks("XS", CLASSES), TensorSpec(1, 3, frames, SIZE, SIZE))
            yield f"clip{frames}-{name}", frames, network.workload(precision)
        yield f"stream-{name}", 1, network.causal().frame(precision)


def build(workload: Workload, path: Path) -> None:
    """The file of a workload with random weights; int8 by two batches of noise, which decide about no latency."""
    torch.manual_seed(0)
    module, example = workload_module(workload)
    shaped = example if isinstance(example, tuple) else (example,)
    noise = [tuple(torch.rand_like(one) for one in shaped) for _ in range(2)]
    calibration = noise if isinstance(example, tuple) else [batch[0] for batch in noise]
    get("executorch").for_tables().build(module, example, workload, path, calibration)  # type: ignore[arg-type]


def sessions(runner: Path, files: dict[str, Path], rounds: int, cpu: int) -> dict[str, list[dict[str, float]]]:
    """Per file and round the median of the samples, and the processor time per execution, in milliseconds."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in files}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as listed:
        listed.writelines(f"{name}\t{path}\n" for name, path in files.items())
        listed.flush()
        options = Options(list=listed.name, rounds=rounds, cpus=(cpu,), min_ms=200, max_ms=600, warm_ms=60)
        lines = subprocess.run([runner, *options.argv()], capture_output=True, text=True, check=True).stdout
    for line in map(json.loads, lines.splitlines()):
        if line["kind"] == "error":
            raise SystemExit(f"{line['id']}: {line['reason']}")
        if line["kind"] == "session":
            samples = line["samples_ns"]
            found[line["id"]].append(
                {
                    "median_ms": statistics.median(samples) / 1e6,
                    "least_ms": min(samples) / 1e6,
                    "processor_ms": line["cpu_ns"] / len(samples) / 1e6,
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    kept = "folder of the files; what is there is not built again"
    parser.add_argument("--files", type=Path, required=True, help=kept)
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--clips", default="4,16")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    given = parser.parse_args()
    given.files.mkdir(parents=True, exist_ok=True)
    rows = list(workloads(given.precisions.split(","), [int(frames) for frames in given.clips.split(",")]))
    files = {name: given.files / f"{name}.pte" for name, _, _ in rows}
    for name, _, workload in rows:
        if not files[name].exists():
            build(workload, files[name])
    taken = sessions(build_runner(given.files), files, given.rounds, given.cpu)
    values = []
    for name, frames, _ in rows:
        keys = ("median_ms", "least_ms", "processor_ms")
        per_frame = {
            f"{key.removesuffix('_ms')}_ms_per_frame": statistics.median(one[key] for one in taken[name]) / frames
            for key in keys
        }
        values.append({"name": name, "frames": frames, "sessions": len(taken[name]), **per_frame})
    given.out.write_text(json.dumps(values, indent=2) + "\n")
    for row in values:
        print(" ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))


if __name__ == "__main__":
    main()
