"""What to measure: every decision of ``hwbench.bench``, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.requests import option, request
from hwbench.errors import InvalidValue
from hwbench.specs.network import MAX_SIZE
from hwbench.units import parse_duration

if TYPE_CHECKING:
    from hwbench.specs import Timing

# Several short sessions say more than a long one: most of the spread is between sessions.
ROUNDS, MAX_ROUNDS = 5, 10
# A day; and what a computer still holds as numbers.
MOST_SECONDS, MOST_SAMPLES = 86_400, 10_000_000
DEFAULT_RUNTIME = "executorch"
ALL = "all"
# A visit may take so many times the seconds of one session beyond ``Timing.timeout_s``: the runner waits for a quiet
# core for twice ``max_session_s``, and takes its samples after that.
_VISIT_SESSIONS = 8
# How long a file works at the most where nothing is said, and at the least.
SUSTAINED, LEAST_SUSTAINED_S = "10min", 180.0


@request
class BenchRequest:
    """Measure one model on a device: median, 90th percentile, and the 95 % interval of the median.

    A network that is given by name is built with random weights. Nothing is stored but the course of --sustained. With
    --runtime all it is measured in every engine that is installed, in turn; ~ says that chance explains the difference
    from the fastest.
    """

    model: str = option(
        argument=True, help="A .pte, .tflite, .onnx, .ovz or .ts file, zoo:NAME, STUDY:best, or a printed architecture."
    )
    device: str = option(default="local", help="Device: a folder of profiles/.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    runtime: str | None = option(
        default=None,
        help="executorch (default), litert, onnx, openvino, torch, torchscript, or all; of a file it is known.",
    )
    precision: str | None = option(
        default=None, help="fp32 (default), fp16, bf16 or int8; of a file that tells none it is what you say."
    )
    streaming: bool = option(
        default=False, help="Of a network by name: one new frame of a stream, in causal form; of a file it is known."
    )
    samples: int = option(
        default=50,
        min=1,
        max=MOST_SAMPLES,
        help="At least so many samples, where they take no more than 10 s or twice --seconds.",
    )
    seconds: float = option(
        default=1.5, min=0.0, max=MOST_SECONDS, help="At least so many seconds of samples, over all sessions."
    )
    classes: int | None = option(default=None, min=1, max=MAX_SIZE, help="Classes of the head of a network by name.")
    cache: str = option(
        default="warm",
        choices=("warm", "rotate", "flush"),
        help="Caches of the processor before each sample: warm as in a loop, rotate (copies take turns), flush.",
    )
    profile: bool = option(
        default=False,
        help="Time the operations as well, in a pass of its own with warm caches: by kind, and by block of the "
        "network.",
    )
    sustained: str | None = option(
        default=None,
        metavar="TIME",
        alone=SUSTAINED,
        help=f"Work on until the latency settles, at most so long: {SUSTAINED}, or another time of at least "
        f"{LEAST_SUSTAINED_S / 60:g}min, since heat takes minutes; search --sustained uses the ratio.",
    )
    trace: Path | None = option(
        default=None,
        metavar="DIR",
        help="Write what --profile and --sustained saw into this folder: for Perfetto, for Model Explorer, as a page.",
    )

    def validate(self) -> None:
        """Raises InvalidValue where the fields do not go together."""
        looks = [name for name, asked in (("--profile", self.profile), ("--sustained", self.sustained)) if asked]
        if self.runtime == ALL and looks:
            raise InvalidValue(f"{looks[0]} is about one engine: name it instead of --runtime {ALL}")
        if self.trace is not None and not looks:
            raise InvalidValue("--trace DIR holds what --profile and --sustained see: add one of them")
        if self.profile and self.cache != "warm":
            raise InvalidValue(
                f"--profile times operations with warm caches: leave --cache {self.cache} out, or --profile"
            )
        if self.sustained is not None and self.cache != "warm":
            raise InvalidValue(
                f"--sustained executes a file back to back, with warm caches: leave --cache {self.cache} out, or "
                "--sustained"
            )
        _ = self.sustained_s

    @property
    def sustained_s(self) -> float | None:
        """How long the file works at the most, in seconds; None: no longer than the latency takes.

        Raises:
            InvalidValue: No duration, or too short for heat.
        """
        if self.sustained is None:
            return None
        return parse_duration(self.sustained, name="--sustained", unit="min", least_s=LEAST_SUSTAINED_S)


def timing_of(request: BenchRequest) -> Timing:
    """The protocol that a request asks for.

    Raises:
        InvalidValue: Not a finite time.
    """
    from hwbench.specs import CacheState

    return replace(session_timing(request.samples, request.seconds), cache=CacheState(request.cache))


def session_timing(samples: int, seconds: float) -> Timing:
    """Spreads samples and seconds over sessions.

    Raises:
        InvalidValue: Not a finite time.
    """
    from hwbench.specs import Timing

    if not math.isfinite(seconds):
        raise InvalidValue(f"--seconds: expected a finite number, got {seconds}")
    each = seconds / ROUNDS
    return Timing(
        min_samples=math.ceil(samples / ROUNDS),
        min_session_s=each,
        max_session_s=max(Timing().max_session_s, 2 * each),
        min_rounds=ROUNDS,
        max_rounds=MAX_ROUNDS,
        timeout_s=Timing().timeout_s + _VISIT_SESSIONS * each,
    )


def longer_visits(timing: Timing) -> int:
    """The ``--seconds`` by which a visit may take twice as long as by this timing, in whole seconds."""
    from hwbench.specs import Timing

    return math.ceil(ROUNDS * (2 * timing.timeout_s - Timing().timeout_s) / _VISIT_SESSIONS)
