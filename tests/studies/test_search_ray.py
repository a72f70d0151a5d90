"""Searches on a real Ray cluster: of this machine, begun by the search or by ``ray start``."""

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time

import pytest

import hwbench
from hwbench.errors import InvalidValue, MissingDependency
from hwbench.studies.ray_workers import RayWorkers
from hwbench.studies.trials import SearchWatch
from hwbench.testing.evaluations import Die, EvaluationsConformance, Sleep

needs_ray = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import ray"], capture_output=True).returncode != 0,
    reason="pip install 'hwbench[ray]'",
)


@pytest.fixture(scope="module", autouse=True)
def own_token(tmp_path_factory):
    """A token of these tests: Ray would make one in the home folder, and take it for every cluster from then on."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        yield


@pytest.fixture(scope="module")
def cluster():
    """Ray in this process: searches find it initialised, and leave it so."""
    pytest.importorskip("ray", reason="pip install 'hwbench[ray]'")
    from hwbench.studies.ray_workers import LOCAL, _undisturbed, load_ray

    ray = load_ray()
    with _undisturbed():
        ray.init(LOCAL, num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
class TestRayPool(EvaluationsConformance):
    @pytest.fixture
    def plan(self):
        return RayWorkers("auto", 2, cpus=0.5)


@pytest.fixture
def make(make_search):
    def make(name, trainer, workers=None):
        search = make_search(name, evaluator="short-train", budget_s=7e-3, sampler="random")
        search.trainer, search.workers = trainer, workers
        return search

    return make


class Deaths(SearchWatch):
    """How many workers died."""

    def __init__(self):
        self.deaths = 0

    def died(self, architecture, reason, again):
        self.deaths += 1


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_a_killed_actor_costs_its_score_and_the_trial_runs_again(make, tmp_path):
    (tmp_path / "ran").mkdir()
    search = make("killed", Die(tmp_path / "ran", 1, "s3.width=96,s3.expansion=3"), RayWorkers("auto", 2, cpus=0.5))
    search.watch = deaths = Deaths()
    result = search.run(trials=8, measure=1)
    assert result.trials == len(result.history) == 8
    assert deaths.deaths == len(list((tmp_path / "ran").iterdir())) > 0


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_workers_that_do_not_fit_are_refused(make):
    with pytest.raises(InvalidValue, match=r"takes 1 CPUs and 64 GPUs, the cluster has 2 and"):
        make("large", Sleep(), RayWorkers("auto", 2, gpus=64.0)).run(trials=2, measure=1)


def test_without_ray_its_extra_is_named(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'hwbench\[ray\]'"):
        make("none", Sleep(), RayWorkers("auto", 2)).run(trials=2, measure=1)


def test_without_ray_no_study_is_begun(workspace, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    request = hwbench.SearchRequest(budget="4.2ms", evaluator="entropy", ray="local", trials=2)
    with pytest.raises(MissingDependency, match=r"pip install 'hwbench\[ray\]'"):
        hwbench.search(request, workspace=workspace)
    assert not workspace.studies.exists()


def test_a_password_on_the_command_line_is_refused_since_ray_keeps_that(monkeypatch):
    url = "postgresql://me:s3cret@127.0.0.1/studies"
    words = ["search", "--budget", "5ms", "--ray", "auto", "--storage", url]
    ended = subprocess.run([sys.executable, "-m", "hwbench", *words], capture_output=True, text=True)
    assert ended.returncode == InvalidValue.exit_status
    assert "leave the password out of the URL" in ended.stderr
    assert "PGPASSWORD" in ended.stderr
    assert "s3cret" not in ended.stderr
    hwbench.SearchRequest(budget="5ms", ray="auto", storage=url)  # which stands in no command line
    monkeypatch.setattr(sys, "orig_argv", ["hwbench", *words])
    hwbench.SearchRequest(budget="5ms", storage=url)
    hwbench.SearchRequest(budget="5ms", ray="auto", storage=url.replace(":s3cret", ""))


_SEARCH = """
import sys
from pathlib import Path
from hwbench.errors import HwbenchError
from hwbench.studies.ray_workers import RayWorkers
from hwbench.testing.evaluations import Sleep
from hwbench.testing.searches import search_by_law
from hwbench.workspace import Workspace

try:
    result = search_by_law(
        Workspace(Path(sys.argv[1])), "x3d-tiny", 7e-3, trials=int(sys.argv[3]), sampler="random",
        evaluator="short-train", trainer=Sleep(0.5), workers=RayWorkers(sys.argv[2], 2, cpus=0.5),
    )
    print(result.trials, len({c.architecture for c in result.history}))
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_status)
"""


def ray_command(*words):
    subprocess.run(
        [sys.executable, "-c", "from ray.scripts.scripts import main; main()", *words],
        check=True,
        capture_output=True,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )


class Head:
    """The head of a cluster, with the processes that it consists of."""

    def __init__(self):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{one.getsockname()[1]}"

    def start(self):
        _, _, port = self.address.rpartition(":")
        ray_command("start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false")

    def processes(self):
        """Those whose arguments name the port of this head; workers end with them."""
        port = self.address.rpartition(":")[2]
        of_head = re.compile(rf"(gcs_server|raylet).*(:|port=){port}\b")
        listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        return [int(line.split()[0]) for line in listed.splitlines() if of_head.search(line)]

    def kill(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def head():
    head = Head()
    yield head
    head.kill()


@pytest.mark.long
@needs_ray
def test_the_same_command_goes_on_after_a_kill_of_search_or_head(workspace, head):
    head.start()
    journal = workspace.studies / "by-law" / "journal.log"

    def begin(trials):
        command = [sys.executable, "-c", _SEARCH, str(workspace.root), head.address, str(trials)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def until(finished, process):
        while not (journal.is_file() and journal.read_text().count('"state":1,') >= finished):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)

    search = begin(24)
    until(3, search)
    search.kill()
    search.communicate()
    search = begin(24)
    until(7, search)
    assert len(head.processes()) >= 2
    head.kill()
    out, err = search.communicate(timeout=90)
    assert search.returncode != 0, err
    assert out.startswith(f"--ray {head.address}: "), (out, err)
    assert out.count("\n") == 1
    head.start()
    search = begin(24)
    assert search.communicate(timeout=90)[0] == "24 24\n"


@pytest.mark.long
@needs_ray
def test_the_address_of_a_head_that_demands_a_token_suffices(workspace, head):
    head.start()
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    command = [sys.executable, "-c", _SEARCH, str(workspace.root), head.address, "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
    assert done.stdout == "2 2\n", done


@pytest.mark.long
@needs_ray
def test_a_head_that_refuses_the_token_is_told_and_the_mode_is_left_alone(workspace, head, tmp_path):
    head.start()
    other = tmp_path / "other-token"
    other.write_text(secrets.token_hex(32))
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    environment["RAY_AUTH_TOKEN_PATH"] = str(other)
    code = _SEARCH + "finally:\n    print('RAY_AUTH_MODE' in sys.modules['os'].environ, file=sys.stderr)\n"
    command = [sys.executable, "-c", code, str(workspace.root), head.address, "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
    assert done.stdout.startswith(f"--ray {head.address}: no cluster answers: "), done
    assert "RAY_AUTH_MODE=token" in done.stdout
    assert done.stderr.endswith("False\n")
