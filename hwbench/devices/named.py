"""A transport of another package: what it raises, beside errors of hwbench, is told with its name and the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hwbench.devices.base import MOST_PULL_BYTES, CommandResult, Process, Transport
from hwbench.registry import blaming


class NamedTransport:
    """A transport, and what messages call it; what else the transport has is there, too.

    Args:
        transport: Reaches the device.
        title: ``transport 'NAME' of the package P``.
        device: Name of the device.
    """

    def __init__(self, transport: Transport, title: str, device: str) -> None:
        self._transport, self._title, self._device = transport, title, device

    @property
    def identity(self) -> str:
        with self._named():
            return self._transport.identity

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> CommandResult:
        with self._named():
            return self._transport.run(argv, timeout_s=timeout_s, env=env, stdin=stdin)

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        with self._named():
            return _NamedProcess(self._transport.spawn(argv, env=env), self._title, self._device)

    def push(self, source: Path) -> str:
        with self._named():
            return self._transport.push(source)

    def push_all(self, sources: Sequence[Path]) -> str:
        with self._named():
            return self._transport.push_all(sources)

    def pull(self, source: str, target: Path, *, most_bytes: int = MOST_PULL_BYTES) -> None:
        with self._named():
            self._transport.pull(source, target, most_bytes=most_bytes)

    def temporary(self, name: str) -> str:
        with self._named():
            return self._transport.temporary(name)

    def close(self) -> None:
        with self._named():
            self._transport.close()

    def __enter__(self) -> Self:
        with self._named():
            self._transport = self._transport.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._named():
            self._transport.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _named(self) -> AbstractContextManager[None]:
        return blaming(self._title, on=self._device)


class _NamedProcess:
    """A command that such a transport has started."""

    def __init__(self, process: Process, title: str, device: str) -> None:
        self._process, self._title, self._device = process, title, device

    def read_line(self, timeout_s: float) -> str | None:
        with self._named():
            return self._process.read_line(timeout_s)

    def kill(self) -> None:
        with self._named():
            self._process.kill()

    def wait(self, timeout_s: float) -> CommandResult:
        with self._named():
            return self._process.wait(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """As of the transport; that the time is over is no failure."""
        over = None
        with blaming(self._title, on=self._device):
            try:
                yield
            except TimeoutError as error:
                over = error
        if over is not None:
            raise over
