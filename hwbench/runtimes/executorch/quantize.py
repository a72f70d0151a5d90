"""Static int8 by PT2E: weights symmetric per output channel, activations affine per tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from hwbench.errors import InvalidValue, NotCalibrated
from hwbench.runtimes.passes.float_scalars import float_scalars
from hwbench.runtimes.passes.own_biases import own_biases


class _Quantizer(XNNPACKQuantizer):  # type: ignore[misc]
    """The engine's quantizer without its patterns of training-time normalisation, which preparation folds first.

    Each of them would be exported anew for every module, which takes longer than all the rest of the quantisation.
    """

    SUPPORTED_PATTERNS: ClassVar = [p for p in XNNPACKQuantizer.SUPPORTED_PATTERNS if "_bn" not in p.name]


def quantized(module: nn.Module, example: torch.Tensor, calibration: Sequence[torch.Tensor]) -> nn.Module:
    """The module with quantise and dequantise operations around what XNNPACK computes in int8.

    Args:
        module: In eval mode; left as it is.
        example: One input; its shape is baked in.
        calibration: Inputs of that shape; every one of them is run through the module to find the ranges.

    Raises:
        NotCalibrated: There are none, or they hold values that are not finite, or an activation saw none.
        InvalidValue: One has another shape than the example.
    """
    if not calibration:
        raise NotCalibrated("int8 needs calibration data, got none; give at least one clip (export: --calibration)")
    quantizer = _Quantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    with torch.no_grad():
        graph = torch.export.export(module, (example,), strict=False).module()
        own_biases(graph)
        float_scalars(graph)
        prepared = prepare_pt2e(graph, quantizer)
        for batch in calibration:
            if batch.shape != example.shape:
                raise InvalidValue(
                    f"calibration: expected inputs of shape {tuple(example.shape)}, got {tuple(batch.shape)}"
                )
            if not bool(torch.isfinite(batch).all()):
                raise NotCalibrated("int8: the calibration data holds NaN or infinity; give clips of finite values")
            prepared(batch)
        require_observed(prepared)
        converted: nn.Module = convert_pt2e(prepared)
    return converted


def require_observed(prepared: nn.Module) -> None:
    """Whether every observer of a prepared module has a range.

    Raises:
        NotCalibrated: One saw nothing, or a value that is not finite.
    """
    for name, observer in prepared.named_modules():
        low, high = getattr(observer, "min_val", None), getattr(observer, "max_val", None)
        if low is None or high is None:
            continue
        if not (low.numel() and bool(torch.isfinite(low).all()) and bool(torch.isfinite(high).all())):
            raise NotCalibrated(
                f"int8: the range of {name} is not known after calibration ({low.tolist()} to {high.tolist()}); "
                "check the calibration data for NaN and infinity"
            )
