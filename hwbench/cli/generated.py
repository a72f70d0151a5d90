"""Commands made from requests: each field is an option or an argument, with its default, bounds and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from hwbench.api.requests import RequestField, checked_value, fields_of
from hwbench.cli.completion import completion_of
from hwbench.cli.output import Json
from hwbench.cli.signals import ANEW, saying_after
from hwbench.cli.usage import USAGE
from hwbench.errors import InvalidValue
from hwbench.printable import shown

Request = TypeVar("Request")
Run = Callable[[Request, bool], None]
# What the same command does after it was interrupted, in words; a function where that depends on the request.
After = str | Callable[[Request], str]
_JSON = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
_NUMBERS = {int: "a whole number", float: "a number"}
_CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def add_command(
    app: typer.Typer, name: str, request: type[Request], run: Run[Request], *, after: After[Request] = ANEW
) -> Callable[..., None]:
    """Registers a command whose options are the fields of a request, and ``--json``.

    Args:
        app: Where the command goes: the program, or a group of it.
        name: How it is typed.
        request: Its docstring is the help of the command.
        run: Gets the request and whether JSON is asked for; calls the API and prints.
        after: What is said where a signal ends the command: ``GOES_ON`` for one that keeps what it has done.

    Returns:
        The command as a function, its options as keyword arguments.
    """
    return app.command(name, cls=command_class(request))(command_function(request, run, after))


def add_group(
    program: typer.Typer,
    name: str,
    request: type[Request],
    run: Run[Request],
    *,
    after: After[Request] = ANEW,
    help: str | None = None,
) -> typer.Typer:
    """Registers a group of commands, which is a command itself where no subcommand is typed.

    Args:
        program: Where the group goes.
        name: How it is typed.
        request: Its fields are the options of the group; no arguments, which would be read as subcommands.
        run: As of ``add_command``.
        after: As of ``add_command``; of the group alone.
        help: Of the group; default: the docstring of the request.

    Returns:
        The group; its commands register with ``add_command(group, ...)``.
    """
    alone = command_function(request, run, after)

    def group(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is None:
            alone(**values)
        else:
            _refuse_options(context)

    _sign(group, [_CONTEXT, *_parameters(request)], help or request.__doc__)
    app = typer.Typer(
        cls=_group_class(request), invoke_without_command=True, add_completion=False, rich_markup_mode=None
    )
    app.callback()(group)
    program.add_typer(app, name=name)
    return app


def command_function(request: type[Request], run: Run[Request], after: After[Request] = ANEW) -> Callable[..., None]:
    """The function that typer reads the options of a request from."""
    lists = [one.name for one in fields_of(request) if one.many]

    def command(**values: Any) -> None:
        as_json = values.pop("as_json")
        asked = request(**values | {name: tuple(values[name] or ()) for name in lists})
        with saying_after(after if isinstance(after, str) else after(asked)):
            run(asked, as_json)

    _sign(command, _parameters(request), request.__doc__)
    return command


def command_class(request: type[Any]) -> type[TyperCommand]:
    """The class of a command, which reads an option without a value where the request says what that means, and
    refuses an empty path, and what is no number, in the words of the request."""
    alone = {one.label: one.option.alone for one in fields_of(request) if one.option.alone is not None}

    class Typed(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            try:
                typed, _, _ = self.make_parser(ctx).parse_args(with_values(args, alone))
                _refuse_empty(request, typed)
                return list(super().parse_args(ctx, with_values(args, alone)))
            except typer.BadParameter as error:
                missing = hasattr(error, "param_type")  # as of MissingParameter, which typer does not export
                if missing and isinstance(error.param, TyperArgument):
                    _refuse_taken(args, request)
                elif not missing:
                    _refuse_numbers(request, typed)
                raise
            except USAGE as error:
                error.ctx = error.ctx or ctx  # an option without its value does not know its command
                raise

    return Typed


def _group_class(request: type[Any]) -> type[TyperGroup]:
    """The class of a group, which refuses what is no number in the words of the request."""

    class TypedGroup(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            try:
                typed, _, _ = self.make_parser(ctx).parse_args([*args])
                return list(super().parse_args(ctx, args))
            except typer.BadParameter as error:
                if not hasattr(error, "param_type"):
                    _refuse_numbers(request, typed)
                raise
            except USAGE as error:
                error.ctx = error.ctx or ctx
                raise

    return TypedGroup


def _refuse_taken(words: list[str], request: type[Any]) -> None:
    """Where an argument is missing, names an option that may stand alone and took the word behind it for its value.

    The word may be either: the argument in the wrong place, or a value of the option, where the argument was forgotten.
    """
    argument = next(one for one in fields_of(request) if one.option.argument)
    options = {one.label: one.option for one in fields_of(request) if one.option.alone is not None}
    for word, taken in pairwise(words):
        if word in options and not taken.startswith("-"):
            how = options[word]
            value, place = (how.metavar or "value").strip("[]"), argument.option.metavar or argument.label
            raise InvalidValue(
                f"{place} is missing: {word} took {taken!r} for its {value}; "
                f"where {taken!r} is meant as {place}, put it before {word}"
            )


def _refuse_numbers(request: type[Any], typed: Mapping[str, Any]) -> None:
    """Refuses the first text that is no number, or a number beyond the bounds of its field."""
    for one, text in _texts(request, typed):
        if one.type in _NUMBERS:
            try:
                number = one.type(text)
            except ValueError:
                raise InvalidValue(f"{one.label}: expected {_NUMBERS[one.type]}, got {shown(text)}") from None
            checked_value(one, number)


def _refuse_empty(request: type[Any], typed: Mapping[str, Any]) -> None:
    """Refuses the first path that is empty or of blanks, as of a variable that is not set.

    typer would make a path of it: the current folder, or a folder whose name nobody sees.
    """
    for one, text in _texts(request, typed):
        if one.type is Path:
            checked_value(one, text)


def _texts(request: type[Any], typed: Mapping[str, Any]) -> Iterator[tuple[RequestField, str]]:
    """Each text that was typed, behind the field whose value it is, in the order of the request."""
    for one in fields_of(request):
        given = typed.get(one.name)
        for text in given if isinstance(given, list | tuple) else [given]:
            if isinstance(text, str):  # the parser has a mark of its own for none
                yield one, text


def with_values(arguments: list[str], alone: dict[str, str]) -> list[str]:
    """Arguments with a value for each of some options that stand without one: ``--adb --json`` is ``--adb= --json``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    valued = [*arguments]
    for index, word in enumerate(arguments[:end]):
        if word in alone and (index + 1 == len(arguments) or arguments[index + 1].startswith("-")):
            valued[index] = f"{word}={alone[word]}"
    return valued


