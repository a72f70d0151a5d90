"""``hwbench.list_data``: what ``--data`` takes here: readers, synthetic sets, and what was prepared."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import request
from hwbench.errors import MissingDependency
from hwbench.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hwbench.workspace import Workspace


@request
class ListDataRequest:
    """List what --data takes: the readers of layouts with their options, the synthetic sets, and what was prepared."""


@dataclass(frozen=True)
class ListedData:
    """One thing that ``--data`` takes.

    Attributes:
        name: How it is typed.
        kind: ``reader``, ``synthetic`` or ``prepared``.
        description: One line; of a reader whose package does not load, what is wrong.
        options: Names of the options of a reader.
    """

    name: str
    kind: str
    description: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListDataResult:
    """What ``--data`` takes in a workspace."""

    data: tuple[ListedData, ...]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench data list --json`` prints."""
        return {"data": [asdict(one) | {"options": list(one.options)} for one in self.data]}

    def to_frame(self) -> pd.DataFrame:
        """One row for each thing."""
        import pandas as pd

        return pd.DataFrame(self.to_json()["data"], columns=list(ListedData.__dataclass_fields__))


def list_data(
    request: ListDataRequest | None = None,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | str | Path | None = None,
) -> ListDataResult:
    """Lists readers, synthetic sets and prepared ones; nothing is read or made.

    Args:
        request: Decides nothing.
        listener: Hears nothing: this takes no time.
        workspace: Knows what was prepared; default: the one around the current folder.

    Raises:
        WorkspaceError: There is no workspace.
    """
    from hwbench.data.inventory import prepared_sets, synthetic_sets
    from hwbench.data.readers import readers
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    listed = [_reader(name) for name in readers.names()]
    listed += [ListedData(name, "synthetic", text) for name, text in synthetic_sets(workspace)]
    listed += [ListedData(str(folder), "prepared", text) for folder, text in prepared_sets(workspace)]
    return ListDataResult(tuple(listed))


def _reader(name: str) -> ListedData:
    """A reader; one whose package does not load has what is wrong as its description."""
    from hwbench.data.readers import options_of, readers

    try:
        reader = readers.get(name)
    except MissingDependency as error:
        return ListedData(f"{name}:PATH", "reader", printable(str(error)))
    summary = (inspect.getdoc(reader) or "").partition("\n")[0].replace("``", "`")
    return ListedData(f"{name}:PATH", "reader", summary, options_of(reader))
