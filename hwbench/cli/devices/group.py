"""The group of ``hwbench devices``; without a subcommand it is ``list``."""

from __future__ import annotations

import typer

from hwbench.cli.main import app as program
from hwbench.cli.output import Json
from hwbench.errors import InvalidValue

app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def devices(context: typer.Context, as_json: Json = False) -> None:
    """List the devices of the workspace and their latency tables; subcommands add, check and remove one."""
    if context.invoked_subcommand is None:
        from hwbench.cli.devices.listing import list_devices

        list_devices(as_json)
    elif as_json:
        raise InvalidValue(f"--json comes last: hwbench devices {context.invoked_subcommand} ... --json")


program.add_typer(app, name="devices")
