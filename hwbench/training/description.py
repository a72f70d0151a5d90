"""What a run is: ``run.json``, written when the run begins, so that a report needs no weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.workspace import write_bytes

RUN = "run.json"
_SCHEMA = 1


@dataclass(frozen=True)
class RunDescription:
    """Network, data and recipe of a run.

    Attributes:
        network: Its name.
        input: Of the network, as ``TensorSpec`` writes it.
        data: As the user named it.
        classes: Number of classes.
        videos: Number of videos, by ``train`` and ``val``.
        recipe: The fields by name.
        begins_with: What tells its first weights and its teacher from others, name -> text.
        reading: How videos are read where that changes the clips, name -> text.
    """

    network: str
    input: str
    data: str
    classes: int
    videos: Mapping[str, int]
    recipe: Mapping[str, Any]
    begins_with: Mapping[str, str]
    reading: Mapping[str, str] = field(default_factory=dict)


def write_description(folder: Path, description: RunDescription) -> None:
    """Writes ``run.json``, all of it or nothing."""
    write_bytes(folder / RUN, json.dumps({"schema": _SCHEMA, **asdict(description)}, indent=1).encode())


def read_description(folder: Path) -> RunDescription:
    """Reads ``run.json``.

    Raises:
        InvalidFile: There is none, or it is damaged.
    """
    path = folder / RUN
    try:
        values = read_json(path.read_bytes())
        return RunDescription(
            network=str(values["network"]),
            input=str(values["input"]),
            data=str(values["data"]),
            classes=int(values["classes"]),
            videos={str(part): int(count) for part, count in values["videos"].items()},
            recipe=dict(values["recipe"]),
            begins_with={str(key): str(value) for key, value in values["begins_with"].items()},
            reading={str(key): str(value) for key, value in values.get("reading", {}).items()},
        )
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror}; a run that begins now has one") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(f"{path}: damaged: {error!r:.100}; expected what hwbench train writes there") from None
