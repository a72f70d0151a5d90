"""Whether the optical flow of a data set's videos is there, before a training stops at one that has none."""

from __future__ import annotations

from dataclasses import replace

from hwbench.data.checking import CheckedData
from hwbench.data.findings import DataFinding
from hwbench.data.flow_stream import FlowStream
from hwbench.data.media import VideoSource


def with_flow(checked: CheckedData, stream: FlowStream) -> CheckedData:
    """The check of a data set, with a finding for each readable video without enough files of flow of its own.

    Files are counted, and not read. Nothing is missing of flow that is computed.

    Args:
        checked: What is known of the videos.
        stream: Where their flow should be.
    """
    files = stream.files()
    if files is None:
        return checked
    shared = files.shared(video.source for video in checked.listing.videos)
    lacking: set[VideoSource] = set()
    findings = list(checked.findings)
    for video in checked.listing.videos:
        facts = checked.facts[video.source]
        if facts.get("error") or not facts.get("frames"):
            continue
        folder = files.folder(video.source)
        if folder is None:
            cause = "no folder of flow with its name"
        else:
            cause = shared.get(folder.folder, "") or folder.lacks(int(facts["frames"]))
        if cause:
            lacking.add(video.source)
            row = video.listed.row
            findings.append(DataFinding("no-flow", video.name, cause, video.split, row, dropped=True))
    clean = tuple(video for video in checked.clean if video.source not in lacking)
    return replace(checked, findings=tuple(findings), clean=clean)
