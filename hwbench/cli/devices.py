"""``hwbench devices``: what can be measured on; a command each to list, add, look at, check, trust and remove one."""

from __future__ import annotations

import sys

import typer

from hwbench.api.devices.add import AddDeviceRequest, add_device
from hwbench.api.devices.check import CheckDeviceRequest, check_device
from hwbench.api.devices.listing import ListDevicesRequest, ListedDevice, list_devices
from hwbench.api.devices.prepare import PrepareDeviceRequest, prepare_device
from hwbench.api.devices.remove import RemoveDeviceRequest, remove_device
from hwbench.api.devices.show import ShowDeviceRequest, show_device
from hwbench.api.devices.steps import CheckStep
from hwbench.api.devices.trust import TrustDeviceRequest, trust_device
from hwbench.cli.app import app as program
from hwbench.cli.generated import add_command, add_group
from hwbench.cli.listening import TerminalListener, listening
from hwbench.cli.output import emit, print_table, say
from hwbench.errors import DeviceError
from hwbench.printable import printable


class StepPrinter(TerminalListener):
    """Prints each step of a check when it is done: on stdout, or as talk where stdout is for JSON."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._stdout = sys.stdout
        self._print = say if as_json else self._line

    def checked(self, step: CheckStep) -> None:
        self._print(f"{step.state:8} {step.name:12} {printable(step.found)}")
        if step.advice:
            say(f"{step.name}: {step.advice}")

    def _line(self, text: str) -> None:
        print(text, file=self._stdout, flush=True)


def _list(request: ListDevicesRequest, as_json: bool) -> None:
    with listening() as listener:
        result = list_devices(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
        return
    in_use = any(one.holder for one in result.devices)
    columns = ("device", "transport", "description", "tables", "in use by")[: 5 if in_use else 4]
    print_table(columns, [_row(one)[: len(columns)] for one in result.devices])


def _row(one: ListedDevice) -> tuple[str, ...]:
    description = f"{one.description} (emulated)" if one.emulated else one.description
    return one.name, one.transport, description, ", ".join(one.tables) or "-", one.holder or ""


def _add(request: AddDeviceRequest, as_json: bool) -> None:
    from hwbench.devices.description import describe

    with listening() as listener:
        result = add_device(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        print_table(("", ""), describe(result.probe), header=False)
    say(f"wrote {result.file}; next: hwbench devices check {result.device.name}")


def _check(request: CheckDeviceRequest, as_json: bool) -> None:
    with listening(StepPrinter(as_json)) as listener:
        result = check_device(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    if not result.ok:
        raise typer.Exit(DeviceError.exit_status)
    say(f"next: hwbench profile --device {result.device}")


def _prepare(request: PrepareDeviceRequest, as_json: bool) -> None:
    with listening() as listener:
        values = prepare_device(request, listener).to_json()
    emit(values if as_json else {key: value for key, value in values.items() if value != ""}, as_json=as_json)
    say(f"next: hwbench devices check {request.name}")


def _remove(request: RemoveDeviceRequest, as_json: bool) -> None:
    with listening() as listener:
        result = remove_device(request, listener)
    table = {"device": result.device, "removed": ", ".join(result.removed)}
    emit(result.to_json() if as_json else table, as_json=as_json)


def _show(request: ShowDeviceRequest, as_json: bool) -> None:
    with listening() as listener:
        result = show_device(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        print_table(("", ""), [row for row in result.rows() if row[1]], header=False)


def _trust(request: TrustDeviceRequest, as_json: bool) -> None:
    with listening() as listener:
        result = trust_device(request, listener)
    emit(result.to_json(), as_json=as_json)


app = add_group(
    program,
    "devices",
    ListDevicesRequest,
    _list,
    help="List the devices of the workspace and their latency tables; subcommands add, check and remove one.",
)
add_command(app, "list", ListDevicesRequest, _list)
add_command(app, "add", AddDeviceRequest, _add)
add_command(app, "show", ShowDeviceRequest, _show)
add_command(app, "check", CheckDeviceRequest, _check)
add_command(app, "prepare", PrepareDeviceRequest, _prepare)
add_command(app, "trust", TrustDeviceRequest, _trust)
add_command(app, "remove", RemoveDeviceRequest, _remove)
