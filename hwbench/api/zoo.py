"""``hwbench.list_zoo`` and ``hwbench.get_weights``: the networks of the zoo, and their published weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.models import card_name
from hwbench.api.requests import option, request
from hwbench.errors import HwbenchError, InvalidValue

if TYPE_CHECKING:
    import pandas as pd

    from hwbench.spaces import Card, FetchedWeights
    from hwbench.workspace import Workspace

# What --weights takes in the place of a file.
PUBLISHED = "published"


@request
class ListZooRequest:
    """List the networks of the zoo with their published top-1, and whether their weights are in the workspace."""


@dataclass(frozen=True)
class ListedCard:
    """A network of the zoo.

    Attributes:
        name: What stands behind ``zoo:``.
        input: The clip, as frames x height x width.
        macs: Multiply-adds of one clip of this input.
        top1: Published top-1, 0-1; None: none was published.
        conditions: What ``top1`` holds under.
        weights: ``here`` (in the workspace), ``published`` (can be fetched) or ``none``.
        licence: Of the weights and the architecture.
    """

    name: str
    input: str
    macs: int
    top1: float | None
    conditions: str
    weights: str
    licence: str


@dataclass(frozen=True)
class ListZooResult:
    """The networks of the zoo, by name."""

    cards: tuple[ListedCard, ...]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench zoo list --json`` prints."""
        return {"cards": [asdict(card) for card in self.cards]}

    def to_frame(self) -> pd.DataFrame:
        """One row a network."""
        import pandas as pd

        return pd.DataFrame(self.to_json()["cards"], columns=list(ListedCard.__dataclass_fields__))


@request
class GetWeightsRequest:
    """Fetch the published weights of a network of the zoo, or check those that are there.

    A fetch that breaks off goes on where it stopped. HWBENCH_ZOO_MIRROR names a folder or an address that has the files
    in the place of the published one.
    """

    name: str = option(argument=True, names="zoo", help="A network of the zoo, such as x3d-xs: see hwbench zoo list.")


@dataclass(frozen=True)
class GetWeightsResult:
    """A file of published weights.

    Attributes:
        name: Of the network in the zoo.
        path: The file.
        sha256: Its digest.
        bytes: Its size.
        source: Where it came from.
        pinned: The card names the digest; else the digest of the first fetch holds.
        fetched: It was fetched now; else it was there, and was checked.
    """

    name: str
    path: Path
    sha256: str
    bytes: int
    source: str
    pinned: bool
    fetched: bool

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench zoo get --json`` prints."""
        return {**vars(self), "path": str(self.path)}


def list_zoo(
    request: ListZooRequest | None = None,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | str | Path | None = None,
) -> ListZooResult:
    """Lists the networks of the zoo; a card that cannot be read, as without its family, is told and left out."""
    from hwbench.spaces import load_card
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    cards: list[ListedCard] = []
    for name in workspace.names("zoo"):
        try:
            cards.append(_listed(workspace, load_card(workspace, name)))
        except HwbenchError as error:
            listener.say(str(error))
    return ListZooResult(tuple(cards))


def get_weights(
    request: GetWeightsRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> GetWeightsResult:
    """Fetches the published weights of a network, or checks those that are there.

    Args:
        request: Which network.
        listener: Hears how many bytes are there, and what is not certain of the file.
        workspace: Has the cards and keeps the file; default: the one around the current folder.

    Raises:
        What ``hwbench.spaces.fetch_weights`` raises.
    """
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    name = card_name(request.name) or request.name
    got = _fetch(workspace, name, listener)
    return GetWeightsResult(name, got.path, got.sha256, got.bytes, got.source, got.pinned, got.fetched)


def published_weights(workspace: Workspace, architecture: str, listener: Listener) -> Path:
    """The file that ``--weights published`` means for a network by name, fetched where it is not there.

    Raises:
        InvalidValue: The network is none of the zoo, or has no published weights.
        And what ``hwbench.spaces.fetch_weights`` raises.
    """
    name = card_name(architecture)
    if name is None:
        raise InvalidValue(f"--weights published: expected a network of the zoo (zoo:NAME), got {architecture!r}")
    return _fetch(workspace, name, listener).path


def _fetch(workspace: Workspace, name: str, listener: Listener) -> FetchedWeights:
    from hwbench.spaces import fetch_weights

    stage = f"fetch {name}"

    def tell(done: int, total: int | None) -> None:
        megabytes = None if total is None else max(1, round(total / 1e6))
        listener.progress(StageProgress(stage, round(done / 1e6), megabytes, note="MB"))

    got = fetch_weights(workspace, name, tell)
    if got.first_use:
        listener.say(
            f"{got.path}: the card names no SHA-256; this file is taken on first use, and only {got.sha256} from now on"
        )
    return got


def _listed(workspace: Workspace, card: Card) -> ListedCard:
    from hwbench.latency.arithmetic import macs
    from hwbench.spaces.downloads import stored_weights
    from hwbench.specs import Precision

    top1 = next((one for one in card.published if one.metric == "top1"), None)
    weights = "none"
    if card.weights is not None:
        weights = "here" if stored_weights(workspace, card.name).is_file() else "published"
    return ListedCard(
        name=card.name,
        input=f"{card.cell.clip.t}x{card.cell.clip.h}x{card.cell.clip.w}",
        macs=macs(card.network().workload(Precision.FP32)),
        top1=None if top1 is None else top1.value,
        conditions="" if top1 is None else top1.conditions,
        weights=weights,
        licence=card.licence,
    )
