"""BLAS on one thread."""

import subprocess
import sys

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from hwbench.linear_algebra import one_blas_thread

# NumPy's BLAS alone is limited first, then SciPy's comes.
_BEFORE_SCIPY = """
from threadpoolctl import threadpool_info, threadpool_limits
import numpy
from hwbench.linear_algebra import one_blas_thread
with one_blas_thread():
    pass
import scipy.linalg
threadpool_limits(2)
with one_blas_thread():
    assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {1}
"""


def threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_a_block_and_a_function_have_one_thread_and_others_what_they_had() -> None:
    assert np.linalg.norm(scipy.linalg.cholesky(np.eye(2))) > 1  # both libraries are loaded
    limited = one_blas_thread()(threads)
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}
        assert limited() == limited() == {1}
        assert threads() == {2}


def test_a_library_that_comes_later_is_limited_as_well() -> None:
    subprocess.run([sys.executable, "-c", _BEFORE_SCIPY], check=True)
