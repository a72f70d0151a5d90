"""What fp16 costs the networks of the zoo, block by block and as a whole. See README.md.

python experiments/026-fp16-parity/run.py [CARD|CHECKPOINT ...] [--file]   # default: cards without a row
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map

from hwbench.api.export_sources import source_of
from hwbench.data import SYNTHETIC, default_clip
from hwbench.deploy import ExportSource, block_names, open_calibration, open_validation, randomly_weighted
from hwbench.deploy.model_process import served
from hwbench.deploy.parity import noise_db, sqnr_db
from hwbench.deploy.source import with_statistics_of
from hwbench.errors import HwbenchError, UnsupportedModule
from hwbench.latency import macs
from hwbench.models import frames_to_batch
from hwbench.runtimes import get
from hwbench.runtimes.half import in_precision
from hwbench.spaces import resolve
from hwbench.specs import Precision
from hwbench.workspace import Workspace

OUT = Path(__file__).with_name("results.json")
FP16, FP32 = Precision.FP16, Precision.FP32
# Training videos that batch norms take their statistics from, as an export in int8 does.
STATISTICS_CLIPS = 8


@dataclass(frozen=True)
class Job:
    """A card or a checkpoint, the validation videos it is seen with, and whether its file is built and run as well."""

    card: str
    videos: int
    file: bool
    threads: int


class WideArithmetic(TorchDispatchMode):
    """Operations on fp16 are computed in fp32 and their results rounded, as XNNPACK does on x86 without AVX512-FP16."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default or not tree_any(_is_half, (args, kwargs)):
            return func(*args, **kwargs)
        result = func(*tree_map(_widened, args), **tree_map(_widened, kwargs))
        return tree_map(_rounded, result)


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float16


def _widened(value: Any) -> Any:
    return value.float() if _is_half(value) else value


def _rounded(value: Any) -> Any:
    return value.half() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value


def calibrated(workspace: Workspace, card: str) -> ExportSource:
    """A card with random weights, its batch norms with the statistics of real clips; a checkpoint as it was trained."""
    if is_checkpoint(card):
        return source_of(Path(card))
    network = resolve(workspace, f"zoo:{card}")
    source = randomly_weighted(network, default_clip(SYNTHETIC, network.input.t))
    clips = open_calibration(workspace, SYNTHETIC, source, count=STATISTICS_CLIPS)
    return with_statistics_of(source, torch.cat([*clips.some(STATISTICS_CLIPS)]))


def is_checkpoint(name: str) -> bool:
    return name.endswith(".pt")


def compared(job: Job) -> dict[str, Any]:
    """What fp16 does to each block alone, behind exact activations, and to the logits."""
    workspace = Workspace.find()
    source = calibrated(workspace, job.card)
    deployed = source.deployed().eval()
    views = open_validation(workspace, SYNTHETIC, source, count=job.videos).views()
    clips = [frames_to_batch(view).contiguous() for _, view in views]
    with torch.inference_mode():
        exact = torch.cat([deployed(clip) for clip in clips]).double()
        logits = torch.cat([in_fp16(deployed, clip) for clip in clips]).double()
        alone = dict(blocks_alone(deployed, clips))
    least = min(alone, key=lambda name: alone[name], default=None)
    row = {
        "input": source.network.input.key,
        "parameters": sum(value.numel() for value in source.module.parameters()),
        "clips": len(clips),
        "blocks": len(alone),
        "least_block": least,
        "least_block_db": None if least is None else round(alone[least], 1),
        "whole_db": round(sqnr_db(exact, logits), 1),
    }
    return {**row, "file_db": round(sqnr_db(exact, from_file(source, deployed, clips)), 1)} if job.file else row


def in_fp16(module: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """What a module gives in fp16; fp32 in and out."""
    halved = in_precision(module, FP16)
    with WideArithmetic():
        result: torch.Tensor = halved(*inputs)
    return result


def blocks_alone(deployed: nn.Module, clips: Sequence[torch.Tensor]) -> Iterator[tuple[str, float]]:
    """SQNR in dB of each block of a chain that alone is fp16; none of networks that are no chain."""
    try:
        names = block_names(deployed)
    except UnsupportedModule:
        return
    reached = list(clips)
    for name in names:
        block, power = deployed.get_submodule(name), [0.0, 0.0]
        for at, x in enumerate(reached):
            reached[at] = block(x)
            power[0] += reached[at].double().square().sum().item()
            power[1] += (reached[at].double() - in_fp16(block, x).double()).square().sum().item()
        yield name, noise_db(*power)


def from_file(source: ExportSource, deployed: nn.Module, clips: Sequence[torch.Tensor]) -> torch.Tensor:
    """The logits of the file in fp16."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        get("executorch").build(deployed, clips[0], source.network.workload(FP16), path, [])
        with served(path) as file:
            return torch.cat([torch.from_numpy(file(clip.numpy()).copy()) for clip in clips]).double()


def measured(job: Job) -> dict[str, Any]:
    """The row of a card; what it fails with is a row as well."""
    torch.set_num_threads(job.threads)
    start = time.monotonic()
    try:
        row = compared(job)
    except HwbenchError as error:
        row = {"failed": str(error)}
    return {"card": job.card, **row, "seconds": round(time.monotonic() - start)}


def alone(job: Job) -> dict[str, Any]:
    """The row of a card from a process of its own, whose memory goes back with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(measured, job).result()
        except BrokenProcessPool:
            return {"card": job.card, "failed": "its process was killed; was there memory enough?"}


def cards(workspace: Workspace) -> list[str]:
    """All cards, those with the fewest multiply-adds first."""
    names = sorted(path.parent.name for path in workspace.root.glob("zoo/*/model.toml"))
    return sorted(names, key=lambda name: macs(resolve(workspace, f"zoo:{name}").workload(FP32)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cards", nargs="*", help="of the zoo, or files of checkpoints; default: cards without a row")
    parser.add_argument("--videos", type=int, default=4, help="validation videos that are looked at")
    parser.add_argument("--file", action="store_true", help="build and run the file as well")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    workspace = Workspace.find()
    rows = {row["card"]: row for row in (json.loads(given.out.read_text()) if given.out.exists() else [])}
    order = [*cards(workspace), *filter(is_checkpoint, rows)]
    done = {card for card, row in rows.items() if "failed" not in row}
    for card in given.cards or [name for name in order if name not in done]:
        order += [card] if is_checkpoint(card) else []
        rows[card] = alone(Job(card, given.videos, given.file, given.threads))
        kept = sorted(rows.values(), key=lambda row: (is_checkpoint(row["card"]), order.index(row["card"])))
        given.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(json.dumps(rows[card]), flush=True)


if __name__ == "__main__":
    main()
