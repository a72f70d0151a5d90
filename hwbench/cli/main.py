"""The command line. stdout is data, stderr is talk; exit statuses are those of ``hwbench.errors``. Loads no torch."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from hwbench import __version__
from hwbench.cli.signals import ENDINGS, ending_in_order
from hwbench.errors import HwbenchError, WorkspaceError
from hwbench.interpreter import safe_children
from hwbench.printable import printable_lines
from hwbench.workspace import refusal

# As a shell reports a process that Ctrl-C ended.
INTERRUPTED = 130
_GOES_ON = "the same command goes on where it stopped"

app = typer.Typer(
    name="hwbench",
    help="Hardware-aware search and profiling of video models: measure blocks on a device, search within a latency "
    "budget, train, export int8, measure the file.",
    epilog="Exit status: 0 done; 1 unexpected; 2 usage or a file that does not validate; 3 device unreachable or lost; "
    "4 budget infeasible; 5 a check failed; 130 ended by Ctrl-C, 143 by SIGTERM, 129 with its terminal: in order, and "
    "the same command goes on. Every command takes --json; --debug (anywhere) shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
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


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its status; an error is one message on stderr, without a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if debug:
        arguments = [a for a in arguments if a != "--debug"]
    import hwbench.cli.commands  # noqa: F401  # registers the commands

    with ending_in_order():
        _run(arguments, debug)


def _run(arguments: list[str], debug: bool) -> None:
    try:
        with safe_children():
            app(arguments, prog_name="hwbench", standalone_mode=True)
    except HwbenchError as error:
        _fail(str(error), error.exit_status, debug)
    except sqlite3.Error as error:
        _fail(f"database: {error}", WorkspaceError.exit_status, debug)
    except SystemExit as end:
        # typer makes a silent exit of a KeyboardInterrupt
        if end.code in ENDINGS:
            print(f"hwbench: {ENDINGS[end.code]}; {_GOES_ON}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        _fail(f"{ENDINGS[INTERRUPTED]}; {_GOES_ON}", INTERRUPTED, False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        refused = refusal(error, Path(".")) if isinstance(error, OSError) else None
        if refused is not None:
            _fail(str(refused), refused.exit_status, debug)
        text = str(error).strip().splitlines() or [""]
        _fail(f"unexpected {type(error).__name__}: {text[0]} (add --debug for the traceback)", 1, debug)


def _fail(message: str, status: int, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"hwbench: {printable_lines(message)}", file=sys.stderr)
    sys.exit(status)
