"""What evaluators may know of a study's data: short trainings on it, and clips. Nothing is read before the first."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import math
import os
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwbench.api.listener import Listener
from hwbench.api.reading import DECODER, RGB, reading_of
from hwbench.api.resources import resources_for
from hwbench.api.score_plan import SYNTHETIC_DATA
from hwbench.api.starting_weights import own_normalisation
from hwbench.api.train_request import RAISE
from hwbench.errors import CheckFailed, InvalidValue, VideoError
from hwbench.printable import printable
from hwbench.specs.kinds.by_hand import is_by_hand
from hwbench.specs.tensor import CLIP_CHANNELS

if TYPE_CHECKING:
    import torch

    from hwbench.data import FailurePolicy, Normalisation, Reading, VideoInfo, VideoList
    from hwbench.specs import Network, TensorSpec
    from hwbench.studies.evaluators import Report
    from hwbench.training import Recipe, Resources
    from hwbench.training.loop import Fit, TrainingProgress
    from hwbench.training.run import Data
    from hwbench.workspace import Workspace

# Of OMP_NUM_THREADS, which may be empty, or have a number for each level of nesting.
_THREADS = re.compile(r"[1-9][0-9]*")
# Of a training that is timed: steps, unless fewer take so many seconds.
_STEPS, _FEWEST_STEPS, _TIMED_S = 8, 2, 3.0
# Of a digest that tells videos of one study apart.
_DIGITS = 16
_FIDELITY = re.compile(r"([0-9]+) epochs(?:, frames-share ([0-9.e-]+))?(?:, resolution-share ([0-9.e-]+))?")


@dataclass(frozen=True)
class Fidelity:
    """How short a training is; every network of a study has the same.

    Args:
        epochs: Passes over the training videos.
        frames_share: Share of the frames of a network's input that it is trained on, more than 0 to 1.
        resolution_share: Share of the height and width of its input, more than 0 to 1.
    """

    epochs: int
    frames_share: float = 1.0
    resolution_share: float = 1.0

    def __str__(self) -> str:
        shares = {"frames-share": self.frames_share, "resolution-share": self.resolution_share}
        return ", ".join((f"{self.epochs} epochs", *(f"{k} {v:g}" for k, v in shares.items() if v != 1)))

    @classmethod
    def parse(cls, text: str) -> Fidelity:
        """From what ``str`` makes.

        Raises:
            InvalidValue: It is none.
        """
        match = _FIDELITY.fullmatch(text)
        if match is None:
            raise InvalidValue(f"expected a length of trainings such as '2 epochs', got {printable(text, 60)!r}")
        epochs, frames, resolution = match.groups()
        return cls(int(epochs), float(frames or 1), float(resolution or 1))

    def reduced(self, input: TensorSpec) -> TensorSpec:
        """The clip that is trained on, at least one frame of one pixel."""
        t = max(1, round(input.t * self.frames_share))
        h, w = (max(1, round(side * self.resolution_share)) for side in (input.h, input.w))
        return input.with_(t=t, h=h, w=w)

    def clip_of(self, network: Network) -> TensorSpec:
        """The clip that a network is trained on. What a user's own model takes, it says itself.

        Raises:
            InvalidValue: The network does not take so few frames, or such small ones.
        """
        parts = {
            f"--frames-share {self.frames_share:g}": replace(self, resolution_share=1.0),
            f"--resolution-share {self.resolution_share:g}": self,
        }
        if not any(is_by_hand(block) for block in network.blocks):
            for option, part in parts.items():
                try:
                    network.on(part.reduced(network.input))
                except InvalidValue as error:
                    raise InvalidValue(f"{option}: {network.name}: {error}; take a larger share") from None
        return self.reduced(network.input)


def _first_info(videos: VideoList, policy: FailurePolicy) -> VideoInfo:
    """What the first video holds, under another policy than ``raise`` the first that can be read.

    Raises:
        VideoError: It cannot be read, or none can.
    """
    from hwbench.data import FailurePolicy
    from hwbench.data.decoders import PYAV

    for index in range(len(videos)):
        try:
            with PYAV.open(videos.source(index)) as video:
                return video.info
        except VideoError:
            if policy is FailurePolicy.RAISE:
                raise
    raise VideoError(f"no video of {videos.root} can be read: hwbench data check says what is wrong with each")


class _TimedEnough(Exception):
    """Raised through a training that is timed."""


class _StepWatch:
    """Times the steps of a training after the first one, and ends it after eight more, or two that take long."""

    def __init__(self) -> None:
        self._began, self._ends, self._last = time.monotonic(), list[float](), 0
        self._of_an_epoch = 0.0

    def __call__(self, at: TrainingProgress) -> None:
        if at.step == self._last:  # the end of an epoch
            return
        self._last, self._of_an_epoch = at.step, at.steps / at.epochs
        self._ends.append(time.monotonic())
        timed = len(self._ends) - 1
        if timed >= _STEPS or (timed >= _FEWEST_STEPS and self._ends[-1] - self._ends[0] > _TIMED_S):
            raise _TimedEnough

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch; of one step alone with what came before it."""
        times = self._ends if len(self._ends) > 1 else [self._began, *self._ends]
        return self._of_an_epoch * (times[-1] - times[0]) / max(1, len(times) - 1)


