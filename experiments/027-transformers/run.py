"""Transformers of torchvision at full size through an export in fp32. See README.md.

python experiments/027-transformers/run.py [MODEL ...]   # default: all three; each in a process of its own
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torchvision.models import video

from hwbench.blocks import frames_to_batch
from hwbench.blocks.graph import deploy_graph
from hwbench.deploy.parity import relative_error
from hwbench.errors import HwbenchError
from hwbench.runtimes import get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.runners import check_file
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload

OUT = Path(__file__).with_name("results.json")
MODELS = ("swin3d_t", "mvit_v2_s", "mvit_v1_b")
CLIP = (1, 3, 16, 224, 224)
# For loading and running a file once, on a machine that others use.
PATIENCE_S = 7200.0
# Stands in a workload for a model that is no chain of blocks.
FOREIGN = Workload((BlockSpec("foreign", 3, 1),), TensorSpec(1, 3, 1, 1, 1), Precision.FP32)


def exported(name: str, path: Path) -> dict[str, Any]:
    """What a file of a model with random weights and 400 classes computes, and what it took to make and to load it."""
    model, clip = getattr(video, name)(num_classes=400).eval(), torch.randn(CLIP)
    frames = frames_to_batch(clip).contiguous()
    start = time.monotonic()
    with torch.no_grad(), quiet():
        eager = model(clip)
        form = deploy_graph(model, clip)
        rewritten = time.monotonic()
        report = get("executorch").build(form, (frames,), FOREIGN, path, []).delegation
        built = time.monotonic()
        output = torch.from_numpy(check_file(path, frames.numpy(), timeout_s=PATIENCE_S).output.copy())
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "delegates": report.delegates,
        "undelegated": dict(report.undelegated),
        "max_abs_difference": float((eager - output).abs().max()),
        "relative_difference": relative_error(eager, output),
        "same_top1": bool(eager.argmax() == output.argmax()),
        "bytes": path.stat().st_size,
        "rewrite_s": round(rewritten - start),
        "build_s": round(built - rewritten),
        "run_s": round(time.monotonic() - built),
        "cpu_s": round(_used("ru_utime") + _used("ru_stime")),
    }


def _used(name: str) -> float:
    """Of this process and of those it waited for."""
    return sum(getattr(resource.getrusage(who), name) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measured(name: str, threads: int) -> dict[str, Any]:
    """The row of a model; what it fails with is a row as well."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        try:
            row = exported(name, Path(folder) / "model.pte")
        except HwbenchError as error:
            row = {"failed": str(error)}
    # Linux counts in KiB. (What it says of children begins with what their parent had when they were forked.)
    return {"model": name, **row, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}


def alone(name: str, threads: int) -> dict[str, Any]:
    """The row of a model from a process of its own, whose memory goes back with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(measured, name, threads).result()
        except BrokenProcessPool:
            return {"model": name, "failed": "its process was killed; was there memory enough?"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, help="of torchvision.models.video")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows = {row["model"]: row for row in (json.loads(given.out.read_text()) if given.out.exists() else [])}
    for name in given.models:
        rows[name] = alone(name, given.threads)
        given.out.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
        print(json.dumps(rows[name]), flush=True)


if __name__ == "__main__":
    main()
