"""Workers of a search on a Ray cluster: actors that make the evaluator once and score one network after the other.

hwbench of the same version is installed on every node, and what an evaluator reads lies there under the same path. An
actor that dies, alone or with its node, costs the score under way; another one takes its place where there is room.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import hwbench
from hwbench.errors import HwbenchError, InvalidValue, MissingDependency
from hwbench.interpreter import safe_children
from hwbench.printable import printable
from hwbench.studies.evaluations import Assignment, Died, Failed, GaveUp, Outcome, Scored, WorkerSetup, answer
from hwbench.studies.worker_pool import STARTS, thread_variables

# Starts Ray on this machine instead of joining a cluster.
LOCAL = "local"
_AUTH_MODE = "RAY_AUTH_MODE"
# How often the head of the cluster is looked for while nothing happens.
_LOOK_S = 5.0


@dataclass(frozen=True)
class RayWorkers:
    """Actors of a Ray cluster that score networks: ``hwbench search --ray``.

    Args:
        address: ``auto`` (the cluster that runs here), ``HOST:PORT`` of a head, ``ray://HOST:PORT``, or ``local``.
        count: Of actors.
        gpus: What each of them takes of a GPU; two with 0.5 share one.
        cpus: What each of them takes of the processors; numerics have as many threads, at least one.
    """

    address: str
    count: int
    gpus: float = 0.0
    cpus: float = 1.0

    def open(self, setup: WorkerSetup, networks: int, /) -> RayPool:
        """The pool for so many networks; its actors start when it is entered.

        Raises:
            MissingDependency: Ray is not installed.
        """
        return RayPool(self, setup, min(self.count, networks), load_ray())


def load_ray() -> Any:
    """The package, which sends no statistics of its use.

    Raises:
        MissingDependency: It is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(f"--ray: {error}; install it: pip install 'hwbench[ray]'") from None
    return ray


