import os

import pytest

from hwbench.errors import MissingDependency
from hwbench.testing import power


@pytest.fixture(autouse=True, scope="session")
def state_folder(tmp_path_factory):
    """Leases of one test process are its own: another one beside it may measure on this machine too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_phone():
    """No test reaches a phone of whoever runs it: adb refuses this port. Tests that use adb give it another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", "0")
        patch.delenv("ADB_SERVER_SOCKET", raising=False)
        patch.delenv("ANDROID_SERIAL", raising=False)
        yield


@pytest.fixture(autouse=True)
def no_phone_of_others(request, monkeypatch):
    """The laboratory's phone stays for the session: tests that are not about phones do not see it either."""
    if request.path.parent.name != "lab" and not request.path.name.startswith("test_devices_adb"):
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "0")


@pytest.fixture(autouse=True, scope="session")
def one_build_worker():
    """A process of the tests builds in one worker: there are as many such processes as processors, and a worker takes
    eight seconds of one to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwbench.measure.builder.default_processes", lambda: 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk():
    """What a process of the tests writes need not outlive the power: a tenth of its time went into waiting for that.

    What is there after a power cut is shown by programs of their own (``tests/test_power.py`` and its like).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr("hwbench.measure.database.SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(scope="session")
def runner_cache(tmp_path_factory):
    """Where built runners lie: one folder for all processes of one run of the tests, so that each is built once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runners"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def power_shim(tmp_path_factory):
    """What records the writes of a program, for ``hwbench.testing.power``."""
    try:
        return power.build_shim(tmp_path_factory.mktemp("power"))
    except MissingDependency as missing:
        pytest.skip(str(missing))
