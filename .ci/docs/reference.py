"""The parts of the reference pages that are made from the code: commands, results, errors, devices, spaces, the API."""

import importlib
import inspect
import re

from result_keys import FunctionKeys

import hwbench
import hwbench.errors
from hwbench.api import API
from hwbench.api.requests import RequestField, fields_of

# Below each marker, for who reads a page as it is.
NOTE = "*`make docs` makes this part from the code; it stands in the built page alone.*"
MARKER = re.compile(rf"^<!-- generated: (\w+) -->\n{re.escape(NOTE)}$", re.MULTILINE)
_SECTIONS = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Class attributes):$", re.MULTILINE)
# The listener that hears everything and does nothing, as ``repr`` writes it.
_ADDRESS = re.compile(r"<hwbench\.api\.listener\.Listener object at 0x[0-9a-f]+>")
_ENTRY = re.compile(r"^    (\*{0,2}[\w.]+): ", re.MULTILINE)


def filled(markdown: str) -> str:
    """A page with its markers and their notes replaced; raises KeyError for a marker that nothing makes."""
    return MARKER.sub(lambda found: GENERATORS[found[1]](), markdown)


def commands() -> str:
    """Every command with its arguments and options, as ``--help`` says them."""
    return "\n\n".join(_command(words, command) for words, command in _commands())


def results() -> str:
    """The keys that results of the Python API print."""
    parts = [
        f"### {name}\n\n{_summary(value)}\n\nKeys: {', '.join(f'`{key}`' for key in keys)}."
        for name, value in _api("to_json")
        if (keys := FunctionKeys(value.to_json, value).names())
    ]
    return "\n\n".join(parts)


def errors() -> str:
    """The tree of errors as a table."""
    rows = [
        (f"{'&emsp;' * depth}`{error.__name__}`", str(error.exit_status), _summary(error))
        for error, depth in _tree(hwbench.errors.HwbenchError)
    ]
    return _table(("error", "exit status", "meaning"), rows)


def devices() -> str:
    """The keys of a device file, and the options of each transport."""
    from hwbench.devices import device, transports

    _, _, example = (device.__doc__ or "").partition("\n\n")
    parts = [f"```toml\n# profiles/pi5/device.toml\n{example.strip()}\n```"]
    for name in transports.names():
        kind = transports.get(name)
        rows = [
            (f"`{key}`", expected.__name__, "yes" if key in kind.required else "")
            for key, expected in kind.options.items()
        ]
        parts += [f"### `[{name}]`", _table(("key", "type", "required"), rows) if rows else "No keys."]
    return "\n\n".join(parts)


def families() -> str:
    """The axes of each family: the keys of a stage of a space."""
    from hwbench.spaces.families import families as known

    parts = []
    for name in known.names():
        family = known.get(name)
        rows = [
            (f"`{axis.name}`", what, _default(axis), _summary(axis.read))
            for what, axes in (("list of choices", family.axes), ("single value", family.constants))
            for axis in axes
        ]  # fmt: skip
        parts.append(f"### `{name}`\n\n{_prose(family)}\n\n{_table(('key', 'takes', 'default', 'values'), rows)}")
    return "\n\n".join(parts)


def api() -> str:
    """Functions first, each with its request and its result; then everything else that ``import hwbench`` gives."""
    names = sorted(API, key=lambda name: (not inspect.isfunction(getattr(hwbench, name)), name.lower()))
    return "\n\n".join(_documented(name, getattr(hwbench, name)) for name in names)


GENERATORS = {
    one.__name__: one for one in (commands, results, errors, devices, families, api)
}  # fmt: skip


def _commands():
    import typer

    importlib.import_module("hwbench.cli.commands")
    from hwbench.cli.main import app

    def walk(group, before):
        for name, command in sorted(group.commands.items()):
            yield f"{before} {name}", command
            if hasattr(command, "commands"):
                yield from walk(command, f"{before} {name}")

    return list(walk(typer.main.get_command(app), "hwbench"))


