"""What ``hwbench.profile`` is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.requests import changed, option, request
from hwbench.errors import InvalidValue
from hwbench.printable import enumeration
from hwbench.specs import AUTO, STREAM, Precision
from hwbench.specs.network import DEFAULT_CLASSES, MAX_SIZE
from hwbench.units import parse_duration, parse_share

if TYPE_CHECKING:
    from hwbench.devices import Conditions

# Four networks give the one-ratio calibration a spread; more are for ``hwbench validate``.
DEFAULT_CALIBRATION = 4
DEFAULT_ACCURACY = "2%"
CONDITIONS = ("stock", "controlled")
# The fields that say which rows are measured, which a refresh does not read: its anchors are known.
_CHOOSES_ROWS = (
    "remeasure",
    "networks_only",
    "budget",
    "accuracy",
    "all_rows",
    "limit",
    "calibrate",
    "variants",
    "retry",
)


@request
class ProfileRequest:
    """Measure the blocks of a search space on a device and publish the latency table; diff compares two tables.

    Of a large space those rows are measured that tell most of the others, until networks that were left out are
    predicted well enough. Interrupted at any moment, the same command goes on where it stopped.
    """

    device: str = option(
        default="local", help="Device: a folder of profiles/; several with commas are profiled at the same time."
    )
    space: str = option(
        default="x3d-tiny",
        help="Search space: a file of search_spaces/, zoo:NAME, or package.module:function of your own model; several "
        "with commas are profiled one after the other.",
    )
    precision: str = option(default="fp32,int8", help="fp32, fp16, bf16, int8, or several with commas.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    runtime: str = option(default="executorch", help="executorch, litert, onnx, openvino, torch or torchscript.")
    accuracy: str = option(
        default=DEFAULT_ACCURACY,
        help="End when half of the networks of the space are predicted within this share, by those left out.",
    )
    all_rows: bool = option(default=False, help="Measure every row of the space, whatever the accuracy is by then.")
    limit: int | None = option(default=None, min=1, help="Measure at most this many missing rows.")
    budget: str | None = option(
        default=None,
        help='Latency budget such as "12 ms": measure only what networks within it use, the most used first.',
    )
    classes: int = option(default=DEFAULT_CLASSES, min=1, max=MAX_SIZE, help="Classes of the networks' heads.")
    calibrate: int = option(default=DEFAULT_CALIBRATION, min=0, help="Whole networks to calibrate with.")
    networks_only: bool = option(default=False, help="Measure only these networks: enough for --transfer-from.")
    processes: int | None = option(default=None, min=1, help="Build processes; default: what fits.")
    retry: bool = option(default=False, flags=("--retry/--no-retry",), help="Measure failed rows again.")
    remeasure: bool = option(
        default=False,
        flags=("--remeasure", "--anew"),
        help="Measure again what is measured; if interrupted, go on without this option.",
    )
    refresh: bool = option(
        default=False,
        help="Measure a few whole networks alone, within a minute, and move the scale of the tables to now.",
    )
    variants: str = option(
        default="", blank=True, help="Also measure these layouts of convolutions over time: names with commas, or all."
    )
    streaming: bool = option(
        default=False,
        help="Rows of one new frame of a stream, its states in and out, in causal form: a table of its own.",
    )
    conditions: str | None = option(
        default=None,
        choices=CONDITIONS,
        help="stock leaves the device as it is, controlled holds its clocks and more; default: its file.",
    )
    aa: bool = option(default=True, help="Run the A/A test of the device at the end.")

    def validate(self) -> None:
        """Raises InvalidValue where a text does not parse, or fields do not go together."""
        if not self.devices:
            raise InvalidValue(f"--device: expected the name of a device, or several with commas, got {self.device!r}")
        if not self.spaces:
            raise InvalidValue(f"--space: expected the name of a space, or several with commas, got {self.space!r}")
        _ = self.precisions, self.budget_s, self.accuracy_share
        unread = (*changed(self, *_CHOOSES_ROWS), *(() if self.aa else ("--no-aa",))) if self.refresh else ()
        if unread:
            raise InvalidValue(f"--refresh measures a few whole networks alone; leave {enumeration(unread)} out")
        if self.streaming and self.variants:
            raise InvalidValue("--streaming: a stream has one layout; leave --variants out")
        if self.budget is not None and self.networks_only:
            raise InvalidValue(
                "--budget and --networks-only do not go together: whole networks are no rows of a search"
            )
        if self.networks_only and (unread := changed(self, "accuracy", "all_rows", "variants")):
            raise InvalidValue(f"--networks-only measures whole networks alone; leave {enumeration(unread)} out")
        if self.networks_only and not self.calibrate:
            raise InvalidValue("--networks-only: expected at least --calibrate 1, got 0")
        if self.all_rows and changed(self, "accuracy"):
            raise InvalidValue("--all-rows measures every row, whatever the accuracy is by then; leave --accuracy out")

    @property
    def variant(self) -> str:
        """In what form blocks and networks are timed: ``stream`` or ``auto``."""
        return STREAM if self.streaming else AUTO

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices, each once."""
        return _names(self.device)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces as they are named, each once."""
        return _names(self.space)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The precisions, one table each."""
        return parse_precisions(self.precision)

    @property
    def going_on(self) -> str:
        """The command that goes on where this one ended, in words."""
        return "the same command without --remeasure" if self.remeasure else "the same command"

    @property
    def budget_s(self) -> float | None:
        """The budget in seconds."""
        return None if self.budget is None else parse_duration(self.budget, name="--budget")

    @property
    def accuracy_share(self) -> float:
        """The accuracy that is enough, as a fraction."""
        return parse_share(self.accuracy, name="--accuracy")


def parse_precisions(text: str) -> tuple[Precision, ...]:
    """Reads ``fp32,int8``: each at most once, in the order given.

    Raises:
        InvalidValue: Empty, or something else.
    """
    precisions = tuple(dict.fromkeys(map(Precision.parse, _names(text))))
    if not precisions:
        raise InvalidValue(f'--precision: expected fp32, fp16, bf16, int8 or several such as "fp32,int8", got {text!r}')
    return precisions


def parse_conditions(text: str | None) -> Conditions | None:
    """Reads ``stock`` or ``controlled``; None where nothing was said.

    Raises:
        InvalidValue: Something else.
    """
    from hwbench.devices import Conditions

    if text is None:
        return None
    if text not in tuple(Conditions):
        raise InvalidValue(f"--conditions: expected {' or '.join(Conditions)}, got {text!r}")
    return Conditions(text)


def parse_variants(text: str) -> tuple[str, ...]:
    """Reads ``one-hot,segments`` or ``all``; nothing for an empty text.

    Raises:
        UnknownName: No such variant.
    """
    names = _names(text)
    if not names:
        return ()
    from hwbench.blocks import variants

    if names == ("all",):
        return tuple(variants.names())
    for name in names:
        variants.get(name)
    return names


def _names(text: str) -> tuple[str, ...]:
    """The names in a text with commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
