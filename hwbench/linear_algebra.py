"""Linear algebra of small matrices on one thread of BLAS.

Matrices of some hundred rows gain nothing from the threads of BLAS, which wait for each other beside other processes
(experiments/008-prediction-speed). And sums have one order, whatever the number of cores. Loads no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limits BLAS to one thread within a block, or, as a decorator, within a function.

    A function that loads SciPy itself does so before the block: SciPy brings a BLAS of its own.
    """
    with _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries(with_scipy: bool) -> ThreadpoolController:
    """What is loaded; looked for anew when SciPy has come."""
    return ThreadpoolController()
