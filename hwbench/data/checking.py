"""Every video of a data set is probed, in several processes; what is found out is kept, so a second run is quick."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hwbench.data.file_facts import FactKind, Facts, FactsCache, FactTask, find_facts
from hwbench.data.file_pool import FileFailure, FilePool
from hwbench.data.findings import Content, DataFinding, findings_of
from hwbench.data.listings import DataListing, SplitVideo
from hwbench.data.media import FileSource, VideoSource
from hwbench.room import use
from hwbench.workspace import Workspace

AnySource = TypeVar("AnySource", bound=VideoSource)
Progress = Callable[[str, int, int], None]
# Below the cache of the workspace.
FACTS = "videos/facts.sqlite"
_STAGES: Mapping[FactKind, str] = {"probe": "probe", "decode": "decode", "bytes": "compare", "frames": "compare frames"}


@dataclass(frozen=True)
class CheckedData:
    """What the check of a data set found.

    Attributes:
        listing: The videos.
        findings: What is wrong, by kind.
        clean: The videos that a clean list holds.
        facts: Of every source.
    """

    listing: DataListing
    findings: tuple[DataFinding, ...]
    clean: tuple[SplitVideo, ...]
    facts: Mapping[VideoSource, Facts]

    @property
    def ok(self) -> bool:
        """Whether training could begin: everything is readable, and nothing that is validated on is trained on."""
        return not any(finding.failing for finding in self.findings)

    @property
    def duration_s(self) -> float:
        """Seconds of all readable files together."""
        return sum(float(facts.get("duration_s", 0)) for facts in self.facts.values())

    def counts(self, key: str) -> dict[str, int]:
        """How many readable files have each value of ``codec`` or ``fps``; the commonest first."""
        values = Counter(str(facts[key]) for facts in self.facts.values() if key in facts)
        return dict(values.most_common())

    def sizes(self) -> dict[str, int]:
        """How many readable files have each size of frames; the commonest first."""
        sizes = Counter(f"{facts['width']}x{facts['height']}" for facts in self.facts.values() if "width" in facts)
        return dict(sizes.most_common())


def check_listing(
    workspace: Workspace,
    listing: DataListing,
    *,
    jobs: int,
    time_limit_s: float,
    decode: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> CheckedData:
    """Probes every video, and compares those that may be the same.

    Files of the same size are compared by their bytes. Files whose frames agree in number and size are compared by
    five to seven decoded frames, which finds a video in another container, not one that was encoded again.

    Args:
        workspace: Its cache keeps what was found out of each file.
        listing: The videos.
        jobs: Processes; 0: this one, without a limit of time.
        time_limit_s: Seconds for one file.
        decode: Decode all frames instead of reading packets alone.
        progress: Gets the name of a stage, and how many files of it are done.

    Raises:
        WorkspaceError: The cache cannot be written.
    """
    paths = {video.source: video.listed.path for video in listing.videos}
    use(workspace.cache)  # ``hwbench doctor --clean`` spares what is found out
    with FactsCache(workspace.cache / FACTS) as cache:
        finder = _Finder(cache, paths, jobs, time_limit_s, progress)
        facts = finder.find("decode" if decode else "probe", paths)
        readable = [source for source in paths if not facts[source].get("error")]
        contents = _same(paths, readable, finder, facts)
    found = findings_of(listing, facts, contents)
    return CheckedData(listing, found.findings, found.clean, facts)


class _Finder:
    """Finds facts of many sources: those that are kept come first, the rest from processes."""

    def __init__(
        self,
        cache: FactsCache,
        paths: Mapping[VideoSource, Path],
        jobs: int,
        time_limit_s: float,
        progress: Progress,
    ) -> None:
        self._cache, self._paths, self._jobs, self._progress = cache, paths, jobs, progress
        self._time_limit_s = time_limit_s

    def find(self, kind: FactKind, sources: Iterable[VideoSource]) -> dict[VideoSource, Facts]:
        tasks = [FactTask(kind, source, self._paths[source]) for source in sources]
        facts: dict[VideoSource, Facts] = {}
        waiting = []
        for task in tasks:
            kept = self._cache.get(task)
            if kept is None:
                waiting.append(task)
            else:
                facts[task.source] = kept
        stage = _STAGES[kind]
        self._progress(stage, len(facts), len(tasks))
        for task, answer in FilePool(find_facts, self._jobs, time_limit_s=self._time_limit_s).map(waiting):
            if isinstance(answer, FileFailure):
                facts[task.source] = {"error": answer.cause}
            else:
                facts[task.source] = answer
                self._cache.put(task, answer)
            self._progress(stage, len(facts), len(tasks))
        return facts


def _same(
    paths: Mapping[VideoSource, Path],
    readable: Sequence[VideoSource],
    finder: _Finder,
    facts: Mapping[VideoSource, Facts],
) -> dict[VideoSource, Content]:
    """The sources that show the same as another one."""
    contents: dict[VideoSource, Content] = {}
    files = [source for source in readable if isinstance(source, FileSource) and source.path.is_file()]
    same_size = _groups(files, lambda file: (paths[file].stat().st_size, file.stream))
    compared = [file for files_of_size in same_size for file in files_of_size]
    digests = finder.find("bytes", compared)
    for copies in _groups(compared, lambda file: (digests[file].get("digest", file), file.stream)):
        for file in copies:
            contents[file] = Content(f"bytes of {copies[0].name}", "the same bytes as")
    # One of the files with the same bytes stands for all.
    single: dict[str, VideoSource] = {}
    for source in readable:
        single.setdefault(contents[source].key if source in contents else source.name, source)
    alike = _groups(single.values(), lambda source: tuple(facts[source][key] for key in ("frames", "width", "height")))
    pictures = finder.find("frames", [source for group in alike for source in group])
    for group in _groups(pictures, lambda source: pictures[source].get("digest", source)):
        keys = {contents[source].key for source in group if source in contents}
        content = Content(f"frames of {group[0].name}", "the same frames as")
        for source in [*group, *(one for one, other in contents.items() if other.key in keys)]:
            contents[source] = content
    return contents


def _groups(sources: Iterable[AnySource], key: Callable[[AnySource], Hashable]) -> list[list[AnySource]]:
    """Sources with the same key, two and more of them."""
    groups: dict[Hashable, list[AnySource]] = defaultdict(list)
    for source in sources:
        groups[key(source)].append(source)
    return [group for group in groups.values() if len(group) > 1]
