"""Static int8 in QDQ form: weights symmetric per output channel, activations unsigned and affine per tensor."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from hwbench.runtimes.base import arguments_of
from hwbench.runtimes.calibration import require_clips
from hwbench.runtimes.onnx.export import input_names
from hwbench.scratch import scratch_folder

if TYPE_CHECKING:
    from hwbench.runtimes.base import Example


class _Clips(CalibrationDataReader):  # type: ignore[misc]
    """Calibration data as ONNX Runtime wants to read it."""

    def __init__(self, calibration: Sequence[Example]) -> None:
        self._left = iter(calibration)

    def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
        clip = next(self._left, None)
        if clip is None:
            return None
        arguments = arguments_of(clip)
        return {name: one.numpy() for name, one in zip(input_names(len(arguments)), arguments)}


def quantized(model: onnx.ModelProto, example: Example, calibration: Sequence[Example]) -> onnx.ModelProto:
    """The model with quantise and dequantise operations around everything that ONNX Runtime computes in int8.

    Activations are uint8, for which ONNX Runtime has fast kernels everywhere; weights keep to 7 bits, so that a
    processor without dot products of int8 (AVX2) does not overflow between two multiplications.

    Args:
        model: As ``exported`` gives it; left as it is.
        example: One input.
        calibration: Inputs of that shape; every one of them is run through the model to find the ranges.

    Raises:
        NotCalibrated: There are none, or they hold values that are not finite.
        InvalidValue: One has another shape than the example.
    """
    require_clips(calibration, example)
    with scratch_folder() as folder, _silent():
        plain, folded, result = (Path(folder, f"{name}.onnx") for name in ("plain", "folded", "int8"))
        onnx.save(model, plain)
        quant_pre_process(str(plain), str(folded), skip_symbolic_shape=True)
        quantize_static(
            str(folded),
            str(result),
            _Clips(calibration),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )
        made = onnx.load(result)
    onnx.checker.check_model(made, full_check=True)
    return made


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """The quantiser talks to the root logger itself."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
