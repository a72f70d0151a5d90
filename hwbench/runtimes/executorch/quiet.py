"""The engine's talk, kept out of ours: deprecations of its own calls and progress of its passes."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

_LOGGERS = (
    "executorch",
    "torchao",
    "torch.export",
    "torch.utils._pytree",
    "torch.utils.cpp_extension",  # nncf imports it, and it looks for CUDA
    "torch._export",
    "torch.onnx",
    "onnxscript",
    "nncf",
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Python warnings and below-error log lines of torch, torchao and executorch; restored at the end."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
