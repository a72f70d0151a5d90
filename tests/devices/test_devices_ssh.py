import os

import pytest
import sshd as server

from hwbench.devices.base import Address, transports
from hwbench.testing.transports import TransportConformance

# Where the laboratory must run, so must this.
pytestmark = pytest.mark.skipif(
    not server.available() and "HWBENCH_LAB_REQUIRED" not in os.environ,
    reason="needs sshd: apt-get install openssh-server",
)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    sshd = server.Sshd(tmp_path_factory.mktemp("sshd") / "server")
    sshd.known()
    yield sshd
    sshd.stop()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No test reads the keys, the configuration or the agent of who runs it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def address(sshd, tmp_path, **options):
    return Address("board", {**sshd.options, **options}, str(tmp_path / "work"))


def connect(sshd, tmp_path, **options):
    return transports.get("ssh").connect(address(sshd, tmp_path, **options))


class TestSshTransport(TransportConformance):
    @pytest.fixture
    def transport(self, sshd, tmp_path_factory):
        with connect(sshd, tmp_path_factory.mktemp("device")) as transport:
            yield transport
