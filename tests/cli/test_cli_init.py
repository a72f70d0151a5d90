import json
import shutil
import subprocess

import pytest

from hwbench.cli.main import main
from hwbench.workspace import Workspace


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["init", *arguments])
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def test_a_new_workspace_has_the_shipped_files(tmp_path, capsys):
    status, out, err = run(capsys, str(tmp_path / "bench"), "--json")
    assert status == 0
    values = json.loads(out)
    made = Workspace.find(tmp_path / "bench")
    assert values["workspace"] == str(made.root)
    assert values["search_spaces"] == len(made.names("search_spaces"))
    assert "hwbench doctor" in err


def test_the_next_command_can_be_pasted(tmp_path, capsys):
    _, _, err = run(capsys, str(tmp_path / "my bench"))
    assert f"next: cd '{tmp_path}/my bench' && hwbench doctor" in err


def test_the_next_command_begins_in_the_current_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, _, err = run(capsys, ".")
    assert err.endswith("next: hwbench doctor\n")


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_no_folder(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, name)
    assert (status, err) == (2, "hwbench: DIRECTORY: expected a value, got an empty one; is a shell variable unset?\n")
    assert not [*tmp_path.iterdir()]


def test_a_current_folder_that_was_removed_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    status, out, err = run(capsys, "bench")
    assert (status, out) == (2, "")
    assert err == "hwbench: the current folder was removed; go to another one\n"


def test_files_that_exist_are_left_as_they_are(tmp_path, capsys):
    run(capsys, str(tmp_path / "bench"))
    names = sorted((tmp_path / "bench" / "search_spaces").glob("*.toml"))
    for path in names:
        path.write_text("mine")
    status, _, _ = run(capsys, str(tmp_path / "bench"))
    assert status == 0
    assert all(path.read_text() == "mine" for path in names)


def test_what_is_of_this_machine_stays_out_of_git(tmp_path, capsys):
    if shutil.which("git") is None:
        pytest.skip("apt-get install git")
    root = tmp_path / "bench"
    run(capsys, str(root))
    table = "executorch-1.5.1.int8.t1.csv"
    for name in (
        ".hwbench/measurements.sqlite",
        "runs/a/checkpoint.pt",
        f"profiles/local/{table}",
        f"profiles/s9/{table}",
        f"profiles/s9/.{table}.0123456789abcdef.tmp",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    subprocess.run(["git", "init", "-q", root], check=True)
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert f"profiles/s9/{table}" in listed
    assert "profiles/local/device.toml" in listed
    assert not [name for name in listed if name.startswith((".hwbench", "runs")) or name == f"profiles/local/{table}"]
    assert not [name for name in listed if name.endswith(".tmp")]


def test_a_gitignore_that_is_there_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / ".gitignore").write_text("mine\n")
    assert run(capsys, str(tmp_path))[0] == 0
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_a_directory_that_is_a_file_is_one_line_and_status_2(tmp_path, capsys):
    (tmp_path / "bench").touch()
    status, out, err = run(capsys, str(tmp_path / "bench"))
    assert (status, out) == (2, "")
    assert err.startswith("hwbench: cannot write")
    assert err.count("\n") == 1


def test_no_directory_is_a_usage_error(capsys):
    status, _, err = run(capsys)
    assert status == 2
    assert "DIR" in err
