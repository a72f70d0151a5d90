"""Runs one command line. stdout is data, stderr is talk; exit statuses are those of ``hwbench.errors``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from hwbench.cli.app import app
from hwbench.cli.signals import ENDINGS, INTERRUPTED, Ended, ending_in_order
from hwbench.cli.stdout import stdout_for_results
from hwbench.cli.usage import USAGE, refusal
from hwbench.errors import HwbenchError, UsageError
from hwbench.interpreter import safe_children, sharing_cores
from hwbench.printable import printable_lines
from hwbench.workspace import explaining

__all__ = ["INTERRUPTED", "app", "main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its status; an error is one message on stderr, without a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if debug:
        arguments = [a for a in arguments if a != "--debug"]
    with ending_in_order(), sharing_cores():
        try:
            import hwbench.cli.commands  # noqa: F401  # registers the commands

            _run(arguments, debug)
        except SystemExit as end:
            # typer makes a silent exit of a KeyboardInterrupt
            if end.code in ENDINGS:
                after = f"; {end.after}" if isinstance(end, Ended) else ""
                print(f"hwbench: {ENDINGS[end.code]}{after}", file=sys.stderr)
            raise
        except KeyboardInterrupt:  # before a command has begun, or while its error is told
            _fail(ENDINGS[INTERRUPTED], INTERRUPTED, False)


def _run(arguments: list[str], debug: bool) -> None:
    try:
        with safe_children(), explaining(), stdout_for_results():
            status = app(arguments, prog_name="hwbench", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except HwbenchError as error:
        _fail(str(error), error.exit_status, debug)
    except USAGE as error:
        if not (message := refusal(error)):
            error.show()  # the help, where nothing was typed
            sys.exit(error.exit_code)
        _fail(message, UsageError.exit_status, debug)
    except typer.Abort:  # the end of the input
        _fail("aborted", 1, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        _fail(f"unexpected {type(error).__name__}: {text[0]} (add --debug for the traceback)", 1, debug)


def _fail(message: str, status: int, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"hwbench: {printable_lines(message)}", file=sys.stderr)
    sys.exit(status)