def _command(words, command) -> str:
    from hwbench.cli.main import app  # noqa: F401  # registered

    context = command.make_context(words, [], resilient_parsing=True)
    records = [one.get_help_record(context) for one in command.params]
    rows = [(f"`{label}`", text) for label, text in filter(None, records)]
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "")
    return (
        f"## {words}\n\n```text\n{usage}\n```\n\n{_escaped(text)}\n\n{_table(('argument or option', 'meaning'), rows)}"
    )


def _api(method: str):
    for name in sorted(API):
        value = getattr(hwbench, name)
        if inspect.isclass(value) and hasattr(value, method):
            yield name, value


def _tree(error, depth=0):
    yield error, depth
    for below in error.__subclasses__():
        if below.__module__ == error.__module__:
            yield from _tree(below, depth + 1)


def _documented(name, value) -> str:
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        parameters = "".join(f"    {one},\n" for one in _parameters(signature))
        head = f"```text\nhwbench.{name}(\n{parameters}) -> {signature.return_annotation}\n```".replace("'", "")
        return f"## hwbench.{name}\n\n{head}\n\n{_prose(value)}"
    parts = [f"## hwbench.{name}\n\n{_prose(value)}" if inspect.isclass(value) else f"## hwbench.{name}"]
    if inspect.isclass(value) and _is_request(value):
        parts.append(_table(("field", "type", "default", "meaning"), [_field(one) for one in fields_of(value)]))
    elif inspect.isclass(value):
        parts.append(_members(value))
    return "\n\n".join(part for part in parts if part)


def _parameters(signature: inspect.Signature):
    """The parameters as they are written, with the star before the first that goes by name only."""
    starred = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield _ADDRESS.sub("SILENT", str(one))


def _is_request(value) -> bool:
    fields = getattr(value, "__dataclass_fields__", {})
    return bool(fields) and all("option" in field.metadata for field in fields.values())


def _field(one: RequestField) -> tuple[str, str, str, str]:
    kind = f"tuple of {one.type.__name__}" if one.many else one.type.__name__
    default = "required" if one.required else f"`{one.default!s}`" if one.default != () else "none"
    return f"`{one.name}`", kind, default, _escaped(one.option.help)


def _members(value) -> str:
    fields = getattr(value, "__dataclass_fields__", {})
    rows = [(f"`{name}`", f"`{field.type}`".replace("|", "\\|")) for name, field in fields.items()]
    methods = [
        (f"`{name}{inspect.signature(method)}`".replace("'", "").replace("|", "\\|"), _summary(method))
        for name, method in vars(value).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]
    tables = [
        _table(("field", "type"), rows) if rows else "",
        _table(("method", "what it does"), methods) if methods else "",
    ]
    return "\n\n".join(table for table in tables if table)


def _default(axis) -> str:
    from hwbench.spaces.axes import write

    return "required" if axis.default is None else f"`{write(axis.default)}`"


def _summary(value) -> str:
    text = inspect.getdoc(value) or ""
    return _escaped(" ".join(text.split("\n\n")[0].split()))


def _prose(value) -> str:
    """A docstring in Google's form as Markdown."""
    text, *sections = _SECTIONS.split(inspect.getdoc(value) or "")
    parts = [_escaped(text.strip())]
    for name, body in zip(sections[::2], sections[1::2]):
        entries, rest = _entries(body)
        parts += [f"**{name}**", entries, _escaped(rest)]
    return "\n\n".join(part for part in parts if part)


def _entries(body: str) -> tuple[str, str]:
    lines = body.strip("\n").splitlines()
    end = next((at for at, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    block, rest = "\n".join(lines[:end]), "\n".join(lines[end:])
    names = _ENTRY.split(block)
    if len(names) == 1:
        return " ".join(block.split()), rest
    return "\n".join(
        f"* `{name}`: {_escaped(' '.join(text.split()))}" for name, text in zip(names[1::2], names[2::2])
    ), rest


def _table(head, rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(" ".join(cell.split()) for cell in line) + " |" for line in lines)


def _escaped(text: str) -> str:
    """Text of a docstring as Markdown: literals between single backquotes, no HTML, no cell that ends early."""
    return text.replace("``", "`").replace("<", "&lt;").replace("|", "\\|")
