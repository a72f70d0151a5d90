"""Static int8 by PT2E: weights symmetric per output channel, activations affine per tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import fx, nn
from torchao.quantization.pt2e import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationConfig, QuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from hwbench.errors import UnknownName
from hwbench.registry import suggest
from hwbench.runtimes.base import arguments_of, hands_on
from hwbench.runtimes.calibration import require_clips, require_observed
from hwbench.runtimes.executorch.scheme import Scheme
from hwbench.runtimes.executorch.states import share_ranges
from hwbench.runtimes.executorch.straight_through import StraightThrough
from hwbench.runtimes.passes.float_scalars import float_scalars
from hwbench.runtimes.passes.own_biases import own_biases
from hwbench.specs import Precision

if TYPE_CHECKING:
    from hwbench.runtimes.base import Example

_OBSERVERS = {
    "histogram": HistogramObserver,
    "minmax": MinMaxObserver,
    "moving-average": MovingAverageMinMaxObserver,
}
# The smallest scale: below it the fixed-point multipliers of XNNPACK run out of bits.
SMALLEST_SCALE = 2**-12


class _Quantizer(XNNPACKQuantizer):  # type: ignore[misc]
    """The engine's quantizer without its patterns of training-time normalisation, which preparation folds first.

    Each of them would be exported anew for every module, which takes longer than all the rest of the quantisation.
    """

    SUPPORTED_PATTERNS: ClassVar = [p for p in XNNPACKQuantizer.SUPPORTED_PATTERNS if "_bn" not in p.name]
    # How states of a stream are rounded; None: there are none.
    states: QuantizationSpec | None = None

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """What is quantised, and nothing where the filter says no.

        The engine itself asks the filter neither at ``cat`` nor where a value in int8 is moved or averaged; a node that
        has an annotation already, if of nothing, it leaves alone.
        """
        for node in model.graph.nodes:
            if self.filter_fn is not None and not self.filter_fn(node):
                node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
        annotated: fx.GraphModule = super().annotate(model)
        if self.states is not None:
            share_ranges(annotated.graph, self.states)
        return annotated


def quantized(
    module: nn.Module, example: Example, calibration: Sequence[Example], scheme: Scheme | None = None
) -> nn.Module:
    """The module with quantise and dequantise operations around what XNNPACK computes in int8.

    Args:
        module: In eval mode; left as it is.
        example: One input; its shape is baked in.
        calibration: Inputs of that shape; every one of them is run through the module to find the ranges.
        scheme: What is quantised, and how ranges are found; default: all of it, by histograms.

    Raises:
        NotCalibrated: There are none, or they hold values that are not finite, or an activation saw none.
        InvalidValue: One has another shape than the example.
        UnknownName: The module has no such block as is to stay in fp32.
    """
    return converted(observed(module, example, calibration, scheme or Scheme()))


def observed(module: nn.Module, example: Example, calibration: Sequence[Example], scheme: Scheme) -> fx.GraphModule:
    """The graph of a module with an observer at every value that becomes int8, each of which has seen all inputs.

    Arguments and errors as of ``quantized``.
    """
    require_clips(calibration, example)
    quantizer = _quantizer(_after_training(scheme), (*fp32_paths(module, scheme), *kept_in_float(module)))
    if hands_on(module):
        quantizer.states = _activation(_OBSERVERS[scheme.observer].with_args(eps=SMALLEST_SCALE), symmetric=True)
    with torch.no_grad():
        prepared: fx.GraphModule = prepare_pt2e(_graph(module, example), quantizer)
        for batch in calibration:
            prepared(*arguments_of(batch))
    require_observed(prepared)
    return prepared


def trainable(module: nn.Module, example: torch.Tensor, scheme: Scheme) -> fx.GraphModule:
    """The graph of a module, rounded to int8 wherever ``quantized`` rounds, with a gradient (Jacob et al. 2018).

    Rounding passes the gradient straight through. Ranges of activations are moving averages of what runs through in
    training; those of weights are those of the weights themselves.

    Raises:
        UnknownName: The module has no such block as is to stay in fp32.
    """
    quantizer = _quantizer(_in_training(), (*fp32_paths(module, scheme), *kept_in_float(module)))
    prepared: fx.GraphModule = prepare_qat_pt2e(_graph(module, example), quantizer)
    return prepared


def converted(prepared: fx.GraphModule) -> nn.Module:
    """Quantise and dequantise operations in the place of observers; the graph that is given is used up.

    Raises:
        NotCalibrated: An observer saw nothing, or a value that is not finite.
    """
    require_observed(prepared)
    with torch.no_grad():
        module: nn.Module = convert_pt2e(prepared)
    return module


def observers(prepared: nn.Module) -> Iterator[tuple[str, Any]]:
    """The outermost modules that hold a range, by name."""
    for name, child in prepared.named_children():
        if hasattr(child, "calculate_qparams"):
            yield name, child


def fp32_paths(module: nn.Module, scheme: Scheme) -> tuple[str, ...]:
    """Where in a module the blocks are that a scheme keeps in fp32.

    The blocks of a stream have the names that they have in a clip: without the module of the stream that they are in
    (``blocks_in``), which a name may have as well.

    Raises:
        UnknownName: The module has no such block.
    """
    inside = f"{module.blocks_in}." if hasattr(module, "blocks_in") else ""
    known = [path.removeprefix(inside) for path, _ in module.named_modules() if path and path.startswith(inside)]
    names = [name.removeprefix(inside) for name in scheme.fp32_blocks]
    for name in names:
        if name not in known:
            raise UnknownName(f"no block {name!r} to keep in fp32; {suggest(name, _beside(name, known))}")
    return tuple(f"{inside}{name}" for name in names)


def kept_in_float(module: nn.Module) -> tuple[str, ...]:
    """Names of the modules that stay in fp32 whatever the scheme: those that say so (``in_fp32``)."""
    return tuple(name for name, one in module.named_modules() if Precision.INT8 in getattr(one, "in_fp32", ()))


def _beside(name: str, known: Sequence[str]) -> list[str]:
    """The modules that one of an unknown name would stand beside, or, where none would, stages and their blocks."""
    inside, _, _ = name.rpartition(".")
    if inside in known:
        return [each for each in known if each.rpartition(".")[0] == inside]
    return [each for each in known if each.count(".") < 2]


def block_of(node: fx.Node, blocks: Sequence[str]) -> str | None:
    """The block that a node of an exported graph comes from, or None."""
    for path, _ in reversed([*(node.meta.get("nn_module_stack") or {}).values()]):
        for block in blocks:
            if path == block or path.startswith(f"{block}."):
                return block
    return None


def _graph(module: nn.Module, example: Example) -> fx.GraphModule:
    graph = torch.export.export(module, arguments_of(example), strict=False).module()
    assert isinstance(graph, fx.GraphModule)
    own_biases(graph)
    float_scalars(graph)
    return graph


def _quantizer(config: QuantizationConfig, fp32_blocks: Sequence[str]) -> _Quantizer:
    quantizer = _Quantizer()
    quantizer.set_global(config)
    if fp32_blocks:
        quantizer.set_filter_function(lambda node: block_of(node, fp32_blocks) is None)
    return quantizer


def _after_training(scheme: Scheme) -> QuantizationConfig:
    config = get_symmetric_quantization_config(is_per_channel=True)
    activation = _activation(_OBSERVERS[scheme.observer].with_args(eps=SMALLEST_SCALE))
    return QuantizationConfig(activation, activation, config.weight, config.bias, False)


def _in_training() -> QuantizationConfig:
    # A range of weights that averaged its past would be that of no weights at all: its constant is 1.
    weight = QuantizationSpec(
        dtype=torch.int8,
        quant_min=-127,
        quant_max=127,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
        observer_or_fake_quant_ctr=StraightThrough.with_args(
            observer=MovingAveragePerChannelMinMaxObserver, eps=SMALLEST_SCALE, averaging_constant=1.0
        ),
    )
    activation = _activation(StraightThrough.with_args(observer=MovingAverageMinMaxObserver, eps=SMALLEST_SCALE))
    return QuantizationConfig(activation, activation, weight, None, True)


def _activation(observer: Any, *, symmetric: bool = False) -> QuantizationSpec:
    return QuantizationSpec(
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine,
        observer_or_fake_quant_ctr=observer,
    )
