import getpass
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hwbench.devices.base import Address
from hwbench.devices.route import route
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.workspace import Workspace


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes ~/.ssh/config of a home folder of our own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()

    def write(text, name="config"):
        (tmp_path / ".ssh" / name).write_text(text)

    return write


def way(workspace=None, **options):
    return route(Address("pi5", {"user": "pi", **options}, workspace=workspace))


def test_without_a_configuration(tmp_path, config, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    (hop,) = route(Address("pi5", {"host": "pi5.local"}, workspace=Workspace(tmp_path / "ws")))
    assert (hop.host, hop.port, hop.user, hop.name, hop.agent) == ("pi5.local", 22, "me", "pi5.local", False)
    assert [key.name for key in hop.keys] == ["id_ed25519", "id_ecdsa", "id_rsa"]
    assert hop.known_hosts[:2] == (tmp_path / "ws/profiles/pi5/known_hosts", tmp_path / ".ssh/known_hosts")


def test_an_alias_and_what_the_device_file_puts_before_it(tmp_path, config):
    config("Include conf.d/*\nHost *\n  User star\n")
    (tmp_path / ".ssh" / "conf.d").mkdir()
    config(
        "Host board\n  HostName 10.0.0.7\n  Port 2222\n  User config\n  IdentityFile ~/.ssh/id_board\n"
        "  HostKeyAlias Board\n  UserKnownHostsFile ~/.ssh/a ~/.ssh/b\n  IdentitiesOnly yes\n",
        "conf.d/board",
    )
    (hop,) = route(Address("pi5", {"host": "board"}))
    assert (hop.host, hop.port, hop.user, hop.name, hop.only_keys) == ("10.0.0.7", 2222, "config", "board", True)
    assert hop.keys == (tmp_path / ".ssh/id_board",)
    assert hop.known_hosts[:2] == (tmp_path / ".ssh/a", tmp_path / ".ssh/b")
    (hop,) = way(host="board", port=23, identity="/key", agent=True, known_hosts="/known")
    assert (hop.user, hop.port, hop.keys, hop.agent) == ("pi", 23, (Path("/key"),), True)
    assert hop.known_hosts[0] == Path("/known")
    (hop,) = way(host="other")
    assert (hop.host, hop.user) == ("other", "pi")


def test_what_follows_an_include_belongs_to_the_block_around_it(tmp_path, config):
    (tmp_path / ".ssh" / "conf.d").mkdir()
    config("Include conf.d/*\nPort 2222\nHost board\n  Include named\n  IdentityFile /mine\nHost *\n  User star\n")
    config("Host work\n  User me\n", "conf.d/a")
    config("HostName 10.0.0.5\nHost work\n  Port 1\n", "named")
    (board,) = route(Address("pi5", {"host": "board"}))
    assert (board.host, board.port, board.user, board.keys) == ("10.0.0.5", 2222, "star", (Path("/mine"),))
    (work,) = route(Address("pi5", {"host": "work"}))
    assert (work.host, work.port, work.user, work.keys[0].name) == ("work", 2222, "me", "id_ed25519")


def test_what_matches_at_last(config):
    config("Match final all\n  Port 24\n  HostKeyAlias last\nHost board\n  Port 23\n")
    assert [(hop.port, hop.alias) for hop in way(host="board")] == [(23, "last")]
    assert [(hop.port, hop.alias) for hop in way(host="other")] == [(24, "last")]


@pytest.mark.parametrize(
    ("board", "hosts", "command"),
    [
        ("ProxyCommand none", ["board"], ""),
        ("ProxyCommand connect %h", ["board"], "connect board"),
        ("ProxyJump near", ["near", "board"], ""),
        ("ProxyJump none", ["board"], "other"),
        ("Port 22", ["gate", "board"], ""),
    ],
)
def test_of_a_jump_and_a_command_the_first_counts(config, board, hosts, command):
    config(f"Host board\n  {board}\nHost board\n  ProxyJump gate\n  ProxyCommand other\n")
    hops = way(host="board")
    assert ([hop.host for hop in hops], hops[-1].command) == (hosts, command)


def test_jump_hosts(config):
    config(
        "Host board\n  ProxyJump me@near:2200,far\nHost near\n  HostName 10.0.0.1\n  ProxyJump outer\n"
        "Host far\n  User you\n  ProxyJump ignored\nHost outer\n  ProxyCommand connect %h %p\n"
    )
    hops = way(host="board")
    assert [hop.host for hop in hops] == ["outer", "10.0.0.1", "far", "board"]
    assert [(hop.user, hop.port) for hop in hops[1:]] == [("me", 2200), ("you", 22), ("pi", 22)]
    assert [hop.command for hop in hops] == ["connect outer 22", "", "", ""]
    assert [hop.host for hop in way(host="board", jump="x@[fe80::1]:23")] == ["fe80::1", "board"]
    assert [hop.host for hop in way(host="board", jump="none")] == ["board"]


def test_a_chain_without_end(config):
    config("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(InvalidValue, match="more than 8 jump hosts"):
        way(host="a")


def test_root_must_be_meant(config, monkeypatch):
    config("Host board\n  User root\n")
    with pytest.raises(InvalidValue, match=r"less than root.*profiles/pi5/device\.toml"):
        route(Address("pi5", {"host": "board"}))
    with pytest.raises(
        InvalidValue, match=r"less than root; add it with --ssh USER@HOST, with root for USER if it must be"
    ):
        route(Address("pi5", {"host": "board"}, typed=True))
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    with pytest.raises(InvalidValue, match="less than root"):
        route(Address("pi5", {"host": "other"}))
    assert route(Address("pi5", {"host": "board", "user": "root"}))[0].user == "root"


@pytest.mark.parametrize(
    "options",
    [
        {"host": "-oProxyCommand=touch x"},
        {"host": "a b"},
        {"host": "$(touch x)"},
        {"host": "a;touch x"},
        {"host": ""},
        {"host": "board", "user": "-l"},
        {"host": "board", "user": "a`id`"},
        {"host": "board", "jump": "x@$(touch x)"},
        {"host": "board", "port": 0},
        {"host": "board", "port": 1 << 16},
    ],
)
def test_names_that_a_shell_would_take_apart(tmp_path, config, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    # What is fit for a shell reaches Match exec: where it is plain: the host.
    match = "" if options["host"] == "board" else 'Match exec "touch ran-%h"\n  User x\n'
    config(f'{match}Host *\n  ProxyCommand sh -c "nc %h %p"\n')
    with pytest.raises(InvalidValue, match="'pi5'"):
        way(**options)
    assert [path.name for path in tmp_path.iterdir()] == [".ssh"]


def test_a_configuration_that_cannot_be_read(config, tmp_path):
    config("Host a\n  nonsense\n")
    with pytest.raises(InvalidFile, match=r"\.ssh/config: expected a configuration of ssh"):
        way(host="a")
    (tmp_path / ".ssh" / "config").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidFile, match=r"\.ssh/config"):
        way(host="a")


# Of each the lines in ~/.ssh/config; {folder} is ~/.ssh.
AS_SSH = [
    "Host board # mine\n  HostName 10.1.1.1 # the lab\n  Port 2222 # not 22\n",
    "Host board\n  IdentityFile /k#1\n  IdentityFile /k\n  IdentityFile /k#1\n",
    "Host board\n  ProxyJump gw # via\n  IdentityFile ~/.ssh/k # key\n  UserKnownHostsFile /a '/b c' # d\n",
    'Host "board" other\n  HostName = "10.1.1.1" # x\n  IdentityFile "~/.ssh/my key"\n',
    "Host board\n  IdentityFile /my\\ key\n  UserKnownHostsFile /a\\\"b '/c\\'d'\n",
    "Host board\n  ProxyCommand nc %h %p # no comment\n  ProxyCommand none\n",
    "Host board\n  ProxyCommand none\n  ProxyCommand nc\n",
    'Include "{folder}/boards" # all\n',
    'Include {folder}/none "{folder}/my boards"\n  Port 2222\n',
    "Host other\n  Include {folder}/boards\nHost *\n  Port 23\n",
    "Host b*\n  Include {folder}/boards\n  Port 23\n",
    "Match user pi\n  Include {folder}/boards\n  Port 23\n",
    'Match !user "pi"\n  Include {folder}/boards\n',
    'Match host=board user = pi # x\n  HostName 10.1.1.1\nMatch host "10.1.1.1"\n  Port 23\n',
    "Match final all\n  Port 24\nMatch all\n  HostName 10.1.1.1\nMatch !all\n  Port 25\n",
    "Host board\r\n\tHostName\t10.1.1.1\f\r\n",
    "HOST !board *\n  HostName 10.1.1.2\nhost=board\n  HostName=10.1.1.1\n",
]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh: apt-get install openssh-client")
@pytest.mark.parametrize("text", AS_SSH)
def test_lines_are_taken_apart_as_ssh_does_it(config, tmp_path, text):
    folder = tmp_path / ".ssh"
    config("HostName 10.1.1.3\nHost board\n  Port 2200\nMatch all\n  IdentityFile /k\n", "boards")
    config("Host board\n  HostName 10.1.1.4\n", "my boards")
    config(text.format(folder=folder))
    argv = ["ssh", "-G", "-F", folder / "config", "-l", "pi", "board"]
    out = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout
    of_ssh: dict[str, list[str]] = {}
    for line in out.splitlines():
        of_ssh.setdefault(line.partition(" ")[0], []).append(line.partition(" ")[2])
    *jumps, hop = way(host="board")
    assert [hop.host, str(hop.port)] == of_ssh["hostname"] + of_ssh["port"]
    assert [jump.host for jump in jumps] == of_ssh.get("proxyjump", [])
    command = of_ssh.get("proxycommand", ["none"])[0].replace("%h", hop.host).replace("%p", str(hop.port))
    assert (hop.command or "none") == command
    if "IdentityFile" in text or hop.host == "10.1.1.3":
        assert [str(key) for key in hop.keys] == [key.replace("~", str(tmp_path)) for key in of_ssh["identityfile"]]
    if "UserKnownHostsFile" in text:
        assert " ".join(map(str, hop.known_hosts)).startswith(of_ssh["userknownhostsfile"][0] + " /etc")


@pytest.mark.parametrize("line", ['HostName "10.1.1.1', "Port # 22", 'Include "boards', "Match user", "Host # x"])
def test_a_line_that_ssh_refuses_is_refused(config, line):
    config(f"{line}\n")
    with pytest.raises(InvalidFile, match=r"\.ssh/config: expected a configuration of ssh: .*\S"):
        way(host="board")


def test_conditions_that_are_not_known_hold_for_no_host(config):
    config("Match tagged work\n  Port 1\nMatch !tagged work host board\n  Port 2222\n")
    assert [way(host=host)[0].port for host in ("board", "other")] == [2222, 22]


TOKENS = (
    "Host board\n  HostName h.lan\n  Port 2200\n{more}  IdentityFile /k/%n-%h-%p-%r-%u-%k-%%h-${{LAB_KEY}}\n"
    '  IdentityFile "/k/%C %L %l %i"\n  UserKnownHostsFile /kh/%h-%n-%p-%k "/kh/${{LAB_KEY}} %r"\n'
)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh: apt-get install openssh-client")
@pytest.mark.parametrize("more", ["", "  HostKeyAlias lab\n"])
def test_tokens_and_variables_in_names_of_files_are_what_ssh_makes_of_them(config, tmp_path, monkeypatch, more):
    monkeypatch.setenv("LAB_KEY", "a %h")
    config(TOKENS.format(more=more))
    argv = ["ssh", "-F", tmp_path / ".ssh" / "config", "-l", "pi"]
    tried = [*argv, "-v", "-o", "ProxyCommand=false", "board", "true"]
    said = subprocess.run(tried, capture_output=True, text=True, check=False, timeout=20).stderr
    keys = [name for name in re.findall("identity file (.*) type ", said) if not name.endswith("-cert")]
    known = subprocess.run([*argv, "-G", "board"], capture_output=True, text=True, check=True, timeout=20).stdout
    (hop,) = way(host="board")
    assert [str(key) for key in hop.keys] == keys
    assert len(keys) == 2
    assert f"userknownhostsfile {hop.known_hosts[0]} {hop.known_hosts[1]}\n" in known


def test_the_home_and_the_jump_host_in_names_of_files(config, tmp_path):
    config("Host board\n  ProxyJump a,me@gate:22\nHost board other\n  IdentityFile %d/.ssh/of-%j\n")
    assert [way(host=host)[-1].keys for host in ("board", "other")] == [
        (tmp_path / ".ssh" / "of-gate",),
        (tmp_path / ".ssh" / "of-",),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("IdentityFile /k/%x", r"IdentityFile in ~/\.ssh/config: expected %C, .* or %%, got %x"),
        ("UserKnownHostsFile /kh/%", r"UserKnownHostsFile in ~/\.ssh/config: expected %C, .* or %%, got %$"),
        ("IdentityFile ${LAB_NO_KEY}/k", r"the environment has no LAB_NO_KEY; set it: export LAB_NO_KEY="),
    ],
)
def test_what_ssh_cannot_fill_in_is_an_error(config, line, said):
    config(f"{line}\n")
    with pytest.raises(InvalidValue, match=f"'pi5': .*{said}"):
        way(host="board")


CONFIGURED = (
    "Host board\n  HostName 127.0.0.1\n  Port 2222\n  User config\n"
    "Match user pi\n  IdentityFile ~/.ssh/of-%r\nHost *\n"
    '  ProxyCommand sh -c \'echo "$0" >> {said}\' "%h %p %r %n %% %%p"\n'
)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh: apt-get install openssh-client")
@pytest.mark.parametrize("own", [{"port": 23}, {"user": "pi"}, {"port": 23, "user": "pi"}, {"user": "config"}])
@pytest.mark.parametrize("host", ["board", "127.0.0.2"])
def test_19_18_a_proxy_command_gets_what_ssh_gives_it(config, tmp_path, own, host):
    path = tmp_path / ".ssh" / "config"
    config(CONFIGURED.format(said=tmp_path / "said"))
    (hop,) = route(Address("pi5", {"host": host, **({"user": "pi"} if host != "board" else {}), **own}))
    subprocess.run(hop.command, shell=True, check=False, timeout=20)
    flags = {"port": "-p", "user": "-l"}
    asked = {**({"user": "pi"} if host != "board" else {}), **own}
    argv = [word for key, value in asked.items() for word in (flags[key], str(value))]
    subprocess.run(["ssh", "-F", str(path), *argv, host, "true"], capture_output=True, check=False, timeout=20)
    ours, of_ssh = (tmp_path / "said").read_text().splitlines()
    assert ours == of_ssh
    assert ours == f"{hop.host} {hop.port} {hop.user} {host} % %p"
    if hop.user == "pi":
        assert hop.keys == (tmp_path / ".ssh" / "of-pi",)


def test_19_18_the_port_of_a_jump_host_reaches_its_proxy_command(config):
    config("Host near\n  HostName 10.0.0.1\n  Port 1\n  ProxyCommand connect %h %p %r %n\n")
    hops = way(host="board", jump="you@near:2200")
    assert hops[0].command == "connect 10.0.0.1 2200 you near"


@pytest.mark.parametrize("word", ["none", "NONE"])
def test_19_18_no_proxy_command_is_none(config, word):
    config(f"Host board\n  ProxyCommand {word}\nHost *\n  ProxyCommand connect %h\n")
    assert [hop.command for hop in way(host="board", port=23)] == [""]


def test_19_18_a_token_that_ssh_does_not_know_is_an_error(config):
    for token in ("%x", "%"):
        config(f"Host *\n  ProxyCommand connect %h {token}\n")
        with pytest.raises(InvalidValue, match=r"ProxyCommand in ~/\.ssh/config: expected %h"):
            way(host="board")


@pytest.mark.parametrize("options", [{"port": "22\nProxyCommand touch x"}, {"user": "a\nProxyCommand touch x"}])
def test_19_18_what_counts_first_is_one_line(config, options):
    config("")
    with pytest.raises(InvalidValue, match="'pi5'"):
        way(host="board", **options)
