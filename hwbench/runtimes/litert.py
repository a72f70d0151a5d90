"""LiteRT on the processor: ``.tflite`` files of the deploy form in fp32, fp16 and int8, run by XNNPACK."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hwbench.errors import UnsupportedModule
from hwbench.runtimes.base import Runtime, arguments_of, installed_version, runtimes
from hwbench.runtimes.calibration import require_clips
from hwbench.runtimes.capabilities import PYTHON, Capabilities, FileFormat, Quantiser
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.specs import Artifact, DelegationReport, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    from torch import nn

    from hwbench.runtimes.base import Example

# What runs a file, what converts a module, what quantises a file. A machine that only runs files needs the first.
_DISTRIBUTIONS = ("ai-edge-litert", "litert-torch", "ai-edge-quantizer", "litert-converter")
INSTALL = "hwbench[litert]"
# TensorFlow Lite's own entry for models that may compute in fp16; this value: products in fp16, sums in fp32.
HALF_ENTRY, HALF_VALUE = "reduced_precision_support", b"fp16accfp32"
_SIGNATURE = "serving_default"
# XNNPACK has these in floating point alone. In int8 LiteRT computes them itself, between two runs of XNNPACK.
_NOT_IN_INT8 = ("GELU", "HARD_SWISH")


@runtimes.register("litert")
class LiteRt(Runtime):
    """LiteRT (TensorFlow Lite of before) with its XNNPACK delegate, fp32 values in and out at every precision.

    The deploy form is converted by litert-torch, which turns (N·T, C, H, W) into the layout of the engine; moves of
    whole activations that leave them as they are go out of its graph (``litert_graph``). fp16 has weights in fp16 and
    says in the file that it may be computed in fp16. int8 is the static quantisation of ai-edge-quantizer: weights
    symmetric per output channel, activations by tensor, inputs and outputs left in fp32, and so what XNNPACK does not
    compute in int8.

    The delegation report is empty: what XNNPACK does not take LiteRT computes itself, except in fp16 (``LiteRtModel``).
    """

    name: ClassVar[str] = "litert"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=(*_DISTRIBUTIONS, "torch"),
        files=FileFormat(".tflite", "a LiteRT model", b"TFL3", 4),
        loader="hwbench.runtimes.litert_model:LiteRtModel",
        precisions=(Precision.FP32, Precision.FP16, Precision.INT8),
        quantiser=Quantiser.ENGINE,
        delegates=("xnnpack",),
        remote_runners=(PYTHON,),
        remote_packages=("ai-edge-litert", "numpy"),
        profiles=False,
        run_page="hwbench.runtimes:run-litert.md.in",
    )

    def version(self) -> str:
        """Version of the ai-edge-litert distribution.

        Raises:
            MissingDependency: It is not installed, or one of those that write the file.
        """
        versions = [installed_version(name, [INSTALL]) for name in _DISTRIBUTIONS]
        return versions[0]

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
    ) -> Artifact:
        """Writes the file; the same module, example and calibration data give the same bytes.

        Args:
            module: Deploy form; left as it is, and copied in eval mode.
            example: One input (N·T, C, H, W); its shape is baked in.
            workload: Its precision decides about weights and quantisation.
            out: The file.
            calibration: Inputs of the shape of ``example``, all of them used; needed for int8 only.

        Raises:
            MissingDependency: litert-torch is not installed, or what it needs.
            NotCalibrated: int8 without calibration data, or with values that are not finite.
            UnsupportedModule: The module has an operation that LiteRT has not.
            WorkspaceError: ``out`` cannot be written.
        """
        from hwbench.runtimes.litert_graph import delegable, simplified  # a board that runs files has no such module

        version = self.version()
        if workload.precision is Precision.INT8:
            require_clips(calibration, example)
        with quiet(), silent():
            content = simplified(converted(copy.deepcopy(module).eval(), example))
            if workload.precision is Precision.INT8:
                content = delegable(quantized(content, calibration))
            elif workload.precision is Precision.FP16:
                content = halved(content)
        write_bytes(out, content)
        digest = hashlib.sha256(content).hexdigest()
        return Artifact(out, digest, workload, self.name, version, DelegationReport(0))


def converted(module: nn.Module, example: Example) -> bytes:
    """The file of a module in fp32, for inputs of the shapes of the example only.

    Raises:
        UnsupportedModule: The module cannot be exported, or has an operation that LiteRT has not.
    """
    import litert_torch

    try:
        return bytes(litert_torch.convert(module, arguments_of(example)).model_content())
    except Exception as error:  # the converter raises what it likes
        cause = " ".join(str(error).split())[:300]
        raise UnsupportedModule(f"{type(module).__name__} cannot be written for LiteRT: {cause}") from error


def quantized(content: bytes, calibration: Sequence[Example]) -> bytes:
    """The file in int8; the range of an activation goes from its least to its largest value in all calibration data.

    Inputs and outputs stay in fp32, and so do GELU and hard swish, between two conversions.
    """
    from ai_edge_quantizer import qtyping
    from ai_edge_quantizer.quantizer import Quantizer

    operation = qtyping.TFLOperationName
    quantizer = Quantizer(bytearray(content))
    quantizer.add_static_config(".*", operation.ALL_SUPPORTED, activation_num_bits=8, weight_num_bits=8)
    for kept in (operation.INPUT, operation.OUTPUT, *(operation(name) for name in _NOT_IN_INT8)):
        quantizer.update_quantization_recipe(".*", kept, algorithm_key="no_quantize")
    ranges = _ranges(content, calibration, quantizer.get_quantization_recipe())
    return bytes(quantizer.quantize(ranges).quantized_model)


def _ranges(content: bytes, calibration: Sequence[Example], recipe: list[dict[str, Any]]) -> dict[str, Any]:
    """Least and largest value of each tensor of a file in fp32, over all calibration data.

    ``Quantizer.calibrate`` has no such setting: its ranges are a moving average, in which the first of four clips
    weighs 86 % and each further one 5 %.
    """
    from ai_edge_quantizer.calibrator import Calibrator
    from ai_edge_quantizer.recipe_manager import RecipeManager
    from ai_edge_quantizer.utils.qsv_utils import min_max_update

    clips = [{input_name(i): one.numpy() for i, one in enumerate(arguments_of(batch))} for batch in calibration]
    operations = RecipeManager()
    operations.load_quantization_recipe(recipe)
    calibrator = Calibrator(content, num_threads=1, qsv_update_func=min_max_update)
    calibrator.calibrate({_SIGNATURE: clips}, operations)
    ranges: dict[str, Any] = calibrator.get_model_qsvs()
    return ranges


def halved(content: bytes) -> bytes:
    """The file with weights in fp16, and the entry that lets it be computed in fp16."""
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils
    from ai_edge_quantizer import qtyping
    from ai_edge_quantizer.algorithm_manager import AlgorithmName
    from ai_edge_quantizer.quantizer import Quantizer

    quantizer = Quantizer(bytearray(content))
    weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    quantizer.update_quantization_recipe(
        ".*",
        qtyping.TFLOperationName.ALL_SUPPORTED,
        op_config=qtyping.OpQuantizationConfig(
            weight_tensor_config=weights,
            compute_precision=qtyping.ComputePrecision.FLOAT,
            explicit_dequantize=True,
        ),
        algorithm_key=AlgorithmName.FLOAT_CASTING,
    )
    model: Any = flatbuffer_utils.read_model_from_bytearray(bytearray(quantizer.quantize().quantized_model))
    value, entry = schema.BufferT(), schema.MetadataT()
    value.data = np.frombuffer(HALF_VALUE, np.uint8)
    model.buffers.append(value)
    entry.name, entry.buffer = HALF_ENTRY, len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), entry]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def input_name(index: int) -> str:
    """What the converter calls the inputs, from 0."""
    return f"args_{index}"


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without what the converter and the quantiser print, some of it from C++, which asks no setting."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with open(os.devnull, "w") as nowhere:
            for number in kept:
                os.dup2(nowhere.fileno(), number)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        for number, copied in kept.items():
            os.dup2(copied, number)
            os.close(copied)
