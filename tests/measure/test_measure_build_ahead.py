"""Building while a device elsewhere measures: what is built, when it ends, and what it may not disturb."""

import contextlib
import itertools
import subprocess
import sys
import threading
import time

import pytest

import hwbench.testing.engines  # noqa: F401  # registers the faulty engine
from hwbench.devices import load_device
from hwbench.errors import DeviceLost, NotMeasured
from hwbench.measure.build_ahead import builds_ahead
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.cache import LOCK
from hwbench.measure.campaign import Campaign
from hwbench.measure.on_device import campaign_on
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Artifact, Target, Timing, Workload
from hwbench.testing.fakes import FakeDevice, NotedAhead
from hwbench.workspace import Workspace

# Tests share a cache, and none finds there what another built.
_widths = itertools.count(9)


def workload(frames=1):
    """Of the faulty engine the number of frames says what goes wrong; with one it is nothing."""
    return Workload.parse(f"x3d_i8_m16_o8_k3x3x3_relu@1x8x{frames}x8x{next(_widths)}/fp32/auto")


RAISES, HANGS = 2, 5


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """One for all, so that its engine is loaded once."""
    with Builder("faulty", tmp_path_factory.mktemp("cache"), processes=2, imports=["hwbench.testing.engines"]) as one:
        yield one


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("did not happen within a minute")


def is_building():
    return any(thread.name == "builds ahead" for thread in threading.enumerate())


def busy(builder):
    return {worker.workload for worker in builder._workers if worker.workload}


def test_what_follows_is_built_while_the_block_runs(builder):
    following = [workload(), workload(), workload()]
    with builds_ahead(builder, lambda: following):
        wait_for(lambda: all(map(builder.cache.load, following)))
    assert not is_building()


def test_after_the_block_nothing_more_is_begun(builder):
    begun = []

    def without_end():
        while True:
            begun.append(workload())
            yield begun[-1]

    with builds_ahead(builder, without_end):
        wait_for(lambda: len(begun) > 4)
    assert not is_building()
    assert not busy(builder)
    asked = len(begun)
    assert isinstance(next(builder.build([workload()])), Artifact)
    assert len(begun) == asked


@pytest.mark.parametrize("error", [KeyboardInterrupt, DeviceLost])
def test_where_the_block_raises_builds_under_way_are_given_up(builder, error):
    hangs, fine = workload(HANGS), workload()

    def fail():
        with builds_ahead(builder, lambda: [hangs, fine]):
            wait_for(lambda: hangs in busy(builder) and builder.cache.load(fine))
            raise error("gone")

    with pytest.raises(error):
        fail()
    wait_for(lambda: not is_building())
    assert not busy(builder)
    assert isinstance(next(builder.build([workload()])), Artifact)


def has_a_turn(builder):
    """Whether another thread builds, or waits for another process that does."""
    if builder._turn.acquire(blocking=False):
        builder._turn.release()
        return False
    return True


HOLDER = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print('held', flush=True); input()"


@pytest.mark.parametrize("error", [KeyboardInterrupt, DeviceLost, None])
def test_the_end_of_the_block_does_not_wait_for_another_process_that_builds(tmp_path, error):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        until = threading.Timer(20, holder.kill)  # where this process waits for it, the test ends all the same
        until.start()
        with (
            contextlib.suppress(KeyboardInterrupt, DeviceLost),
            Builder("faulty", tmp_path) as builder,
            builds_ahead(builder, lambda: [workload()]),
        ):
            wait_for(lambda: has_a_turn(builder))
            if error:
                raise error("gone")
        until.cancel()
        assert holder.poll() is None
        holder.communicate(b"\n")


def test_what_cannot_be_built_is_left_to_whoever_asks_for_it(builder):
    raises, fine = workload(RAISES), [workload(), workload(), workload()]
    with builds_ahead(builder, lambda: [raises, *fine]):
        wait_for(lambda: all(map(builder.cache.load, fine)))
    (failure,) = builder.build([raises])
    assert isinstance(failure, BuildFailure)


def test_what_cannot_be_guessed_is_not_built_and_the_block_does_not_notice(builder):
    def unknown():
        raise NotMeasured("too few rows")

    with builds_ahead(builder, unknown):
        wait_for(lambda: not is_building())


def test_the_block_may_build_too(builder):
    following, own = [workload() for _ in range(6)], workload()
    with builds_ahead(builder, lambda: following):
        wait_for(lambda: builder.cache.load(following[0]))
        assert isinstance(next(builder.build([own])), Artifact)
        wait_for(lambda: all(map(builder.cache.load, following)))


def test_a_campaign_tells_its_next_batch_and_at_the_end_that_of_the_next_call(tmp_path):
    ahead, device = NotedAhead(), FakeDevice(tmp_path / "files", noise=1e-6)
    rows, later = [workload() for _ in range(7)], workload()
    with MeasurementStore(tmp_path / "measurements.sqlite") as store:
        campaign = Campaign(
            store, Target("fake", "fake", "1", 1), {"device": "fake"}, device.build, device.measure, Timing(),
            batch=3, ahead=ahead,
        )  # fmt: skip
        campaign.run(rows, following=lambda: [later])
        assert ahead.asked == [[*rows[3:6], later], [rows[6], later], [later]]
        campaign.run(rows, following=lambda: [later])
        assert len(ahead.asked) == 3  # nothing was measured


def test_this_machine_does_not_build_while_it_measures(tmp_path, runner_cache):
    workspace = Workspace.create(tmp_path / "bench")
    workspace.cache.symlink_to(runner_cache)
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(load_device(workspace, "local"), store=store, cache_dir=workspace.cache) as campaign,
    ):
        assert campaign.ahead is None
