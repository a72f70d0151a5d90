"""What every engine asks of calibration data before it gives int8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwbench.errors import InvalidValue, NotCalibrated
from hwbench.runtimes.base import arguments_of

if TYPE_CHECKING:
    from torch import nn

    from hwbench.runtimes.base import Example


def require_clips(calibration: Sequence[Example], example: Example) -> None:
    """Nothing to say about inputs of the shape of the example, at least one, all of finite values.

    Raises:
        NotCalibrated: There are none, or they hold values that are not finite.
        InvalidValue: One has another shape than the example.
    """
    if not calibration:
        raise NotCalibrated("int8 needs calibration data, got none; give at least one clip (export: --calibrate)")
    expected = [tuple(one.shape) for one in arguments_of(example)]
    for batch in calibration:
        shapes = [tuple(one.shape) for one in arguments_of(batch)]
        if shapes != expected:
            wanted, given = (" and ".join(map(str, one)) for one in (expected, shapes))
            raise InvalidValue(f"calibration: expected inputs of shape {wanted}, got {given}")
        if not all(bool(one.isfinite().all()) for one in arguments_of(batch)):
            raise NotCalibrated("int8: the calibration data holds NaN or infinity; give clips of finite values")


def require_observed(prepared: nn.Module) -> None:
    """Whether every observer of a prepared module has a range.

    Raises:
        NotCalibrated: One saw nothing, or a value that is not finite.
    """
    for name, observer in prepared.named_modules():
        low, high = getattr(observer, "min_val", None), getattr(observer, "max_val", None)
        if low is None or high is None:
            continue
        if not (low.numel() and bool(low.isfinite().all()) and bool(high.isfinite().all())):
            raise NotCalibrated(
                f"int8: the range of {name} is not known after calibration ({low.tolist()} to {high.tolist()}); "
                "check the calibration data for NaN and infinity"
            )
