"""Workloads to files, in worker processes, through the cache.

A worker imports the engine once and builds one workload after the other with one torch thread (lowering is Python
passes over graphs: processes help, threads do not). A worker that raises, aborts, hangs or is killed costs one
workload, which comes back as a ``BuildFailure``; the others go on.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from hwbench import errors
from hwbench.control_group import OWN, ControlGroup
from hwbench.errors import HwbenchError
from hwbench.interpreter import cores, import_path, last_words, python_command, python_environment
from hwbench.measure.cache import ArtifactCache, artifact_from_json
from hwbench.specs import Artifact, Outcome, Workload
from hwbench.specs.kinds.by_hand import is_by_hand, model_of
from hwbench.specs.model_name import named_models

# Lowering a whole X3D-XS to int8 peaks at about this much.
WORKER_BYTES = 2 * 1024**3
# A whole X3D-XS takes 90 s to lower to int8 on one slow core; X3D-M has the same depth and four times the frames.
TIME_LIMIT_S = 900.0


@dataclass(frozen=True)
class BuildFailure:
    """A workload that did not become a file, and why, in words.

    ``outcome`` is ``lost`` where its worker was killed from outside, as by Linux where memory is used up: that tells
    nothing about the workload, which the next command tries again.
    """

    workload: Workload
    reason: str
    outcome: Outcome = Outcome.BUILD


def build_all(
    workloads: Iterable[Workload],
    runtime: str,
    cache_dir: Path,
    *,
    processes: int | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    imports: Sequence[str] = (),
) -> Iterator[Artifact | BuildFailure]:
    """Builds workloads once and ends the workers; see ``Builder``, which keeps them for more."""
    with Builder(runtime, cache_dir, processes=processes, time_limit_s=time_limit_s, imports=imports) as builder:
        yield from builder.build(workloads)


def default_processes(group: ControlGroup = OWN) -> int:
    """As many workers as there are processors for us and memory for them, at least one; of a container, its own."""
    free_bytes, available_bytes = group.free_bytes(), _available_bytes()
    room = available_bytes if free_bytes is None else min(free_bytes, available_bytes)
    return max(1, min(cores(group), room // WORKER_BYTES))


def _available_bytes() -> int:
    """Of the machine."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 8 * WORKER_BYTES


