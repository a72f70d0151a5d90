"""An epoch of training on a GPU: as it is, replayed as CUDA graphs, and on one thread of a CPU. See README.md.

python experiments/029-gpu-training/run.py --rounds 3 --out experiments/029-gpu-training/results.json
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from hwbench.data import Reading
from hwbench.spaces import load_space
from hwbench.specs import Architecture
from hwbench.training import Resources, open_data, train
from hwbench.training.recipe_files import RecipeFile
from hwbench.workspace import Workspace

DATA, CLASSES = "synthetic:motion48:small", 48
# The default when these networks were trained.
SGD = RecipeFile.of({"optimizer": "sgd"}).recipe()
NETWORKS = {
    "x3d-mini, clips 8 x 48": (
        "x3d-mini:frames=8,resolution=48,s1.depth=1,s1.width=24,s1.expansion=3,s1.kernel=1x3x3,s1.se=0,s1.act=relu,"
        "s2.depth=2,s2.width=32,s2.expansion=1.5,s2.kernel=1x3x3,s2.se=0,s2.act=relu,"
        "s3.depth=2,s3.width=48,s3.expansion=3,s3.kernel=1x3x3,s3.se=0,s3.act=relu"
    ),
    "x3d-mobile, clips 4 x 128": (
        "x3d-mobile:frames=4,resolution=128,s1.depth=1,s1.width=16,s1.expansion=1.5,s1.kernel=1x3x3,s1.se=0,"
        "s1.act=swish,s2.depth=2,s2.width=32,s2.expansion=1.5,s2.kernel=1x3x3,s2.se=0,s2.act=swish,"
        "s3.depth=3,s3.width=64,s3.expansion=1.5,s3.kernel=1x3x3,s3.se=0,s3.act=swish,"
        "s4.depth=2,s4.width=128,s4.expansion=1.5,s4.kernel=1x3x3,s4.se=0,s4.act=swish"
    ),
}
WAYS = {
    "cpu": Resources("cpu", 1),
    "gpu": Resources("cuda", 1),
    "gpu, replayed": Resources("cuda", 1, cuda_graphs=True),
}


def epoch_s(name: str, way: str, seed: int) -> float:
    """Seconds of a run of one epoch with its test, from decoded videos in a cache on the disk."""
    architecture = Architecture.parse(NETWORKS[name])
    network = load_space(Workspace.find(), architecture.space).network(architecture, CLASSES)
    size, recipe = (network.input.t, network.input.h, network.input.w), replace(SGD, epochs=1, seed=seed)
    data = open_data(Workspace.find(), DATA, size, recipe, reading=Reading(decoded_cache_bytes=4 << 30))
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        train(recipe, network, data, Path(folder), resources=WAYS[way])
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--networks", type=int, default=len(NETWORKS), help="so many of them")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    given = parser.parse_args()
    ways = [way for way in given.ways if WAYS[way].device == "cpu" or torch.cuda.is_available()]
    names = list(NETWORKS)[: given.networks]
    seconds: dict[str, dict[str, list[float]]] = {name: {way: [] for way in ways} for name in names}
    for name in names:
        epoch_s(name, ways[-1], 0)  # decodes, and wakes the GPU
        for number in range(given.rounds):
            for way in ways:
                seconds[name][way].append(round(epoch_s(name, way, number), 2))
                print(name, way, seconds[name][way][-1], flush=True)
    medians = {name: {way: round(statistics.median(taken[way]), 2) for way in ways} for name, taken in seconds.items()}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    values = {"gpu": gpu, "torch": torch.__version__, "median_s": medians, "seconds": seconds}
    given.out.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