def tell_unread(source: str, on_error: str, listener: Listener) -> None:
    """Says that videos may be left out, where they may: processes that read them are silent."""
    if on_error != RAISE:
        listener.say(
            f"unreadable videos are no error (--on-error {on_error}); "
            f"hwbench data check {shlex.quote(source)} names them"
        )


class StudyData:
    """Short trainings and clips of data by name.

    One list of videos and one cache of decoded videos serve all input sizes, and all networks for which pixels are
    normalised alike: 512 MiB at most for the videos that are trained on, and as much for those of the test. Videos that
    fit are read in this process, where they stay; else reader processes decode them in every training. Threads and
    readers are those of ``hwbench train``; the last bits of a score follow from the number of threads.

    Args:
        workspace: Where the data are looked for, and synthetic ones are kept.
        source: Data by name.
        fidelity: How short a training is.
        decoder: Who decodes videos; the frames are the same.
        modality: What networks see: ``rgb``, or a form of optical flow, for trainings alone.
        on_error: What happens with unreadable videos: ``raise``, ``skip`` or ``replace``.
    """

    def __init__(
        self,
        workspace: Workspace,
        source: str,
        fidelity: Fidelity,
        decoder: str = DECODER,
        modality: str = RGB,
        on_error: str = RAISE,
    ) -> None:
        self.workspace, self.source, self.fidelity, self.decoder = workspace, source, fidelity, decoder
        self.modality, self.on_error = modality, on_error
        self._opened = functools.cache(self._open)
        self.resources = functools.cache(self._resources_of)

    def __reduce__(self) -> tuple[type[StudyData], tuple[Workspace, str, Fidelity, str, str, str]]:
        """Other processes read the data for themselves."""
        return StudyData, (self.workspace, self.source, self.fidelity, self.decoder, self.modality, self.on_error)

    def of(self, source: str) -> StudyData:
        """The same of other data."""
        how = (self.fidelity, self.decoder, self.modality, self.on_error)
        return self if source == self.source else StudyData(self.workspace, source, *how)

    @property
    def policy(self) -> FailurePolicy:
        """What happens with unreadable videos.

        Raises:
            InvalidValue: ``on_error`` is none of the three.
        """
        from hwbench.data import FailurePolicy

        return FailurePolicy.parse(self.on_error)

    @property
    def reading(self) -> Reading:
        """How videos are read.

        Raises:
            InvalidValue: No such modality.
        """
        return reading_of(self.decoder, modality=self.modality)

    @property
    def channels(self) -> int:
        """Of the clips that networks are trained on."""
        return CLIP_CHANNELS if self.modality == RGB else self.reading.channels

    def videos(self, seed: int) -> str:
        """Digest of which videos a study of this seed trains and tests on, and of their labels; none of them is read.

        Those of ``synthetic``, which are made when they are read, never change: their name stands for them.

        Raises:
            UnknownName: There are no such data.
            InvalidFile: They are not laid out as their reader expects.
        """
        if self.source == SYNTHETIC_DATA:
            return self.source
        data = self._opened(seed, None)
        lists = f"{data.training.videos.identity} {data.validation.videos.identity}"
        return hashlib.sha256(lists.encode()).hexdigest()[:_DIGITS]

    def trained(self, network: Network) -> Network:
        """A network as it is trained: its first block takes the channels of what it sees.

        Raises:
            InvalidValue: It takes pictures alone.
        """
        return network.with_channels(self.channels)

    def top1(self, network: Network, seed: int) -> float:
        """Top-1 on the validation videos after a short training, a fraction; not a number where it diverges."""
        try:
            scores = self._fit(network, seed, validate=True).scores
        except CheckFailed:
            return math.nan
        return math.nan if scores is None else scores.top1

    def tested(self, network: Network, seed: int, report: Report) -> float:
        """``top1``, with a test after each epoch, whose accuracy is reported."""
        try:
            scores = self._fit(network, seed, validate=True, tested=report).scores
        except CheckFailed:
            return math.nan
        return math.nan if scores is None else scores.top1

    def losses(self, network: Network, seed: int, report: Report) -> None:
        """Reports the mean loss of the steps of each epoch; of a training that diverges not a number at last."""
        steps: list[float] = []
        at = 0

        def add(epoch: int, loss: float) -> None:
            nonlocal at
            if epoch != at:
                report(at, math.fsum(steps) / len(steps))
                steps.clear()
                at = epoch
            steps.append(loss)

        try:
            self._fit(network, seed, validate=False, losses=add)
        except CheckFailed:
            steps = [math.nan]
        report(at, math.fsum(steps) / len(steps))

    def clips(self, input: TensorSpec, count: int, seed: int, network: Network | None = None) -> torch.Tensor:
        """Clips of the same ``count`` training videos for every input, float32 (count, 3, T, H, W).

        Another video takes the place of one that cannot be read, where it is to be skipped, too.

        Args:
            input: Size of the clips.
            count: How many.
            seed: Of the study.
            network: Clips are as it sees them (``for_network``); None: as the data have them, normalised as usual.

        Raises:
            InvalidValue: The ``input_mean`` or ``input_std`` of a model by hand is wrong.
            VideoError: One of them cannot be read under the policy ``raise``, or no other takes its place.
        """
        import numpy as np

        from hwbench.data import FailurePolicy, collate

        videos = (self.sized(input, seed) if network is None else self.for_network(network, seed, input)).training
        if videos.policy is FailurePolicy.SKIP:
            videos.policy = FailurePolicy.REPLACE
        chosen = np.random.default_rng(seed).choice(len(videos), count, replace=len(videos) < count)
        videos.set_epoch(0)
        batch = collate([videos[int(index)] for index in chosen]).normalised()
        if len(batch) < count:
            raise VideoError(f"{batch.failures[0].cause}; no video in its place could be read")
        return batch.clips

    def _fit(
        self,
        network: Network,
        seed: int,
        *,
        validate: bool,
        losses: Callable[[int, float], None] | None = None,
        tested: Report | None = None,
        progress: Callable[[TrainingProgress], None] | None = None,
        threads: int | None = None,
    ) -> Fit:
        from hwbench.training.loop import fit
        from hwbench.training.run import initial

        recipe = self.recipe(seed) if tested is None else replace(self.recipe(seed), eval_every=1)
        data = self.for_network(network, seed, self.fidelity.clip_of(network))
        resources = self.resources(seed)
        return fit(
            initial(self.trained(network).with_classes(len(data.training.classes)), recipe),
            data.training,
            data.validation if validate else None,
            recipe,
            resources=resources if threads is None else replace(resources, threads=threads),
            progress=progress,
            losses=losses,
            validated=None if tested is None else lambda epoch, scores: tested(epoch - 1, scores.top1),
        )

    def epoch_s(self, network: Network, seed: int, threads: int | None = None) -> float:
        """Seconds of a pass over the training videos, by the first steps of a training that is given up.

        Args:
            network: Trained.
            seed: Of the study; the first steps of all networks read the same videos.
            threads: Of torch; None: as many as trainings of the study have.

        Raises:
            VideoError: A video cannot be read.
        """
        watch = _StepWatch()
        with contextlib.suppress(_TimedEnough, CheckFailed):
            self._fit(network, seed, validate=False, progress=watch, threads=threads)
        return watch.epoch_s

    def test_share(self, network: Network, seed: int) -> float:
        """Clips of a test by those of an epoch."""
        data = self.sized(self.fidelity.clip_of(network), seed, network.span_s)
        return len(data.validation) / max(1, len(data.training))

    def recipe(self, seed: int) -> Recipe:
        """How networks of the study are trained."""
        from hwbench.training import Recipe

        return Recipe(epochs=self.fidelity.epochs, seed=seed, eval_every=self.fidelity.epochs)

    def _open(self, seed: int, normalisation: Normalisation | None) -> Data:
        from hwbench.data import Normalisation
        from hwbench.training.run import open_data

        return open_data(
            self.workspace,
            self.source,
            (1, 1, 1),
            self.recipe(seed),
            policy=self.policy,
            normalisation=normalisation or Normalisation(),
            reading=self.reading,
        )

    def _resources_of(self, seed: int) -> Resources:
        from hwbench.data.sources import CACHE_BYTES

        videos = self._opened(seed, None).training.videos
        info = _first_info(videos, self.policy)
        decoded_bytes = len(videos) * info.num_frames * info.height * info.width * 3
        given = _THREADS.match(os.environ.get("OMP_NUM_THREADS", ""))  # what a worker of a search is given
        threads = int(given[0]) if given else None
        return resources_for(self.source, threads=threads, workers=0 if decoded_bytes <= CACHE_BYTES else None)

    def for_network(self, network: Network, seed: int, input: TensorSpec) -> Data:
        """The data as a network sees them: over the time that its space says, and normalised as a model by hand says.

        Args:
            network: What is trained.
            seed: Of the study.
            input: The clip that it is trained on.

        Raises:
            InvalidValue: The ``input_mean`` or ``input_std`` of a model by hand is wrong.
        """
        own = own_normalisation(network) if self.modality == RGB else None
        return self.sized(input, seed, network.span_s, own)

    def sized(
        self, input: TensorSpec, seed: int, span_s: float | None = None, normalisation: Normalisation | None = None
    ) -> Data:
        """The data in clips of the size of an input; all sizes share what was decoded.

        Args:
            input: Of a network.
            seed: Of the study.
            span_s: Seconds that clips cover; None: as the data have them.
            normalisation: Of pixels; None: the usual one, or that of flow.
        """
        from hwbench.data import default_clip

        data = self._opened(seed, normalisation)
        clip, size = default_clip(self.source, input.t).spanning(span_s), (input.h, input.w)
        training, validation = copy.copy(data.training), copy.copy(data.validation)
        training.clip = validation.clip = clip
        training.transform = training.transform.with_size(size)
        validation.transform = replace(validation.transform, size=size)
        return replace(data, training=training, validation=validation)
