"""What is rewritten in the graph of a ``.tflite``, so that XNNPACK takes all of it and moves no value for nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

# XNNPACK converts int8 to int8 where input scale / output scale is within this range.
_LEAST_RATIO, _LARGEST_RATIO = 2.0**-8, 2.0**7
_LOWEST_INT8 = -128
# In the place of an input that an operator does without.
_NO_TENSOR = -1


def simplified(content: bytes) -> bytes:
    """The file in fp32 with transpositions and reshapes that leave all values in order as one reshape.

    The converter turns every folded activation into channels last. Between frames as batch (N·T, H, W, C) and time as
    height (N, T, H·W, C) it goes through channels first and back: two transpositions of the whole activation, for what
    is the same bytes in both.

    Behind a ReLU, what a maximum is taken of is padded with zeros in the place of -inf, which XNNPACK does not take.
    """
    model = _read(content)
    for index, graph in enumerate(model.subgraphs):
        _join_moves(model, graph)
        _pad_with_zeros(model, graph)
        signatures = [one for one in model.signatureDefs or [] if one.subgraphIndex == index]
        _drop_tensors(graph, [entry for one in signatures for entry in (*one.inputs, *one.outputs)])
    return _written(model)


def delegable(content: bytes) -> bytes:
    """The file in int8 with every ReLU as a conversion of int8, which XNNPACK takes and a ReLU it does not.

    A ReLU's output begins at 0, so that 0 is its lowest number, -128: converting to its scale saturates there, and
    gives every value that the ReLU gives.
    """
    model = _read(content)
    for graph in model.subgraphs:
        for operator in graph.operators:
            if _name(model, operator) == "RELU" and _saturates(graph, operator):
                _become(model, operator, "QUANTIZE", 2)
    return _written(model)


def _join_moves(model: Any, graph: Any) -> None:
    """Makes the last of some moves that leave the order of values a reshape, and drops those nobody reads any more."""
    makers = {int(operator.outputs[0]): operator for operator in graph.operators}
    for operator in graph.operators:
        if _name(model, operator) != "TRANSPOSE":
            continue
        for moves in reversed([*_chains(model, makers, operator)]):
            if _in_order(model, graph, moves):
                _reshape(model, graph, operator, int(moves[0].inputs[0]))
                break
    _drop_unread(model, graph)


def _pad_with_zeros(model: Any, graph: Any) -> None:
    """Pads with zeros where a maximum of values that are not negative comes out alike."""
    makers = {int(operator.outputs[0]): operator for operator in graph.operators}
    for operator in graph.operators:
        if _name(model, operator) != "PADV2":
            continue
        readers = [one for one in graph.operators if int(operator.outputs[0]) in map(int, one.inputs)]
        maker = makers.get(int(operator.inputs[0]))
        maxima = all(_name(model, reader) == "MAX_POOL_2D" for reader in readers)
        if (
            maxima
            and maker is not None
            and _is_rectified(model, maker)
            and int(operator.outputs[0]) not in graph.outputs
        ):
            operator.inputs = operator.inputs[:2]
            _become(model, operator, "PAD", 1)


def _is_rectified(model: Any, operator: Any) -> bool:
    """Whether what an operator gives is never negative."""
    from ai_edge_litert import schema_py_generated as schema

    kind = schema.ActivationFunctionType
    fused = getattr(operator.builtinOptions, "fusedActivationFunction", kind.NONE)
    return _name(model, operator) in ("RELU", "RELU6") or fused in (kind.RELU, kind.RELU6)


def _chains(model: Any, makers: dict[int, Any], last: Any) -> Iterator[list[Any]]:
    """The moves that end in one, the longest at the end."""
    chain = [last]
    while True:
        yield chain
        before = makers.get(int(chain[0].inputs[0]))
        if before is None or _name(model, before) not in ("TRANSPOSE", "RESHAPE"):
            return
        chain = [before, *chain]


def _in_order(model: Any, graph: Any, moves: list[Any]) -> bool:
    """Whether moves leave the order of values; read off the strides of an array that is never written."""
    whole = np.empty([int(size) for size in graph.tensors[moves[0].inputs[0]].shape], np.uint8)
    moved = whole
    for move in moves:
        if _name(model, move) == "TRANSPOSE":
            moved = moved.transpose(_constant(model, graph, move.inputs[1]))
        else:
            moved = moved.reshape([int(size) for size in graph.tensors[move.outputs[0]].shape])
    return moved.flags.c_contiguous and np.may_share_memory(moved, whole)


def _reshape(model: Any, graph: Any, operator: Any, source: int) -> None:
    """Makes an operator a reshape of another tensor to the shape it has."""
    from ai_edge_litert import schema_py_generated as schema

    shape = np.array(graph.tensors[operator.outputs[0]].shape, np.int32)
    buffer, tensor = schema.BufferT(), schema.TensorT()
    buffer.data = np.frombuffer(shape.tobytes(), np.uint8)
    model.buffers.append(buffer)
    tensor.name, tensor.type = f"reshape_{len(graph.tensors)}", schema.TensorType.INT32
    tensor.shape, tensor.buffer = np.array([len(shape)], np.int32), len(model.buffers) - 1
    tensor.hasRank = True
    graph.tensors.append(tensor)
    operator.inputs = np.array([source, len(graph.tensors) - 1], np.int32)
    _become(model, operator, "RESHAPE", 1)
    operator.builtinOptions.newShape = shape


def _drop_unread(model: Any, graph: Any) -> None:
    """Drops moves whose output nobody reads."""
    while True:
        read = {int(tensor) for tensor in graph.outputs}
        read.update(int(tensor) for operator in graph.operators for tensor in operator.inputs)
        kept = [
            operator
            for operator in graph.operators
            if _name(model, operator) not in ("TRANSPOSE", "RESHAPE") or int(operator.outputs[0]) in read
        ]
        if len(kept) == len(graph.operators):
            return
        graph.operators = kept


def _drop_tensors(graph: Any, entries: list[Any]) -> None:
    """Drops tensors that no operator has, which the quantiser would look for; entries of signatures follow."""
    lists = [(owner, name) for owner in (graph, *graph.operators) for name in ("inputs", "outputs")]
    used = {int(tensor) for owner, name in lists for tensor in getattr(owner, name)} - {_NO_TENSOR}
    kept = sorted(used | {entry.tensorIndex for entry in entries})
    place = {_NO_TENSOR: _NO_TENSOR, **{tensor: at for at, tensor in enumerate(kept)}}
    graph.tensors = [graph.tensors[tensor] for tensor in kept]
    for owner, name in lists:
        setattr(owner, name, [place[int(tensor)] for tensor in getattr(owner, name)])
    for entry in entries:
        entry.tensorIndex = place[entry.tensorIndex]


def _saturates(graph: Any, operator: Any) -> bool:
    """Whether a ReLU is what a conversion of int8 does, within what XNNPACK converts."""
    ends = [graph.tensors[operator.inputs[0]].quantization, graph.tensors[operator.outputs[0]].quantization]
    if any(end is None or end.scale is None or len(end.scale) != 1 for end in ends):
        return False
    ratio = float(ends[0].scale[0]) / float(ends[1].scale[0])
    return int(ends[1].zeroPoint[0]) == _LOWEST_INT8 and _LEAST_RATIO <= ratio <= _LARGEST_RATIO


def _become(model: Any, operator: Any, name: str, version: int) -> None:
    """Makes an operator another one, with that one's options as they are by default."""
    from ai_edge_litert import schema_py_generated as schema

    kind = getattr(schema.BuiltinOperator, name)
    options = f"{name.capitalize()}Options"
    codes = [(_kind(code), code.version) for code in model.operatorCodes]
    if (kind, version) not in codes:
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = kind, min(kind, 127), version
        model.operatorCodes.append(code)
        codes.append((kind, version))
    operator.opcodeIndex = codes.index((kind, version))
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
    operator.builtinOptions = getattr(schema, f"{options}T")()


def _name(model: Any, operator: Any) -> str:
    return _names()[_kind(model.operatorCodes[operator.opcodeIndex])]


def _kind(code: Any) -> int:
    return max(int(code.builtinCode), int(code.deprecatedBuiltinCode))


@functools.cache
def _names() -> dict[int, str]:
    from ai_edge_litert import schema_py_generated as schema

    return {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}


def _constant(model: Any, graph: Any, tensor: int) -> list[int]:
    data = model.buffers[graph.tensors[tensor].buffer].data
    return [int(value) for value in np.frombuffer(bytes(bytearray(data)), np.int32)]


def _read(content: bytes) -> Any:
    from ai_edge_litert.tools import flatbuffer_utils

    return flatbuffer_utils.read_model_from_bytearray(bytearray(content))


def _written(model: Any) -> bytes:
    from ai_edge_litert.tools import flatbuffer_utils

    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))
