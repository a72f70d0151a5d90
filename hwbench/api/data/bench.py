"""``hwbench.bench_data``: how fast clips for training are read, and where the time goes."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwbench.api.data.check import DATA_HELP
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.reading import MODALITY_HELP, reading_of
from hwbench.api.requests import option, request
from hwbench.errors import MissingDependency

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hwbench.data.load_timing import ReadingRate, ReadingStages
    from hwbench.workspace import Workspace


@request
class BenchDataRequest:
    """Time how fast clips for training are read, by decoder and number of processes, and where the time goes.

    Batches of four random clips are read as training reads them, without a cache of frames. The stages are timed in one
    process with PyAV, each file opened anew.
    """

    data: str = option(argument=True, help=DATA_HELP)
    frames: int = option(default=16, min=1, help="Frames of a clip.")
    size: int = option(default=160, min=8, help="Height and width of a clip.")
    decoder: tuple[str, ...] = option(
        default=(), help="Decoders to time; may be repeated. Default: pyav, and torchcodec where it is installed."
    )
    modality: str = option(default="rgb", help=MODALITY_HELP)
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
    request: BenchDataRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
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
        UnknownName, MissingDependency: A decoder that was asked for is not there.
        InvalidValue: No such modality.
    """
    from hwbench.data.datasets import TrainingClips
    from hwbench.data.decoders import DEFAULT
    from hwbench.data.failures import FailurePolicy
    from hwbench.data.load_timing import ReadingRate, time_stages, time_workers
    from hwbench.data.sources import default_clip, open_dataset
    from hwbench.workspace import Workspace

    started = time.monotonic()
    workspace = Workspace.at(workspace)
    ways = list(itertools.product(_decoders(request), dict.fromkeys(request.workers)))
    parts = 1 + len(ways)
    share_s = request.seconds / parts

    def dataset(decoder: str) -> TrainingClips:
        return open_dataset(
            workspace,
            request.data,
            split="train",
            size=(request.size, request.size),
            clip=default_clip(request.data, request.frames),
            policy=FailurePolicy.REPLACE,
            cache_bytes=0,
            reading=reading_of(decoder, modality=request.modality),
        )

    def rate(decoder: str, workers: int) -> ReadingRate:
        try:
            return time_workers(dataset(decoder), decoder, workers, seconds=share_s)
        except MissingDependency as error:
            if request.decoder:
                raise
            return ReadingRate(decoder, workers, 0, 0.0, str(error))

    listener.progress(StageProgress("time", 0, parts, note="stages"))
    stages = time_stages(dataset(DEFAULT), seconds=share_s)
    rates = []
    for done, (decoder, workers) in enumerate(ways, start=1):
        listener.progress(StageProgress("time", done, parts, note=f"{decoder}, {workers} workers"))
        rates.append(rate(decoder, workers))
    listener.progress(StageProgress("time", parts, parts))
    clip = (request.frames, request.size, request.size)
    return BenchDataResult(request.data, clip, tuple(rates), stages, round(time.monotonic() - started, 1))


def _decoders(request: BenchDataRequest) -> tuple[str, ...]:
    from hwbench.data.decoders import DEFAULT
    from hwbench.data.decoders.torchcodec import is_installed

    return tuple(dict.fromkeys(request.decoder)) or (DEFAULT, *(("torchcodec",) if is_installed() else ()))
