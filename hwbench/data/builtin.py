"""The sets that hwbench makes itself, by name: ``synthetic``, and ``synthetic:NAME`` of a registered one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hwbench.data.clips import ClipSpec
from hwbench.data.generation import SetSpec
from hwbench.data.motion48 import Motion48Spec
from hwbench.data.synthetic import SyntheticSpec
from hwbench.registry import Registry

SYNTHETIC = "synthetic"
PREFIX = f"{SYNTHETIC}:"

_SPECS: Mapping[str, type[SetSpec]] = {spec.kind: spec for spec in (SyntheticSpec, Motion48Spec)}


@dataclass(frozen=True)
class BuiltinSet:
    """A generated set and how clips are cut from its videos: ``clip`` takes a number of frames."""

    spec: SetSpec
    clip: Callable[[int], ClipSpec]


builtin_sets: Registry[BuiltinSet] = Registry("synthetic set")


def _actions_clip(frames: int) -> ClipSpec:
    # 16 of the 24 frames, so that a random clip has room to start.
    return ClipSpec(frames, stride=max(1, 16 // frames))


def _motion48_clip(frames: int) -> ClipSpec:
    # 16 of the 20 frames, however many are seen of them: both parts of a motion and the pause are in every clip.
    return ClipSpec(frames, span_s=1.6)


builtin_sets.register("motion48")(BuiltinSet(Motion48Spec(), _motion48_clip))
# Decoded, it stays in 512 MiB for each split.
builtin_sets.register("motion48:small")(BuiltinSet(Motion48Spec(train_per_class=40, size=64), _motion48_clip))


def find_builtin(data: str) -> BuiltinSet | None:
    """The set that a data name means; None where the name is a path or ``READER:PATH``.

    Raises:
        UnknownName: ``synthetic:NAME``, and no set has that name.
    """
    if data == SYNTHETIC:
        return BuiltinSet(SyntheticSpec(), _actions_clip)
    return builtin_sets.get(data.removeprefix(PREFIX)) if data.startswith(PREFIX) else None


def spec_of(kind: str, values: Mapping[str, int]) -> SetSpec:
    """The specification of a kind of set with these parameters."""
    return _SPECS[kind](**values)
