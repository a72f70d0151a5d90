"""The program ``hwbench`` itself, without its commands: they import it and register with it."""

from __future__ import annotations

import typer

from hwbench import __version__

app = typer.Typer(
    name="hwbench",
    help="Hardware-aware search and profiling of video models: measure blocks on a device, search within a latency "
    "budget, train, export int8, measure the file.",
    epilog="Exit status: 0 done; 1 unexpected; 2 usage or a file that does not validate; 3 device unreachable or lost; "
    "4 budget infeasible; 5 a check failed; 130 ended by Ctrl-C, 143 by SIGTERM, 129 with its terminal: in order; the "
    "last line says whether the same command goes on. Every command takes --json; --debug (anywhere) shows tracebacks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def version(value: bool) -> None:
    """Prints the version and ends."""
    if value:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def options(
    show: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version and exit."),
) -> None:
    """Options of the program itself."""
