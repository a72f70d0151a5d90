"""``hwbench.init``: a workspace somewhere else than in the checkout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request

if TYPE_CHECKING:
    from hwbench.workspace import Workspace


@request
class InitRequest:
    """Make a workspace: the shipped search spaces, devices and model cards; existing files are left as they are.

    A .gitignore keeps working state, runs and tables of this machine out of git.
    """

    directory: Path = option(argument=True, metavar="DIR", help="Directory to make, or to complete.")


@dataclass(frozen=True)
class InitResult:
    """The workspace, and how many spaces, devices and cards are in it."""

    workspace: Workspace
    counts: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench init --json`` prints."""
        return {
            "workspace": str(self.workspace.root),
            "search_spaces": self.counts["search_spaces"],
            "profiles": self.counts["profiles"],
            "zoo": self.counts["zoo"],
        }


def init(request: InitRequest, listener: Listener = SILENT) -> InitResult:
    """Makes a workspace, or completes one.

    Args:
        request: Where.
        listener: Hears nothing: this takes no time.

    Raises:
        WorkspaceError: The directory cannot be written.
    """
    from hwbench.workspace import PARTS, Workspace

    made = Workspace.create(request.directory.resolve())
    return InitResult(made, {part: len(made.names(part)) for part in PARTS[:3]})