def parameter_of(one: RequestField) -> inspect.Parameter:
    """One field as typer wants a parameter."""
    kind: Any = list[one.type] if one.many else one.type  # type: ignore[name-defined]
    default: Any = inspect.Parameter.empty if one.required else one.default
    if one.many and not one.required:
        default = list(one.default) or None
    if default is None:
        kind = kind | None
    annotation = Annotated[kind, _described(one)]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy of printed values less some keys."""
    return {key: value for key, value in values.items() if key not in names}


def _described(one: RequestField) -> Any:
    """The words and bounds of a parameter."""
    how = one.option
    number = int if one.type is int else float
    bounds = {side: number(bound) for side, bound in (("min", how.minimum), ("max", how.maximum)) if bound is not None}
    listed = one.many and not how.argument  # typer would print the type of the list
    metavar = how.metavar or (f"<{one.type.__name__.lower()}>" if listed else None)
    described: dict[str, Any] = {
        "help": how.help,
        "metavar": metavar,
        "autocompletion": completion_of(one),
        **bounds,
    }
    if how.argument:
        return typer.Argument(**described)
    # A switch that is off by default has no --no- form.
    flags = how.flags or ((one.label,) if one.type is not bool or one.default is False else ())
    return typer.Option(*flags, **described)


def _refuse_options(context: typer.Context) -> None:
    """Refuses options of a group that were typed before the name of a subcommand."""
    command = f"{context.command_path} {context.invoked_subcommand}"
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            typed = parameter.opts[0]
            if typed == "--json":
                raise InvalidValue(f"--json comes last: {command} ... --json")
            raise InvalidValue(f"{typed} does not go with {command}; its own options come last: {command} --help")


def _parameters(request: type[Any]) -> list[inspect.Parameter]:
    return [*map(parameter_of, fields_of(request)), _JSON]


def _sign(command: Callable[..., None], parameters: list[inspect.Parameter], help: str | None) -> None:
    """Gives a function the parameters that typer reads, and its help."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = help
