"""19-27: with one thread the Python runner computes without a thread pool, as the runner in C++ does."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hwbench.runtimes import pte_model


@pytest.fixture
def without_pool() -> Iterator[Callable[[], bool]]:
    """Asks the engine whether this thread computes without a pool."""
    bindings = pte_model.engine(1)
    library = Path(bindings.__file__).parents[2] / "lib" / "libexecutorch_threadpool.so"
    ask = ctypes.CDLL(str(library))[pte_model._GUARD.replace("11set_enabledEb", "10is_enabledEv")]
    ask.argtypes, ask.restype = [], ctypes.c_bool
    yield ask
    pte_model.engine(1)


def test_19_27_one_thread_means_no_pool(without_pool: Callable[[], bool]) -> None:
    assert without_pool()
    pte_model.engine(2)
    assert not without_pool()
    pte_model.engine(1)
    assert without_pool()


def test_19_27_an_engine_without_that_function_keeps_its_pool(
    without_pool: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pte_model.engine(2)
    monkeypatch.setattr(pte_model, "_GUARD", "_ZN5there2isE4none")
    assert pte_model.engine(1)._threadpool_get_thread_count() == 1
    assert not without_pool()
