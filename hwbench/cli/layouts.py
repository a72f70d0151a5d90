"""The layout of convolutions over time that a device's table says is fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.cli.output import say
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.specs import Network, Precision
    from hwbench.workspace import Workspace


def fastest_on(workspace: Workspace, device: str, network: Network, precision: Precision, variant: str) -> str:
    """The variant for a network on a device; what it rests on is said.

    Raises:
        InvalidValue: Another variant than ``auto`` is asked for as well.
        UnknownName: No such device.
        NotMeasured: The device has no table.
    """
    from hwbench.cli.search import installed_target
    from hwbench.devices import load_device
    from hwbench.latency import fastest_variant, load_table
    from hwbench.specs import AUTO

    if variant != AUTO:
        raise InvalidValue(f"--device chooses the layout by measured rows; leave out --variant {variant}, or --device")
    place = load_device(workspace, device)
    target = installed_target(place.name, "executorch", place.threads)
    table = load_table(workspace, target, precision)
    if table.emulated:
        raise InvalidValue(
            f"the table of {target} was taken under emulation and chooses no layout; leave out --device {device}"
        )
    choice = fastest_variant(table, network.workload(precision))
    if choice.measured:
        ranked = sorted(choice.seconds.items(), key=lambda item: item[1])
        rows = ", ".join(f"{name} {1e3 * seconds:.3f} ms" for name, seconds in ranked)
        say(f"layout of convolutions over time on {device}: {choice.variant} (sums of rows: {rows})")
    else:
        say(
            f"layout of convolutions over time: {AUTO}, the built-in choice; the table of {device} has no other rows "
            f"for all blocks of {network.name}: hwbench profile --device {device} --precision {precision} "
            "--variants all measures those of a space"
        )
    return choice.variant
