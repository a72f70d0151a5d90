"""``hwbench report runs/NAME`` as it is typed, also while the run is under way."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from devices.waiting import heeding, wait_for

from hwbench.cli.main import main

LINES = [
    {"event": "step", "step": 0, "epoch": 0, "loss": 2.0, "learning_rate": 0.1},
    {"event": "epoch", "epoch": 0, "step": 1, "top1": 0.5, "top5": 1.0, "videos": 8},
    {"event": "step", "step": 1, "epoch": 1, "loss": 1.0, "learning_rate": 0.1},
]


@pytest.fixture
def run(workspace):
    folder = workspace.root / "runs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES) + '{"event": ')
    return folder


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["report", *arguments])
    return (end.value.code or 0, *capsys.readouterr())


def test_one_run_and_several(run, workspace, capsys):
    status, out, err = call(capsys, "runs/tiny", "--json")
    assert status == 0, err
    values = json.loads(out)
    assert list(values) == ["report", "runs", "seconds", "missing"]
    assert values["runs"] == ["runs/tiny"]
    assert "step 2, epoch 2" in (workspace.root / "report.html").read_text(encoding="utf-8")
    other = run.with_name("other")
    other.mkdir()
    (other / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes())
    status, out, err = call(capsys, "runs/tiny", "runs/other", "--out", "both.html")
    assert status == 0, err
    assert "open it in a browser: both.html" in err
    assert "2 runs: tiny, other" in (workspace.root / "both.html").read_text(encoding="utf-8")


def test_a_run_is_read_where_no_working_state_can_be_made(run, workspace, capsys):
    state = workspace.root / ".hwbench"
    state.write_text("")  # as in a workspace that may only be read, also for root
    status, _, err = call(capsys, "runs/tiny")
    assert status == 0, err
    assert state.read_text() == ""


def test_a_run_is_read_outside_of_a_workspace(run, tmp_path, capsys, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    status, out, err = call(capsys, str(run), "--json")
    assert status == 0, err
    assert json.loads(out)["runs"] == [str(run)]
    assert [path.name for path in elsewhere.iterdir()] == ["report.html"]
    assert not (run.parents[1] / ".hwbench").exists()
    for asked in (["tiny"], ["--device", "local"]):
        status, out, err = call(capsys, *asked)
        assert (status, out) == (2, "")
        assert "no workspace at" in err


def test_a_finished_study_goes_before_a_run_of_its_name(run, workspace, capsys):
    (workspace.root / "tiny").symlink_to(run)
    status, _, err = call(capsys, "tiny")
    assert status == 0, err
    study = workspace.studies / "tiny"
    study.mkdir(parents=True)
    (study / "result.json").write_text("{}")
    status, _, err = call(capsys, "tiny", "--watch", "60")
    assert status == 2
    assert "tiny is a study" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs"], "runs: it holds no metrics.jsonl; expected the folder of a run, which hwbench train makes"),
        (["runs/tiny", "runs/none"], "runs/none: there is no such folder"),
        (["nothing"], "no finished study 'nothing'"),
        (["runs/tiny", "--watch", "0"], "--watch"),
        (["--device", "local", "--watch", "2"], "--watch is about a training run"),
    ],
)
def test_wrong_input_is_one_clear_error(run, capsys, arguments, said):
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err


def test_a_pipe_is_given_the_page_and_stays(run, workspace, capsys):
    pipe = workspace.root / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader, ThreadPoolExecutor() as pool:
        page = pool.submit(reader.stdout.read)
        try:
            status, _, err = call(capsys, "runs/tiny", "--out", "pipe")
            assert pipe.is_fifo()
        except BaseException:
            reader.kill()
            raise
    assert status == 0, err
    assert page.result().rstrip().endswith(b"</html>")


@pytest.mark.parametrize("mode", ["ab", "r+b"])
@pytest.mark.parametrize("linked", [False, True])
def test_an_open_file_is_given_the_page_behind_what_it_holds(run, workspace, capsys, mode, linked):
    """As ``--out /dev/stdout >> FILE``."""
    path = workspace.root / "log.txt"
    path.write_bytes(b"of before\n")
    with path.open(mode, buffering=0) as file:
        file.seek(0, os.SEEK_END)
        out = f"/dev/fd/{file.fileno()}"
        if linked:
            (workspace.root / "page.html").symlink_to(out)
            out = "page.html"
        status, _, err = call(capsys, "runs/tiny", "--out", out)
        assert status == 0, err
        file.write(b"behind\n")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("of before\n<!doctype html>")
    assert text.endswith("</html>\nbehind\n")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the open files of other processes on Linux alone")
def test_an_open_file_of_another_process_keeps_what_it_holds(run, workspace, capsys):
    path = workspace.root / "log.txt"
    with path.open("wb") as file, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as other:
        path.write_bytes(b"of before\n")
        status, _, err = call(capsys, "runs/tiny", "--out", f"/proc/{other.pid}/fd/1")
        other.stdin.close()
    assert status == 0, err
    assert path.read_text(encoding="utf-8").startswith("of before\n<!doctype html>")


def test_a_linked_page_is_written_where_it_leads(run, workspace, capsys):
    published = workspace.root / "published.html"
    published.write_text("old")
    (workspace.root / "report.html").symlink_to(published)
    status, _, err = call(capsys, "runs/tiny")
    assert status == 0, err
    assert "step 2, epoch 2" in published.read_text(encoding="utf-8")


def test_a_damaged_line_is_one_clear_error(run, capsys):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text().replace('"loss": 1.0', '"loss": 1.0.0'))
    status, out, err = call(capsys, "runs/tiny")
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("hwbench: runs/tiny/metrics.jsonl:3: damaged line: ")


def test_ctrl_c_ends_a_watch_in_order(run, workspace):
    page = workspace.root / "report.html"
    command = [sys.executable, "-m", "hwbench", "report", "runs/tiny", "--watch", "60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeding) as process:
        try:
            wait_for(page.is_file, limit_s=60)
            assert 'http-equiv="refresh" content="60"' in page.read_text(encoding="utf-8")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "hwbench: interrupted" in err
    assert "Traceback" not in err
    assert 'http-equiv="refresh"' not in page.read_text(encoding="utf-8")
