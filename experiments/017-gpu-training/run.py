"""Clips per second of training X3D on one GPU, ours and others, and what of the time waits for data. See README.md.

python experiments/017-gpu-training/run.py [--networks zoo:x3d-xs zoo:x3d-m] [--data PATH] [--out results.json]
python experiments/017-gpu-training/run.py --device cpu --batch 2 --steps 2     # tries the script without a GPU
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from hwbench.data.loading import Loader, shuffled
from hwbench.spaces.resolve import resolve
from hwbench.specs import Network
from hwbench.training import Recipe, open_data
from hwbench.training.recipe_files import RecipeFile
from hwbench.training.run import initial
from hwbench.training.state import TrainState
from hwbench.training.steps import TrainingStep
from hwbench.workspace import Workspace

HERE = Path(__file__).parent
# The default when these networks were trained.
SGD = RecipeFile.of({"optimizer": "sgd"}).recipe()
CLASSES = 400
Step = Callable[[torch.Tensor, torch.Tensor], object]


class Clips:
    """What a step asks of a data set: the shape of its clips, and its classes."""

    def __init__(self, network: Network) -> None:
        _, _, self.frames, *size = network.input.shape
        self.size = tuple(size)
        self.clip = self.transform = self
        self.classes = tuple(map(str, range(CLASSES)))


class Given:
    """A batch that lies on the device."""

    failures = ()

    def __init__(self, clips: torch.Tensor, labels: torch.Tensor) -> None:
        self.clips, self.labels = clips, labels

    def __len__(self) -> int:
        return len(self.labels)


def ours(network: Network, device: torch.device, **changes: object) -> Step:
    """The step of ``hwbench train``."""
    recipe = replace(SGD, label_smoothing=0.0, loss="cross-entropy", **changes)  # type: ignore[arg-type]
    module = initial(network, recipe).to(device).train()
    if recipe.compile:
        module.compile()
    layout = torch.channels_last_3d if device.type == "cpu" else torch.contiguous_format
    step = TrainingStep(TrainState(module, recipe), Clips(network), device, layout)  # type: ignore[arg-type]
    return lambda clips, labels: step(Given(clips, labels), len(labels), 0.1)  # type: ignore[arg-type]


def plain(network: Network, device: torch.device) -> Step:
    """A loop as tutorials have it: fp32, eager, SGD."""
    module = initial(network, Recipe()).to(device).train()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=5e-5)

    def step(clips: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(clips), labels).backward()
        optimizer.step()

    return step


def torchvision_reference(network: Network, device: torch.device) -> Step:
    """The steps of torchvision's ``references/video_classification/train.py`` with ``--amp``: fp16 with a scaler, and
    loss and accuracy read in every step for its log."""
    torch.backends.cudnn.benchmark = True
    module = initial(network, Recipe()).to(device).train()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device.type)

    def step(clips: torch.Tensor, labels: torch.Tensor) -> float:
        with torch.autocast(device.type, torch.float16 if device.type == "cuda" else torch.bfloat16):
            output = module(clips)
            loss = nn.functional.cross_entropy(output, labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        right = output.topk(5).indices == labels[:, None]
        return loss.item() + right[:, 0].sum().item() + right.sum().item()

    return step


WAYS: dict[str, Callable[[Network, torch.device], Step]] = {
    "ours, bf16": lambda n, d: ours(n, d, precision="bf16"),
    "ours, bf16, compiled": lambda n, d: ours(n, d, precision="bf16", compile=True),
    "ours, fp32": lambda n, d: ours(n, d),
    "torchvision reference": torchvision_reference,
    "eager fp32": plain,
}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rates(network: Network, device: torch.device, batch: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """Clips a second of each way, round by round in turn, on clips that lie on the device."""
    clips = torch.randn(batch, *network.input.shape[1:], device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    ways: dict[str, Step] = {}
    for name, make in WAYS.items():
        try:
            ways[name] = make(network, device)
            for _ in range(3):
                ways[name](clips, labels)
            wait(device)
        except Exception as error:  # a way that this machine does not know is left out, and said
            print(f"{name}: left out ({' '.join(str(error).split())[:120]})", file=sys.stderr)
            ways.pop(name, None)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 == 0 else list(ways)[::-1]:
            start = time.monotonic()
            for _ in range(steps):
                ways[name](clips, labels)
            wait(device)
            found[name].append(round(batch * steps / (time.monotonic() - start), 1))
    return found


def share_waiting(network: Network, data: str, device: torch.device, batch: int, workers: int, steps: int) -> float:
    """The part of training's time in which the device has nothing to do because no batch is there."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Recipe(precision="bf16")
        training = open_data(Workspace.create(Path(folder)), data, network.input.shape[2:], recipe).training
        step = ours(network, device, precision="bf16")
        batches = _batches(Loader(training, workers=workers, device=device), len(training), batch)
        waited = 0.0
        for number in range(steps + 5):
            if number == 5:
                wait(device)
                begun, waited = time.monotonic(), 0.0
            start = time.monotonic()
            clips, labels = next(batches)
            waited += time.monotonic() - start
            step(clips, labels)
            wait(device)
        return waited / (time.monotonic() - begun)


def _batches(loader: Loader, count: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for epoch in range(10**6):
        for batch in loader.batches(shuffled(count, size, seed=0, epoch=epoch)):
            yield batch.clips, batch.labels.to(batch.clips.device)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--networks", nargs="+", default=["zoo:x3d-xs", "zoo:x3d-m"])
    options.add_argument("--data", default="synthetic", help="what the share of waiting is measured on")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--workers", type=int, default=8)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path, default=HERE / "results.json")
    given = options.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no GPU here: nothing was measured (--device cpu tries the script)")
    device = torch.device(given.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    results: dict[str, object] = {"device": name, "torch": torch.__version__, "batch": given.batch}
    for text in given.networks:
        with tempfile.TemporaryDirectory() as folder:
            network = resolve(Workspace.create(Path(folder)), text, CLASSES)
        found = rates(network, device, given.batch, given.steps, given.rounds)
        medians = {way: statistics.median(values) for way, values in found.items()}
        best = max(value for way, value in medians.items() if way.startswith("ours, bf16"))
        others = {way: round(best / value, 2) for way, value in medians.items() if not way.startswith("ours")}
        waiting = share_waiting(network, given.data, device, given.batch, given.workers, given.steps)
        results[text] = {"clips_per_s": medians, "best_over": others, "waiting_for_data": round(waiting, 3)}
        print(text, json.dumps(results[text]), flush=True)
    given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
