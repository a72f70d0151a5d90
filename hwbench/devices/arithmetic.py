"""Whether the processors of a device have the arithmetic that a precision needs."""

from __future__ import annotations

from collections.abc import Iterable

from hwbench.devices.probe import Probe
from hwbench.errors import InvalidValue
from hwbench.specs import Precision

# ARMv8.2: half precision for vectors. Without it XNNPACK computes such a file in fp32, which takes as long as fp32.
_ARM_HALF = "asimdhp"
_ARM = frozenset({"aarch64", "arm64", "armv8l"})
# What XNNPACK emulates fp16 with on x86: it widens to fp32, multiplies, and rounds each result.
_X86_HALF = ("f16c", "fma", "avx2")


def require_arithmetic(probe: Probe, device: str, precisions: Iterable[Precision]) -> None:
    """Nothing to say of a device whose processors compute in each of the precisions.

    Only fp16 asks for something. bf16 is asked of the engine when it loads a file.

    Raises:
        InvalidValue: They do not; names what is missing, and what to choose.
    """
    missing = lacking(probe) if Precision.FP16 in precisions else ()
    if missing:
        parts = ", ".join(dict.fromkeys(cpu.part for cpu in probe.cpus)) or probe.model
        raise InvalidValue(
            f"device {device!r} has no fp16 arithmetic ({parts} without {' and '.join(missing)}): the engine would "
            "compute in fp32 there, as long as fp32 takes; expected ARMv8.2 or later, such as Cortex-A55, A75 and A76; "
            "choose --precision int8 or fp32"
        )


def lacking(probe: Probe) -> tuple[str, ...]:
    """The features that fp16 needs and the processors do not have."""
    wanted = (_ARM_HALF,) if probe.arch in _ARM else _X86_HALF
    return tuple(name for name in wanted if name not in probe.features)


def emulates_half(probe: Probe) -> bool:
    """Whether fp16 is there, but computed in fp32 and rounded: x86 without avx512_fp16."""
    return probe.arch not in _ARM and "avx512_fp16" not in probe.features
