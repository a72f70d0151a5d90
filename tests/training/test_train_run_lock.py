"""The folder of a run, which several threads of a process want."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hwbench.errors import InvalidValue
from hwbench.training.run_lock import is_trained_now, training_alone, training_in_turn


def enter(folder: Path) -> None:
    with training_alone(folder):
        pass


def is_locked_for_others(folder: Path) -> bool:
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    try:\n"
        "        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except BlockingIOError:\n"
        "        sys.exit(7)\n"
    )
    return subprocess.run([sys.executable, "-I", "-S", "-c", code, str(folder / ".lock")], timeout=60).returncode == 7


def test_a_second_thread_does_not_train_beside_a_first(tmp_path: Path) -> None:
    folder, expected = tmp_path / "run", "another thread of this process trains here; wait for it or choose another"
    with ThreadPoolExecutor(1) as pool:
        with training_alone(folder):
            with pytest.raises(InvalidValue, match=expected):
                pool.submit(enter, folder).result()
            assert is_trained_now(folder)
            assert is_locked_for_others(folder)
        assert not is_trained_now(folder)
        pool.submit(enter, folder).result()


def test_a_second_thread_waits_for_its_turn(tmp_path: Path) -> None:
    order, waits = [], threading.Event()

    def second() -> None:
        with training_in_turn(tmp_path, waits.set):
            order.append("second")
        waits.set()

    with ThreadPoolExecutor(1) as pool:
        with training_in_turn(tmp_path, lambda: pytest.fail("waited")):
            ended = pool.submit(second)
            assert waits.wait(60)
            order.append("first")
        ended.result(60)
    assert order == ["first", "second"]
    assert not is_trained_now(tmp_path)
