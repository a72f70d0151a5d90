"""``hwbench.check_data``: every video of a data set is probed, and what is wrong is told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.data.progress import stage_reporter
from hwbench.api.listener import SILENT, Listener
from hwbench.api.reading import MODALITY_HELP
from hwbench.api.requests import option, request
from hwbench.interpreter import cores
from hwbench.units import parse_duration

if TYPE_CHECKING:
    import pandas as pd

    from hwbench.data.findings import DataFinding
    from hwbench.data.listings import DataListing, SplitVideo
    from hwbench.workspace import Workspace

DATA_HELP = "synthetic, a folder of class folders, a list, or READER:PATH?OPTION=VALUE."


@request
class CheckDataRequest:
    """Probe every video of a data set and tell what is wrong; exit status 5 if training would stop, or its score lie.

    Training stops at what cannot be read, and at a label behind the end of its video; its score lies where a video, or
    a group, is trained on and validated on. Told are also duplicates, several labels of one video, uneven frame rates,
    odd sizes and classes without videos.
    Each file is probed in a process of its own with a limit of time. What was found out is kept in the workspace, so
    that an interrupted check goes on, and a second one is quick.
    """

    data: str = option(argument=True, help=DATA_HELP)
    out: Path | None = option(
        default=None,
        help="Write the videos that are fit: a list file, or a folder for train.txt and val.txt; --data reads it. Of "
        "parts of videos a table, or train.csv and val.csv, which --data table:PATH reads.",
    )
    decode: bool = option(default=False, help="Decode all frames of each file instead of reading its packets alone.")
    modality: str = option(default="rgb", help=MODALITY_HELP + " Files of flow are counted.")
    jobs: int | None = option(default=None, min=0, help="Processes; default: all cores. 0: this one, without a limit.")
    time_limit: str = option(default="60 s", help='Time for one file, such as "60 s"; what takes longer is unreadable.')

    def validate(self) -> None:
        """Raises InvalidValue where the time is none."""
        parse_duration(self.time_limit, name="--time-limit")


@dataclass(frozen=True)
class CheckDataResult:
    """What is wrong with a data set.

    Attributes:
        data: The data set.
        ok: Nothing speaks against training: no finding is ``failing``.
        findings: What is wrong, by kind.
        videos: Listed videos by the side of the split.
        classes: Number of classes.
        clean: Videos of the clean list by the side of the split.
        duration_s: Seconds of all readable files together.
        codecs: Number of files by codec.
        sizes: Number of files by size of the frames.
        lists: The list files that were written.
        seconds: Wall time.
    """

    data: str
    ok: bool
    findings: tuple[DataFinding, ...]
    videos: dict[str, int]
    classes: int
    clean: dict[str, int]
    duration_s: float
    codecs: dict[str, int]
    sizes: dict[str, int]
    lists: tuple[Path, ...]
    seconds: float

    def counts(self) -> dict[str, int]:
        """How many findings there are of each kind."""
        return dict(Counter(finding.kind for finding in self.findings))

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench data check --json`` prints."""
        return {
            "data": self.data,
            "ok": self.ok,
            "videos": self.videos,
            "clean": self.clean,
            "classes": self.classes,
            "duration_s": self.duration_s,
            "codecs": self.codecs,
            "sizes": self.sizes,
            "counts": self.counts(),
            "findings": [asdict(finding) | {"failing": finding.failing} for finding in self.findings],
            "lists": [str(file) for file in self.lists],
            "seconds": self.seconds,
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a finding."""
        import pandas as pd

        from hwbench.data.findings import DataFinding

        return pd.DataFrame([asdict(one) for one in self.findings], columns=list(DataFinding.__dataclass_fields__))


def check_data(
    request: CheckDataRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> CheckDataResult:
    """Probes every video of a data set, and compares those that may be the same.

    Args:
        request: Which data set, and how thoroughly.
        listener: Hears how many files are done, where lists give classes other numbers, and of which classes they
            leave out the videos to validate on.
        workspace: Keeps what was found out of each file; default: the one around the current folder.

    Raises:
        UnknownName: No such data.
        InvalidValue: No such modality.
        InvalidFile: A data set that is not laid out as its reader expects.
        UsageError: A clean list cannot hold what the data set says, would replace its own, or would come where a
            class of it may lie.
        WorkspaceError: The workspace or the lists cannot be written.
    """
    from hwbench.data.checking import check_listing
    from hwbench.data.clean_lists import check_no_class, check_own_lists, check_target, has_parts, numbers_note
    from hwbench.data.flow_check import with_flow
    from hwbench.data.flow_stream import FlowStream
    from hwbench.data.listings import open_listing
    from hwbench.data.readers.folders import ClassFolders
    from hwbench.data.sources import locate
    from hwbench.workspace import Workspace

    started, stream = time.monotonic(), FlowStream.parse(request.modality)
    workspace = Workspace.at(workspace)
    listing = open_listing(workspace, request.data)
    if stream is not None:
        stream.require()
    if request.out is not None:
        check_target(listing, request.out)
        reader, path = locate(workspace, request.data)
        check_own_lists(path, request.out, parts=has_parts(listing))
        if isinstance(reader, ClassFolders):
            check_no_class(path, reader.roots(path), request.out)
        if note := numbers_note(listing, request.out):
            listener.say(note)
    checked = check_listing(
        workspace,
        listing,
        jobs=cores() if request.jobs is None else request.jobs,
        time_limit_s=parse_duration(request.time_limit),
        decode=request.decode,
        progress=stage_reporter(listener),
    )
    if stream is not None:
        checked = with_flow(checked, stream)
    clean = checked.clean
    lists: tuple[Path, ...] = ()
    if request.out is not None:
        clean, lists = _write_lists(listing, clean, request.out, listener)
    return CheckDataResult(
        data=request.data,
        ok=checked.ok,
        findings=checked.findings,
        videos=dict(Counter(video.split for video in listing.videos)),
        classes=len(listing.classes),
        clean=dict(Counter(video.split for video in clean)),
        duration_s=round(checked.duration_s, 3),
        codecs=checked.counts("codec"),
        sizes=checked.sizes(),
        lists=lists,
        seconds=round(time.monotonic() - started, 1),
    )


def _write_lists(
    listing: DataListing, clean: Sequence[SplitVideo], out: Path, listener: Listener
) -> tuple[tuple[SplitVideo, ...], tuple[Path, ...]]:
    """Writes the videos that are fit; ``listener`` hears what is other in the lists than in the data set.

    Returns:
        The videos that are listed, and the files.
    """
    from hwbench.data.clean_lists import has_parts, numbers_note, untrained_classes, write_lists

    parts = has_parts(listing)
    untrained = untrained_classes(clean, out, parts=parts)
    listed = tuple(video for video in clean if video.listed.labels[0] not in untrained)
    if untrained:
        listener.say(
            f"{out}: val.txt leaves out {len(clean) - len(listed)} of its videos: no video to train on is fit of "
            f"{', '.join(map(repr, sorted(untrained)))}, and two lists have no classes but those to train on"
        )
    note = numbers_note(replace(listing, videos=listed), out)
    if note and not numbers_note(listing, out):
        listener.say(note)
    return listed, write_lists(listed, out, parts=parts, directional=listing.directional)
