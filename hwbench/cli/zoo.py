"""``hwbench zoo``: the networks of the zoo, and their published weights."""

from __future__ import annotations

from hwbench.api.zoo import GetWeightsRequest, ListedCard, ListZooRequest, get_weights, list_zoo
from hwbench.cli.app import app as program
from hwbench.cli.generated import add_command, add_group
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table
from hwbench.cli.signals import GOES_ON


def _list(request: ListZooRequest, as_json: bool) -> None:
    with listening() as listener:
        result = list_zoo(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
        return
    print_table(("name", "input", "GMACs", "top-1", "on", "weights"), [_row(card) for card in result.cards])


def _row(card: ListedCard) -> tuple[str, ...]:
    top1 = "-" if card.top1 is None else f"{100 * card.top1:.2f} %"
    data = card.conditions.partition(",")[0] or "-"
    return f"zoo:{card.name}", card.input, f"{card.macs / 1e9:.2f}", top1, data, card.weights


def _get(request: GetWeightsRequest, as_json: bool) -> None:
    with listening() as listener:
        result = get_weights(request, listener)
    emit(result.to_json(), as_json=as_json)


app = add_group(program, "zoo", ListZooRequest, _list, help="The networks of the zoo, and their published weights.")
add_command(app, "list", ListZooRequest, _list)
add_command(app, "get", GetWeightsRequest, _get, after=GOES_ON)