class RayPool:
    """``Evaluations`` in actors of Ray.

    Args:
        plan: Where they run, and what each of them takes.
        setup: Makes the evaluator, in each actor once.
        count: Number of actors.
        ray: The package.
    """

    def __init__(self, plan: RayWorkers, setup: WorkerSetup, count: int, ray: Any) -> None:
        self._plan, self._setup, self._count, self._ray = plan, setup, count, ray
        self._actors: list[_Actor] = []
        self._failed_starts = 0
        self._is_ours = False
        self._is_reachable = True

    @property
    def free(self) -> int:
        return sum(actor.is_free for actor in self._actors)

    def assign(self, assignment: Assignment, /) -> None:
        next(actor for actor in self._actors if actor.is_free).assign(assignment)

    def outcomes(self) -> Iterator[Outcome]:
        answering = {actor.answer: actor for actor in self._actors if actor.answer is not None}
        ended: list[Any] = []
        while answering and not ended:
            ended, _ = self._ray.wait(list(answering), timeout=_LOOK_S)
            if not ended:
                self._look_for_head()
        for reference in ended:
            outcome = self._take(answering[reference])
            if outcome is not None:
                yield outcome

    def __enter__(self) -> Self:
        self._connect()
        try:
            self._check_room()
            try:
                self._shared = self._ray.put(self._setup)
            except Exception as error:  # pickling raises what the objects raise
                raise self._setup.refusal(error) from None
            for _ in range(self._count):
                self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._end()

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        options: dict[str, Any] = {"include_dashboard": False} if self._plan.address == LOCAL else {}
        try:
            with _undisturbed(), safe_children(), _token_tried(self._plan.address):
                self._ray.init(self._plan.address, **options, log_to_driver=False, configure_logging=False)
        except Exception as error:  # of Ray, of gRPC, of the system
            raise InvalidValue(
                f"--ray {self._plan.address}: no cluster answers: {printable(str(error), 200)}; start one: "
                "ray start --head, or search with --ray local; a cluster with token authentication takes "
                "RAY_AUTH_MODE=token and its token in ~/.ray/auth_token"
            ) from None
        self._is_ours = True

    def _check_room(self) -> None:
        """Refuses workers of which the cluster could not hold a single one."""
        resources = self._ray.cluster_resources()
        have = {"CPU": resources.get("CPU", 0.0), "GPU": resources.get("GPU", 0.0)}
        if have["CPU"] < self._plan.cpus or have["GPU"] < self._plan.gpus:
            raise InvalidValue(
                f"--ray {self._plan.address}: a worker takes {self._plan.cpus:g} CPUs and {self._plan.gpus:g} GPUs, "
                f"the cluster has {have['CPU']:g} and {have['GPU']:g}; see --worker-cpus and --worker-gpus"
            )

    def _start(self) -> None:
        threads = thread_variables(max(1, int(self._plan.cpus)))
        options = {"num_cpus": self._plan.cpus, "num_gpus": self._plan.gpus, "runtime_env": {"env_vars": threads}}
        actor = self._ray.remote(Scorer).options(**options, max_restarts=0).remote()
        self._actors.append(_Actor(actor, self._shared))

    def _end(self) -> None:
        if self._is_reachable:
            for actor in self._actors:
                with suppress(Exception):
                    self._ray.kill(actor.handle)
        self._actors.clear()
        if self._is_ours and self._is_reachable:
            self._ray.shutdown()

    def _take(self, actor: _Actor) -> Outcome | None:
        """Handles one answer of an actor, or its end."""
        reference, actor.answer = actor.answer, None
        try:
            message = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            self._look_for_head()  # without it, a new actor would be waited for until Ray ends the process
            return self._replace(actor, printable(str(error), 300))
        except Exception as error:  # of Ray: of the store of objects, of unpickling
            raise HwbenchError(f"--ray {self._plan.address}: {printable(str(error), 300)}") from None
        if isinstance(message, Failed):
            raise message.error()
        if isinstance(message, Scored):
            actor.assigned = None
            return message
        if message != hwbench.__version__:
            raise HwbenchError(f"hwbench {message} is installed on a node of Ray, {hwbench.__version__} here")
        actor.ready, self._failed_starts = True, 0
        return None

    def _replace(self, actor: _Actor, reason: str) -> Died | None:
        """A new actor for one that died; what that one was scoring."""
        self._actors.remove(actor)
        self._failed_starts += not actor.ready
        if self._failed_starts == STARTS:
            raise HwbenchError(f"--ray {self._plan.address}: workers do not start: {reason}")
        self._start()
        return Died(actor.assigned.trial, f"a worker of Ray ended: {reason}") if actor.assigned else None

    def _look_for_head(self) -> None:
        """Ends the search where the head is gone, for which Ray would wait first and end the process then."""
        host, _, port = self._ray.get_runtime_context().gcs_address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _LOOK_S).close()
        except OSError as error:
            self._is_reachable = False
            raise HwbenchError(
                f"--ray {self._plan.address}: the head of the cluster is gone ({error.strerror or error}); start it, "
                "and repeat the same command"
            ) from None


class Scorer:
    """What runs in an actor."""

    def make(self, setup: WorkerSetup) -> str | Failed:
        """Makes the evaluator; the version of hwbench on this node."""
        try:
            self._evaluator = setup.evaluator()
        except Exception as error:
            return Failed.of(error, f"{setup.name} cannot be made in a worker")
        return hwbench.__version__

    def score(self, assignment: Assignment) -> Scored | GaveUp | Failed:
        """Scores a network with it; nobody gives one up."""
        return answer(self._evaluator, assignment)


class _Actor:
    """One actor, from the search's side."""

    def __init__(self, handle: Any, setup: Any) -> None:
        self.handle = handle
        self.ready = False
        self.assigned: Assignment | None = None
        self.answer = handle.make.remote(setup)

    @property
    def is_free(self) -> bool:
        return self.ready and self.assigned is None

    def assign(self, assignment: Assignment) -> None:
        self.assigned = assignment
        self.answer = self.handle.score.remote(assignment)


@contextmanager
def _token_tried(address: str) -> Iterator[None]:
    """Token authentication with the user's token, where there is one and RAY_AUTH_MODE says nothing.

    ``ray start --head`` demands a token since Ray 2.60, and ``ray.init`` sends one by itself only to ``auto``. Clusters
    without authentication take no notice. What failed to connect leaves the process as it was.
    """
    if address in ("auto", LOCAL) or _AUTH_MODE in os.environ:
        yield
        return
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
        from ray._raylet import Config
    except ImportError:  # of before, when no cluster asked for a token by itself
        yield
        return
    try:
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        yield
    except BaseException:
        if os.environ.pop(_AUTH_MODE, None) is not None:
            Config.initialize("")
        raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keeps Ray's advice from the user, and what SIGTERM does as it was: Ray has a handler of its own."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            if main:
                signal.signal(signal.SIGTERM, before)
