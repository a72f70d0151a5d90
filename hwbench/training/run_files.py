"""The files of a training run: what they are called, and what becomes of those that lie in its folder before it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from hwbench.data.video_scores import SCORES
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import enumeration
from hwbench.training.checkpoint import load_checkpoint
from hwbench.training.description import RUN, read_description
from hwbench.training.log import METRICS, is_log
from hwbench.training.state import RESUME, STEP, holds_state, remove_states
from hwbench.training.tensorboard import FOLDER as TENSORBOARD
from hwbench.workspace import remove_leftovers, writing

CHECKPOINT = "checkpoint.pt"
# What the scores of the validation videos are worth, by all measures.
REPORT = "scores.json"
# What a run writes anew, and what it removes where it starts over.
_REPLACED = (RUN, METRICS, REPORT, SCORES)
_REMOVED = (CHECKPOINT, *_REPLACED, TENSORBOARD, RESUME, STEP)


def check_folder(run_dir: Path, *, fresh: bool = False) -> None:
    """Refuses a folder in which a run would replace or remove what no run wrote.

    Args:
        run_dir: Folder of the run.
        fresh: Whether the run starts over.

    Raises:
        InvalidValue: The message names the files.
        WorkspaceError: The folder cannot be looked into.
    """
    with writing(run_dir):
        there = [name for name in (_REMOVED if fresh else _REPLACED) if (run_dir / name).exists()]
        # A run that goes on reads the checkpoint, and refuses one that is none.
        read = not fresh and (run_dir / CHECKPOINT).exists()
    if not there or read or is_of_run(run_dir):
        return
    done = "removed" if fresh else "replaced"
    raise InvalidValue(
        f"--out: {enumeration(there)} in {run_dir} came from no training, and would be {done}; move what is yours, or "
        "choose another folder"
    )


def start_over(run_dir: Path) -> None:
    """Removes the files of a run, and what killed processes left of them; the description, which tells them, goes last.

    Nothing else in the folder is removed.
    """
    remove_leftovers(run_dir, (CHECKPOINT, *_REPLACED, RESUME))
    for name in (CHECKPOINT, METRICS, SCORES, REPORT):
        (run_dir / name).unlink(missing_ok=True)
    shutil.rmtree(run_dir / TENSORBOARD, ignore_errors=True)
    remove_states(run_dir)
    (run_dir / RUN).unlink(missing_ok=True)


def is_of_run(run_dir: Path) -> bool:
    """Whether a run wrote into the folder: it has a description, which runs of before lack, or what a run trained.

    The log of a run is enough: of such a run it may be all that a power cut left whole.
    """
    with contextlib.suppress(InvalidFile):
        read_description(run_dir)
        return True
    with contextlib.suppress(InvalidFile):
        load_checkpoint(run_dir / CHECKPOINT)
        return True
    return holds_state(run_dir) or is_log(run_dir)