def _environment() -> dict[str, str]:
    """Ours, with one thread for numerics."""
    return python_environment({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"})


class Builder:
    """Builds workloads with random weights, through the cache, in workers that start when there is something to build.

    int8 is calibrated with a batch of seeded normal noise: a row of a latency table needs the speed of int8, not
    its accuracy. Workers stay for the next call until the builder is closed; idle ones use memory, but no processor.
    Two threads may build; one of them builds at a time.

    Args:
        runtime: Name of the runtime.
        cache_dir: Directory of the cache; made when needed.
        processes: Number of workers; default: what processors and memory allow.
        time_limit_s: Seconds after which a build counts as failed.
        imports: Modules that a worker imports first (they may register further runtimes).
    """

    def __init__(
        self,
        runtime: str,
        cache_dir: Path,
        *,
        processes: int | None = None,
        time_limit_s: float = TIME_LIMIT_S,
        imports: Sequence[str] = (),
    ) -> None:
        self.cache = ArtifactCache(cache_dir, runtime)
        self._processes = processes
        self._time_limit_s = time_limit_s
        self._imports = imports
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._turn = threading.RLock()

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def warm_up(self) -> None:
        """Starts the workers, which load the engine while something else is done; it is fine to build nothing."""
        with self._turn:
            self._start_missing(self.size, self.size)

    @property
    def size(self) -> int:
        """How many workers build at the same time."""
        return self._processes or default_processes()

    def close(self) -> None:
        """Ends the workers, also in the middle of a build."""
        self.interrupt()
        with self._turn:
            for worker in [*self._workers]:
                self._remove(worker)
            self._selector.close()

    def interrupt(self) -> None:
        """Kills the workers that build, also those of another thread: what they were building fails there."""
        for worker in [*self._workers]:
            if worker.workload or not worker.ready:
                worker.kill()

    def build(
        self, workloads: Iterable[Workload], /, *, stop: threading.Event | None = None
    ) -> Iterator[Artifact | BuildFailure]:
        """One result per workload: what the cache holds comes first, the rest as it gets ready.

        Duplicates are built once and answered once. Closing the iterator ends the builds under way. One process at a
        time builds into a cache; who waits finds there what the other one built.

        Args:
            workloads: What to build.
            stop: Once it is set, nothing more is begun, and another process is not waited for; what is under way is
                finished.

        Raises:
            UnknownName: No such runtime.
            MissingDependency: The engine is not installed.
            WorkspaceError: The cache cannot be written.
        """
        waiting: deque[Workload] = deque()
        for workload in dict.fromkeys(workloads):
            artifact = self.cache.load(workload)
            if artifact is None:
                waiting.append(workload)
            else:
                yield artifact
        if not waiting:
            return
        with self._turn, self.cache.building(stop) as ours:
            if not ours:
                return
            missing: deque[Workload] = deque()
            for workload in waiting:  # another process may have built it meanwhile
                artifact = self.cache.load(workload)
                if artifact is None:
                    missing.append(workload)
                else:
                    yield artifact
            if missing:
                yield from self._build(missing, min(self.size, len(missing)), stop or threading.Event())

    def _build(self, waiting: deque[Workload], size: int, stop: threading.Event) -> Iterator[Artifact | BuildFailure]:
        try:
            while True:
                if stop.is_set():
                    waiting.clear()
                if not waiting and not any(worker.workload for worker in self._workers):
                    return
                self._start_missing(size, len(waiting))
                for worker in self._workers:
                    if worker.ready and worker.workload is None and waiting:
                        workload = waiting.popleft()
                        worker.request(workload, self.cache.root, self.cache.key(workload), self._time_limit_s)
                yield from self._wait()
        finally:
            for worker in [worker for worker in self._workers if worker.workload or not worker.ready]:
                self._remove(worker)

    def _start_missing(self, size: int, waiting: int) -> None:
        idle = sum(worker.workload is None for worker in self._workers)
        for _ in range(min(size - len(self._workers), waiting - idle)):
            worker = _Worker(self.cache.runtime, self._imports, self._time_limit_s)
            self._workers.append(worker)
            self._selector.register(worker.answers, selectors.EVENT_READ, worker)

    def _wait(self) -> Iterator[Artifact | BuildFailure]:
        now = time.monotonic()
        left = min(worker.deadline for worker in self._workers) - now
        for key, _ in self._selector.select(min(max(left, 0.0), self._time_limit_s)):
            result = self._take(key.data)
            if result is not None:
                yield result
        for worker in [w for w in self._workers if w.deadline <= time.monotonic()]:
            lost = self._lose(worker, f"no result after {self._time_limit_s:.0f} s")
            if lost is not None:
                yield lost

    def _take(self, worker: _Worker) -> Artifact | BuildFailure | None:
        """Handles one answer; the result it carries, if any."""
        answer = worker.answer()
        if answer is None:
            return self._lose(worker, worker.last_words(), worker.outcome())
        if "fatal" in answer:
            raise getattr(errors, answer["kind"], HwbenchError)(answer["fatal"])
        workload, worker.workload = worker.workload, None
        worker.deadline = float("inf")
        if workload is None:
            worker.ready = True
            return None
        if "failure" in answer:
            return BuildFailure(workload, answer["failure"])
        artifact = artifact_from_json(answer["artifact"], self.cache.root)
        self.cache.save(artifact)
        return artifact

    def _lose(self, worker: _Worker, reason: str, outcome: Outcome = Outcome.BUILD) -> BuildFailure | None:
        """Removes a worker that died or must die; returns the failure of what it was building."""
        self._remove(worker)
        if not worker.ready:
            raise HwbenchError(f"build workers do not start: {reason}; see: hwbench doctor")
        return BuildFailure(worker.workload, reason, outcome) if worker.workload else None

    def _remove(self, worker: _Worker) -> None:
        self._selector.unregister(worker.answers)
        self._workers.remove(worker)
        worker.end()


class _Worker:
    """One process of ``build_worker``."""

    def __init__(self, runtime: str, imports: Sequence[str], time_limit_s: float) -> None:
        self.workload: Workload | None = None
        self.ready = False
        self.deadline = time.monotonic() + time_limit_s
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end
        # A session of its own: Ctrl-C at the terminal reaches only us, and we end it.
        self._process = subprocess.Popen(
            python_command("hwbench.measure.build_worker", runtime, *imports),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env=_environment(),
        )

    @property
    def answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def request(self, workload: Workload, folder: Path, name: str, time_limit_s: float) -> None:
        """Asks for one build; that a worker is dead already shows in its next answer."""
        assert self._process.stdin is not None
        self.workload = workload
        self.deadline = time.monotonic() + time_limit_s
        values: dict[str, object] = {"workload": workload.key, "folder": str(folder), "name": name}
        if any(is_by_hand(block) for block in workload.blocks):
            values["models"] = named_models(model_of(block) for block in workload.blocks if is_by_hand(block))
            values["path"] = import_path()
        line = json.dumps(values) + "\n"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """The answer that is waiting, or None when the worker is gone."""
        line = self.answers.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def last_words(self) -> str:
        """How a worker ended, and the last line that it wrote."""
        return f"the build process ended: {last_words(self._process, self._log)}"

    def outcome(self) -> Outcome:
        """What a worker's end says about what it was building; waits for it."""
        return Outcome.LOST if self._process.wait() == -signal.SIGKILL else Outcome.BUILD

    def kill(self) -> None:
        """Ends the process, also in the middle of a build; its answers end."""
        self._process.kill()

    def end(self) -> None:
        """Ends the process, and frees what it held."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()
