"""The layout of convolutions over time that a device's table says is fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener
from hwbench.errors import InvalidValue
from hwbench.specs import AUTO

if TYPE_CHECKING:
    from hwbench.latency import VariantChoice
    from hwbench.specs import Network, Precision
    from hwbench.workspace import Workspace

RUNTIME = "executorch"


def fastest_on(
    workspace: Workspace,
    device: str,
    network: Network,
    precision: Precision,
    variant: str = AUTO,
    listener: Listener = SILENT,
) -> str:
    """The variant for a network on a device.

    Args:
        workspace: Holds the device and its table.
        device: Name of the device.
        network: Whose layout is chosen.
        precision: Of the table.
        variant: What else was asked for; anything but ``auto`` contradicts.
        listener: Hears what the choice rests on.

    Raises:
        InvalidValue: Another variant than ``auto`` is asked for as well, or the table was taken under emulation.
        UnknownName: No such device.
        NotMeasured: The device has no table.
    """
    from hwbench.devices import load_device
    from hwbench.latency import fastest_variant, load_table
    from hwbench.measure.cache import engine_version
    from hwbench.specs import Target

    chosen_by_device(device, variant)
    place = load_device(workspace, device)
    target = Target(place.name, RUNTIME, engine_version(RUNTIME), place.threads)
    table = load_table(workspace, target, precision)
    if table.emulated:
        raise InvalidValue(
            f"the table of {target} was taken under emulation and chooses no layout; leave out --device {device}"
        )
    choice = fastest_variant(table, network.workload(precision))
    listener.say(_reason(choice, device, network, precision))
    return choice.variant


def chosen_by_device(device: str | None, variant: str) -> None:
    """Raises InvalidValue where both a device and a layout are given."""
    if device is not None and variant != AUTO:
        raise InvalidValue(f"--device chooses the layout by measured rows; leave out --variant {variant}, or --device")


def _reason(choice: VariantChoice, device: str, network: Network, precision: Precision) -> str:
    if choice.measured:
        ranked = sorted(choice.seconds.items(), key=lambda item: item[1])
        rows = ", ".join(f"{name} {1e3 * seconds:.3f} ms" for name, seconds in ranked)
        return f"layout of convolutions over time on {device}: {choice.variant} (sums of rows: {rows})"
    return (
        f"layout of convolutions over time: {AUTO}, the built-in choice; the table of {device} has no other rows "
        f"for all blocks of {network.name}: hwbench profile --device {device} --precision {precision} "
        "--variants all measures those of a space"
    )
