import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def state_folder(tmp_path_factory):
    """Leases of one test process are its own: another one beside it may measure on this machine too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def arm_cache(tmp_path_factory):
    """Where runners for other machines lie; shared by the processes of one run of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "arm-cache"
    folder.mkdir(exist_ok=True)
    return folder
