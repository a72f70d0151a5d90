import pytest


@pytest.fixture(autouse=True, scope="session")
def state_folder(tmp_path_factory):
    """Leases of one test process are its own: another one beside it may measure on this machine too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
