"""The layout of convolutions over time that a device's table says is fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener
from hwbench.errors import InvalidValue, NotMeasured, UnknownName
from hwbench.specs import AUTO, STREAM

if TYPE_CHECKING:
    from hwbench.latency import LatencyTable, VariantChoice
    from hwbench.specs import Network, Precision
    from hwbench.workspace import Workspace

# What ``hwbench profile`` takes to measure every layout beside the built-in one, of every block: a layout is compared
# where all blocks of a network have a row in it.
_ALL_LAYOUTS = " --all-rows --variants all"


def fastest_on(
    workspace: Workspace,
    device: str,
    network: Network,
    precision: Precision,
    variant: str = AUTO,
    listener: Listener = SILENT,
    *,
    runtime: str,
) -> str:
    """The variant for a network on a device, by the table of the engine that runs it with one thread.

    Rows of single blocks compare layouts only where all of them are in deploy form (``Capabilities.form``): in the
    form that was trained the other blocks of a network take other times as well.

    Args:
        workspace: Holds the device and its table.
        device: Name of the device.
        network: Whose layout is chosen.
        precision: Of the table.
        variant: What else was asked for; anything but ``auto`` contradicts.
        listener: Hears what the choice rests on.
        runtime: Name of the engine that the network is built for.

    Raises:
        InvalidValue: Another variant than ``auto`` is asked for as well, the engine runs the network as it was trained
            or runs on this machine only, or the table was taken under emulation.
        UnsupportedModule: The engine has no such precision.
        UnknownName: No such device or engine.
        MissingDependency: The engine is not installed.
        NotMeasured: The device has no table of the engine with one thread.
    """
    from hwbench.devices import load_device
    from hwbench.latency import fastest_variant, load_table
    from hwbench.measure.cache import engine_version
    from hwbench.measure.carried import check_runtime
    from hwbench.specs import Target

    chosen_by_device(device, variant)
    _check_layouts(runtime, network, precision)
    place = load_device(workspace, device)
    check_runtime(place, runtime)
    target = Target(place.name, runtime, engine_version(runtime), 1)  # what measures takes one by default
    try:
        table = load_table(workspace, target, precision, _space_of(network), classes=network.num_classes)
    except NotMeasured as error:
        raise NotMeasured(f"{error}{_ALL_LAYOUTS}") from None
    if table.emulated:
        raise InvalidValue(
            f"the table of {target} was taken under emulation and chooses no layout; leave out --device {device}"
        )
    choice = fastest_variant(table, network.workload(precision))
    listener.say(_reason(choice, table, network))
    return choice.variant


def check_variant(name: str) -> None:
    """Raises UnknownName for what is no layout; many networks have no convolution that would look its layout up."""
    if name == AUTO:  # the others are in a module that loads torch
        return
    from hwbench.blocks import variants
    from hwbench.registry import suggest

    if name not in variants:
        stream = "; a stream is made by export --streaming" if name == STREAM else ""
        raise UnknownName(f"unknown variant {name!r}; {suggest(name, (AUTO, *variants.names()))}{stream}")


def chosen_by_device(device: str | None, variant: str) -> None:
    """Raises InvalidValue where both a device and a layout are given."""
    if device is not None and variant != AUTO:
        raise InvalidValue(f"--device chooses the layout by measured rows; leave out --variant {variant}, or --device")


def _check_layouts(runtime: str, network: Network, precision: Precision) -> None:
    """Raises InvalidValue where the engine builds the network as it was trained."""
    from hwbench.runtimes import ModuleForm, get

    engine = get(runtime)
    engine.require_precision(precision)
    if engine.capabilities.form(network.workload(precision)) is ModuleForm.ORIGINAL:
        raise InvalidValue(
            f"--device: the {runtime} runtime builds networks in {precision} as they were trained, with no layout of "
            "convolutions over time for a table to choose; leave --device out"
        )


def _space_of(network: Network) -> str:
    """What ``hwbench profile --space`` takes for the space of a network: that of its key, or the network by name."""
    return network.name.partition(":")[0] if "=" in network.name else network.name


def _reason(choice: VariantChoice, table: LatencyTable, network: Network) -> str:
    if choice.measured:
        ranked = sorted(choice.seconds.items(), key=lambda item: item[1])
        rows = ", ".join(f"{name} {1e3 * seconds:.3f} ms" for name, seconds in ranked)
        return f"layout of convolutions over time on {table.target.device}: {choice.variant} (sums of rows: {rows})"
    return (
        f"layout of convolutions over time: {AUTO}, the built-in choice; the table of {table.target} has no other rows "
        f"for all blocks of {network.name}; measure them: {table.command(_space_of(network))}{_ALL_LAYOUTS}"
    )
