"""hwbench: hardware-aware search and profiling of video models. Importing this package loads no torch."""

from hwbench.errors import HwbenchError

__all__ = ["HwbenchError", "__version__"]

__version__ = "0.1.0"
