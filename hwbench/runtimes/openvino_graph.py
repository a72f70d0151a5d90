"""What is rewritten in the graph of an ``.ovz``, so that OpenVINO computes what torch does."""

from __future__ import annotations

from typing import Any


def average_as_torch(openvino: Any, model: Any) -> None:
    """Makes average pooling with ``ceil_mode`` and padding that counts divide by what torch divides by.

    A window that reaches beyond the padding has fewer values: torch leaves out what lies beyond, OpenVINO's plugin for
    processors (2026.4) counts it. So zeros are put around the input by an operation of their own, and the padding that
    is left, what windows reach beyond it, does not count. Other operations stay as they are.

    Args:
        openvino: The module.
        model: An ``openvino.Model`` of fixed shapes, changed in place.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "AvgPool":
            continue
        given = node.get_attributes()
        reach = _beyond_padding(node, given)
        if given["rounding_type"] == "ceil_torch" and not given["exclude-pad"] and any(reach):
            _pad_before(openvino, node, given, reach)


def _beyond_padding(node: Any, given: dict[str, Any]) -> list[int]:
    """How far the last window of each axis reaches beyond the padding; 0 where it does not."""
    sizes, counts = (list(shape)[2:] for shape in (node.get_input_shape(0), node.get_output_shape(0)))
    axes = zip(sizes, counts, *(given[key] for key in ("pads_begin", "pads_end", "kernel", "strides")), strict=True)
    return [
        max((count - 1) * stride + kernel - (size + begin + end), 0) for size, count, begin, end, kernel, stride in axes
    ]


def _pad_before(openvino: Any, node: Any, given: dict[str, Any], reach: list[int]) -> None:
    ops = openvino.opset14
    begin, end = ([0, 0, *given[key]] for key in ("pads_begin", "pads_end"))
    padded = ops.pad(node.input_value(0), begin, end, "constant", arg_pad_value=0.0)
    none = [0] * len(reach)
    pooled = ops.avg_pool(
        padded, given["strides"], none, reach, given["kernel"], exclude_pad=True, rounding_type="floor"
    )
    for reader in node.output(0).get_target_inputs():
        reader.replace_source_output(pooled.output(0))
