"""ExecuTorch with the XNNPACK delegate: ``.pte`` files in fp32 and int8."""

from hwbench.runtimes.executorch.runtime import ExecuTorch

__all__ = ["ExecuTorch"]
