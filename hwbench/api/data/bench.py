"""``hwbench.bench_data``: how fast clips for training are read, and where the time goes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwbench.api.data.check import DATA_HELP
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.requests import option, request

if TYPE_CHECKING:
    import pandas as pd

    from hwbench.data.load_timing import ReadingRate, ReadingStages
    from hwbench.workspace import Workspace


@request
class BenchDataRequest:
    """Time how fast clips for training are read, by decoder and number of processes, and where the time goes.

    Batches of four random clips are read as training reads them, without a cache of frames. The stages are timed in one
    process, each file opened anew.
    """

    data: str = option(argument=True, help=DATA_HELP)
    frames: int = option(default=16, min=1, help="Frames of a clip.")
    size: int = option(default=160, min=8, help="Height and width of a clip.")
    workers: tuple[int, ...] = option(default=(0, 1, 2), min=0, max=64, help="Numbers of processes; may be repeated.")
    seconds: float = option(
        default=20.0, min=0.1, max=3600, help="Time for everything, without the start of processes."
    )


@dataclass(frozen=True)
class BenchDataResult:
    """How fast clips are read.

    Attributes:
        data: The data set.
        clip: Frames, height and width of a clip.
        rates: Clips a second by decoder and number of processes.
        stages: Where the time goes in one process.
        seconds: Wall time.
    """

    data: str
    clip: tuple[int, int, int]
    rates: tuple[ReadingRate, ...]
    stages: ReadingStages
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench data bench --json`` prints."""
        rates = [
            {
                "decoder": one.decoder,
                "workers": one.workers,
                "clips_per_s": round(one.clips_per_s, 3),
                "clips": one.clips,
                "fault": one.fault,
            }
            for one in self.rates
        ]
        return {
            "data": self.data,
            "clip": list(self.clip),
            "rates": rates,
            "stages": {stage: round(share, 4) for stage, share in self.stages.shares().items()},
            "stage_ms": {
                stage: round(1e3 * seconds / max(1, self.stages.clips), 4)
                for stage, seconds in self.stages.seconds.items()
            },
            "seconds": self.seconds,
        }

    def to_frame(self) -> pd.DataFrame:
        """One row for each way to read."""
        import pandas as pd

        return pd.DataFrame(self.to_json()["rates"])


def bench_data(
    request: BenchDataRequest, listener: Listener = SILENT, *, workspace: Workspace | None = None
) -> BenchDataResult:
    """Reads clips for training, and counts.

    Args:
        request: Which data set, which clips, and for how long.
        listener: Hears what is timed at the moment, and which videos could not be read.
        workspace: Holds the synthetic set; default: the one around the current folder.

    Raises:
        UnknownName: No such data.
        InvalidFile: A data set that is not laid out as its reader expects.
        VideoError: No video can be read.
    """
    from hwbench.data.datasets import TrainingClips
    from hwbench.data.failures import FailurePolicy
    from hwbench.data.load_timing import time_stages, time_torchcodec, time_workers
    from hwbench.data.sources import default_clip, open_dataset
    from hwbench.workspace import Workspace

    started = time.monotonic()
    workspace = workspace or Workspace.find()
    numbers = tuple(dict.fromkeys(request.workers))
    parts, done = len(numbers) + 2, 0

    def advance(note: str) -> None:
        nonlocal done
        listener.progress(StageProgress("time", done, parts, note=note))
        done += 1

    def dataset() -> TrainingClips:
        return open_dataset(
            workspace,
            request.data,
            split="train",
            size=(request.size, request.size),
            clip=default_clip(request.data, request.frames),
            policy=FailurePolicy.REPLACE,
            cache_bytes=0,
        )

    share_s = request.seconds / parts
    rates = []
    advance("stages")
    stages = time_stages(dataset(), seconds=share_s)
    for workers in numbers:
        advance(f"PyAV, {workers} workers")
        rates.append(time_workers(dataset(), workers, seconds=share_s))
    advance("torchcodec")
    other = time_torchcodec(dataset(), seconds=share_s)
    if other is not None:
        rates.append(other)
    listener.progress(StageProgress("time", parts, parts))
    clip = (request.frames, request.size, request.size)
    return BenchDataResult(request.data, clip, tuple(rates), stages, round(time.monotonic() - started, 1))
