import pytest

from hwbench.devices import Device, load_device
from hwbench.devices.device import read_device
from hwbench.devices.local import LocalTransport
from hwbench.devices.probe import Cpu, Probe
from hwbench.errors import DeviceError, DeviceUnreachable, InvalidFile, InvalidValue, UnknownName
from hwbench.workspace import Workspace, shipped

FILES = sorted(shipped().glob("profiles/*/device.toml"))
MINIMAL = 'schema = 1\nname = "pi"\ntransport = "local"\n'
SSH = MINIMAL.replace("local", "ssh") + "[ssh]\nhost = 'x'\n"


def write(tmp_path, text):
    path = tmp_path / "pi" / "device.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_shipped_device_files_are_valid(path):
    device = read_device(path)
    assert device.name == path.parent.name
    assert device.description
    assert not device.emulated


def test_local_and_s9_are_shipped():
    workspace = Workspace(shipped())
    with load_device(workspace, "local").transport() as transport:
        assert isinstance(transport, LocalTransport)
    with pytest.raises(DeviceUnreachable, match=r"'s9': .*adb") as caught:
        load_device(workspace, "s9").transport()
    assert caught.value.exit_status == 3
    assert "\n" not in str(caught.value)
    with pytest.raises(UnknownName, match="did you mean 'local'"):
        load_device(workspace, "locale")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("python", "python"),
        ("/opt/venv/bin/python3", "/opt/venv/bin/python3"),
        ("./executor_runner", "HERE/executor_runner"),
        ("~no-such-user/executor_runner", "HERE/~no-such-user/executor_runner"),
    ],
)
def test_which_runner(tmp_path, said, meant):
    path = write(tmp_path, f'schema = 1\nname = "pi"\ntransport = "local"\nrunner = "{said}"\n')
    assert read_device(path).runner == meant.replace("HERE", str(path.parent))


def test_everything_a_file_can_say(tmp_path):
    text = """
    schema = 1
    name = "pi"
    description = "a board"
    transport = "ssh"
    threads = 2
    cpus = [3, 2]
    emulated = true
    work_dir = "/var/tmp/hwbench"
    [ssh]
    host = "pi.local"
    port = 2222
    """
    assert read_device(write(tmp_path, text)) == Device(
        "pi", "ssh", "a board", 2, (3, 2), True, "/var/tmp/hwbench", {"host": "pi.local", "port": 2222}
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MINIMAL + "thread = 2", r"unknown key 'thread'; did you mean 'threads'"),
        (MINIMAL + "[local]\nhost = 'x'", r"unknown key 'host' in \[local\]"),
        (MINIMAL + "[ssh]\nhost = 'x'", r"unknown key 'ssh'"),
        (
            MINIMAL.replace("local", "shh"),
            r"transport: expected a known .* \(did you mean 'ssh'\?.*\), got 'shh'",
        ),
        (MINIMAL.replace('"local"', "3"), r"transport: expected text in quotes, got 3"),
        (MINIMAL.replace("local", "ssh"), r"key 'ssh.host' is missing"),
        (MINIMAL.replace("local", "ssh") + "ssh = 3", r"expected a table \[ssh\]"),
        (MINIMAL.replace("local", "ssh") + "[ssh]\nhots = 'x'", r"key 'ssh.host' is missing; the file has hots"),
        (
            SSH + "port = 'y'",
            r"ssh.port: expected a whole number, at least 0, got 'y'",
        ),
        (MINIMAL.replace("schema = 1", "schema = 2"), r"expected schema = 1, got 2"),
        (MINIMAL.replace("schema = 1\n", ""), r"'schema' is missing"),
        (MINIMAL.replace('"pi"', '"po"'), r"name: expected the name of the folder, 'pi', got 'po'"),
        (MINIMAL + "threads = 0", r"threads: expected at least 1"),
        (MINIMAL + "threads = true", r"threads: expected a whole number, at least 0, got True"),
        (MINIMAL + "emulated = 1", r"emulated: expected true or false"),
        (MINIMAL + "cpus = [1, 1]", r"cpus: expected one or more different values"),
        (MINIMAL + "cpus = [-1]", r"cpus: expected a whole number, at least 0, got -1"),
        (MINIMAL + "cpus = ['0']", r"cpus: expected a whole number"),
        (MINIMAL + "model = [960]", r"model: expected text in quotes, got 960"),
        (MINIMAL + "conditions = 'stok'", r"conditions: expected a known one \(did you mean 'stock'"),
        (
            SSH + "prot = 1",
            r"unknown key 'prot' in \[ssh\]; did you mean 'p",
        ),
        ("schema = ", r"cannot be read as TOML"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(InvalidFile, match=says) as caught:
        read_device(path)
    assert str(path) in str(caught.value)


def test_what_was_valid_in_files_of_before_stays_valid(tmp_path):
    text = MINIMAL + "description = ''\ncpus = []\nmodel = []\nfingerprint = ''\nunit = ''\nrunner = ''\n[local]\n"
    assert read_device(write(tmp_path, text)) == read_device(write(tmp_path, MINIMAL))
    adb = MINIMAL.replace("local", "adb") + "[adb]\nserial = ''\n"
    assert read_device(write(tmp_path, adb)).options == {"serial": ""}


def test_a_file_that_is_no_text(tmp_path):
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile, match="TOML"):
        read_device(path)


def test_processors_to_pin_to():
    cpus = tuple(
        Cpu(index, "big" if index > 1 else "little", str(index), 1024 if index > 1 else 300) for index in range(4)
    )
    probe = Probe("m", "a", "k", cpus, (0, 1, 2, 3), (), 0, "g", False)
    assert Device("d", "local").pinned(2, probe) == (3, 2)
    named = Device("d", "local", cpus=(0, 2))
    assert named.pinned(1, probe) == (0,)
    assert named.pinned(2, probe) == (0, 2)
    with pytest.raises(InvalidValue, match="3 threads"):
        named.pinned(3, probe)
    with pytest.raises(InvalidValue, match="no 7; usable: 0, 1, 2, 3"):
        Device("d", "local", cpus=(7,)).pinned(1, probe)
    with pytest.raises(InvalidValue, match="5 threads"):
        Device("d", "local").pinned(5, probe)


@pytest.mark.parametrize(
    ("model", "fits"),
    [
        ("samsung SM-G960F", True),
        ("samsung SM-G960N", True),
        ("SM-G960F", True),
        ("samsung SM-G965F", False),
        ("samsung SM-G960U", False),
        ("samsung SM-G960FX", False),
        ("samsung", False),
        ("", False),
    ],
)
def test_the_s9_is_told_from_other_phones(model, fits):
    device = load_device(Workspace(shipped()), "s9")
    probe = Probe(model, "aarch64", "k", (), (), (), 0, "g", False)
    if fits:
        device.recognise(probe)
        return
    with pytest.raises(DeviceError, match=r"'s9': expected model SM-G960F or .*: connect the right one, or") as caught:
        device.recognise(probe)
    assert caught.value.exit_status == 3


def test_a_model_may_have_wildcards():
    probe = Probe("Raspberry Pi 5 Model B Rev 1.0", "aarch64", "k", (), (), (), 0, "g", False)
    Device("pi", "ssh", model=("Raspberry Pi 5*",)).recognise(probe)
    Device("pi", "ssh", model=("*Model B*",)).recognise(probe)
    with pytest.raises(DeviceError, match="expected model Raspberry Pi 4"):
        Device("pi", "ssh", model=("Raspberry Pi 4*",)).recognise(probe)
