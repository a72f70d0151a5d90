"""What the control group of this process leaves to it of a machine: processors, and memory.

A container with limits (``docker run --cpus 2 --memory 8g``, Kubernetes) sees all processors of its host, and its
``/proc/meminfo``; what it may take stands in the files of control groups, of version 2 (``cpu.max``, ``memory.max``) or
1 (``cpu.cfs_quota_us``, ``memory.limit_in_bytes``). The limits of all groups above hold as well. Source: cgroups(7),
and Documentation/admin-guide/cgroup-v2.rst of Linux.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ControlGroup:
    """The groups that a process is in.

    Args:
        mount: Folder of the file system of control groups.
        process: Which groups a process is in, as ``/proc/PID/cgroup`` says it.
    """

    mount: Path = Path("/sys/fs/cgroup")
    process: Path = Path("/proc/self/cgroup")

    def share(self) -> float | None:
        """Processors that the groups leave, such as 1.5; None without a limit."""
        shares = [quota / period for quota, period in self._quotas() if quota > 0 and period > 0]
        return min(shares, default=None)

    def cores(self) -> int | None:
        """``share``, rounded up."""
        share = self.share()
        return None if share is None else math.ceil(share)

    def free_bytes(self) -> int | None:
        """Bytes of memory that may still be taken; None without a limit.

        Files that were read count as free, as for ``MemAvailable``: they give way.
        """
        left = [limit - used + files for limit, used, files in self._memories()]
        return max(0, min(left)) if left else None

    def _quotas(self) -> Iterator[tuple[int, int]]:
        for folder in self._folders("cpu"):
            yield from _whole((folder / "cpu.max", 0), (folder / "cpu.max", 1))
            yield from _whole((folder / "cpu.cfs_quota_us", 0), (folder / "cpu.cfs_period_us", 0))

    def _memories(self) -> Iterator[tuple[int, int, int]]:
        for folder in self._folders("memory"):
            for names, of_all in (
                (("memory.max", "memory.current"), ""),
                (("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"),
            ):
                for limit, used in _whole(*((folder / name, 0) for name in names)):
                    files = (f"{of_all}{state}_file" for state in ("active", "inactive"))
                    yield limit, used, sum(_field(folder / "memory.stat", name) for name in files)

    def _folders(self, controller: str) -> Iterator[Path]:
        """Of the own groups that a controller limits, and of those above them, as far as they can be seen.

        A container may have its own group mounted in place of the top, under which its path is not to be found.
        """
        for line in _text(self.process).splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controllers and controller not in controllers.split(","):
                continue
            mounts = {self.mount / controllers, self.mount / controller} if controllers else {self.mount}
            inside = Path(path.lstrip("/"))
            for mount in mounts:
                yield from (mount / part for part in (inside, *inside.parents) if ".." not in part.parts)


# Of this process.
OWN = ControlGroup()


def _whole(*places: tuple[Path, int]) -> Iterator[tuple[int, int]]:
    """The two numbers that stand in files, each as the word of that place; nothing where one is missing, or ``max``."""
    words = [(_text(path).split(), number) for path, number in places]
    texts = [said[number] if number < len(said) else "" for said, number in words]
    if all(text.isascii() and text.isdecimal() for text in texts):
        first, second = map(int, texts)
        yield first, second


def _field(path: Path, name: str) -> int:
    """A number of a file of lines ``NAME NUMBER``; 0 where it does not stand there."""
    rows = (line.split() for line in _text(path).splitlines())
    return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == name and row[1].isdecimal()), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
