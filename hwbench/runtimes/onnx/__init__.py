"""ONNX Runtime on the processor: ``.onnx`` files in fp32 and int8."""

from hwbench.runtimes.onnx.runtime import OnnxRuntime

__all__ = ["OnnxRuntime"]
