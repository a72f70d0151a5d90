import shutil
from pathlib import Path

import pytest

from hwbench.devices.base import Address
from hwbench.devices.remote import RemoteTransport
from hwbench.testing.links import ShellLink
from hwbench.testing.transports import TransportConformance

# Shells of devices: Debian's, of small boards, of Android, and of most servers. The last two where they are installed.
SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"], "mksh": ["mksh"]}


@pytest.fixture(params=SHELLS)
def shell(request):
    argv = SHELLS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed: apt-get install {argv[0]}")
    return argv


class TestRemoteTransport(TransportConformance):
    @pytest.fixture
    def transport(self, tmp_path_factory, shell):
        # BOOT asks for "sh": the shell under test must be found by this name.
        names = tmp_path_factory.mktemp("bin")
        Path(names, "sh").symlink_to(shutil.which(shell[0]))
        link = ShellLink(shell, {"PATH": f"{names}:/usr/bin:/bin"})
        address = Address("board", work_dir=str(tmp_path_factory.mktemp("device") / "work dir"))
        with RemoteTransport(link, address) as transport:
            yield transport
