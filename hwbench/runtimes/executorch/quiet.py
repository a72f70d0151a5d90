"""The engine's talk, kept out of ours: deprecations of its own calls and progress of its passes."""

from __future__ import annotations

import contextlib
import logging
import sys
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
# Calls ``logging.basicConfig`` when it is imported, after which that of a program does nothing.
_CONFIGURES_LOGGING = "executorch.backends.xnnpack.partition.xnnpack_partitioner"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Python warnings and below-error log lines of torch, torchao and executorch; restored at the end.

    The handler that the first import of the engine gives the root logger is taken away at the end.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with _root_logger_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@contextlib.contextmanager
def _root_logger_kept() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, is_imported = [*root.handlers], root.level, _CONFIGURES_LOGGING in sys.modules
    try:
        yield
    finally:
        added = [] if is_imported else [handler for handler in root.handlers if handler not in handlers]
        for handler in added:
            root.removeHandler(handler)
        if added:
            root.setLevel(level)
