"""Commands made from requests: what is typed, what help says, and what the request gets."""

import math
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hwbench.api.requests import fields_of, option, request
from hwbench.cli.generated import add_command, add_group, with_values
from hwbench.cli.main import main
from hwbench.errors import InvalidValue


@request
class CookRequest:
    """Cook a dish from what there is.

    It is served at once.
    """

    dish: str = option(argument=True, help="Name of the dish.")
    side: tuple[str, ...] = option(default=(), argument=True, help="What comes beside it.")
    guests: int = option(default=2, min=1, max=12, help="People at the table.")
    salt: float = option(default=0.5, min=0.0, help="Grams of salt.")
    book: Path = option(default=Path("recipes.txt"), help="The file with recipes.")
    spice: tuple[str, ...] = option(default=(), help="A spice; may be repeated.")
    page: tuple[int, ...] = option(default=(3, 5), help="A page of the book; may be repeated.")
    pot: str = option(help="Which pot.", metavar="POT")
    oven: str | None = option(default=None, alone="any", help="An oven; alone: any.")
    heat: str = option(default="low", choices=("low", "high"), help="How hot.")
    fast: bool = option(default=False, help="Hurry.")
    wash: bool = option(default=True, help="Wash up.")
    taste: bool = option(default=True, flags=("--try/--no-try",), help="Try it.")

    def validate(self) -> None:
        if self.fast and self.heat == "low":
            raise InvalidValue("--fast needs --heat high")


@request
class ListDishesRequest:
    """List the dishes that there are."""

    long: bool = option(default=False, help="With their recipes.")


@pytest.fixture
def kitchen():
    """A program with one command, with a group and one command in it; and what their functions were given."""
    given = []
    program = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

    def run(made, as_json):
        given.append((made, as_json))

    add_command(program, "cook", CookRequest, run)
    dishes = add_group(program, "dishes", ListDishesRequest, run, help="The dishes; subcommands cook one.")
    add_command(dishes, "cook", CookRequest, run)
    return program, given


def typed(kitchen, *words):
    """Exit status and the exception, what was printed, and what the function was given."""
    program, given = kitchen
    given.clear()
    done = CliRunner().invoke(
        program, list(words), prog_name="kitchen", env={"COLUMNS": "160", "TERMINAL_WIDTH": "160"}
    )
    return done, given[0] if given else None


@pytest.mark.parametrize("before", [("cook",), ("dishes", "cook")])
def test_defaults_of_the_command_are_those_of_the_request(kitchen, before):
    done, given = typed(kitchen, *before, "soup", "--pot", "big")
    assert done.exit_code == 0, done.output
    assert given == (CookRequest(dish="soup", pot="big"), False)


def test_every_kind_of_field_is_read(kitchen):
    words = "soup bread rice --guests 3 --salt 1 --book b.txt --spice a --spice b --page 7 --pot p --oven gas"
    done, given = typed(kitchen, "cook", *words.split(), "--heat", "high", "--fast", "--no-wash", "--no-try", "--json")
    assert done.exit_code == 0, done.output
    assert given == (
        CookRequest(
            dish="soup",
            side=("bread", "rice"),
            guests=3,
            salt=1.0,
            book=Path("b.txt"),
            spice=("a", "b"),
            page=(7,),
            pot="p",
            oven="gas",
            heat="high",
            fast=True,
            wash=False,
            taste=False,
        ),
        True,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pot", "p"), "Missing argument"),
        (("soup",), "Missing option '--pot'"),
        (("soup", "--pot", "p", "--no-fast"), "No such option: --no-fast"),
    ],
)
def test_what_the_command_line_refuses(kitchen, words, said):
    done, given = typed(kitchen, "cook", *words)
    assert (done.exit_code, given) == (2, None)
    assert said in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--guests", "0"), "--guests: expected 1 to 12, got 0"),
        (("--guests", "13"), "--guests: expected 1 to 12, got 13"),
        (("--guests", "two"), "--guests: expected a whole number, got 'two'"),
        (("--guests", "1" * 400), "--guests: expected 1 to 12"),
        (("--salt", "-1"), "--salt: expected at least 0, got -1.0"),
        (("--salt", "1" * 400), "--salt: expected a finite number, got inf"),
        (("--heat", "warm"), "--heat: expected low or high, got 'warm'"),
        (("--fast",), "--fast needs --heat high"),
    ],
)
def test_what_the_request_refuses(kitchen, words, said):
    done, given = typed(kitchen, "cook", "soup", "--pot", "p", *words)
    assert (str(done.exception), given) == (said, None)


def test_a_number_that_fits_into_no_64_bits_is_refused_by_its_field():
    with pytest.raises(InvalidValue, match="--salt: expected a finite number, got inf"):
        CookRequest(dish="soup", pot="p", salt=10**5000)
    for guests in (2**63, -(10**5000)):
        with pytest.raises(InvalidValue, match=r"--guests: expected 1 to 12$"):
            CookRequest(dish="soup", pot="p", guests=guests)
        with pytest.raises(InvalidValue, match="--page: expected a whole number of at most 9223372036854775807"):
            CookRequest(dish="soup", pot="p", page=(guests,))


@pytest.mark.parametrize("salt", [math.nan, math.inf])
def test_a_number_of_a_request_is_finite(salt):
    with pytest.raises(InvalidValue, match=f"--salt: expected a finite number, got {salt}"):
        CookRequest(dish="soup", pot="p", salt=salt)


@pytest.mark.parametrize(
    ("words", "oven"),
    [
        (("--oven",), "any"),
        (("--oven", "--json"), "any"),
        (("--oven=gas",), "gas"),
        (("--oven", "gas"), "gas"),
        ((), None),
    ],
)
def test_an_option_without_a_value(kitchen, words, oven):
    _, given = typed(kitchen, "cook", "soup", "--pot", "p", *words)
    assert given[0].oven == oven


@request
class PackRequest:
    """Pack dishes."""

    box: Path = option(argument=True, help="Where they go.")
    dishes: tuple[Path, ...] = option(default=(), argument=True, help="What goes into it.")
    list: Path = option(default=Path("list.txt"), help="What is written down.")


@pytest.mark.parametrize("text", ["", " ", "\t  "])
@pytest.mark.parametrize(
    ("field", "before"), [("box", ()), ("dishes", ("box", "soup")), ("list", ("box", "--list")), ("list", ("--list",))]
)
def test_a_path_that_is_empty_or_of_blanks_is_refused_in_the_words_of_the_request(field, before, text):
    given = []
    program = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    add_command(program, "pack", PackRequest, lambda made, as_json: given.append(made))
    done = CliRunner().invoke(program, [*before, text])
    with pytest.raises(InvalidValue, match="expected a value, got an empty one; is a shell variable unset") as refused:
        PackRequest(**{"box": "box", field: [text] if field == "dishes" else text})
    assert (str(done.exception), given) == (str(refused.value), [])


def test_a_folder_of_blanks_can_still_be_named(kitchen):
    _, given = typed(kitchen, "cook", "soup", "--pot", "p", "--book", "./ ")
    assert given[0].book == Path(" ")


def test_an_option_that_took_the_argument_for_its_value_is_named(kitchen):
    done, given = typed(kitchen, "cook", "--pot", "p", "--oven", "soup")
    assert (str(done.exception), given) == (
        "DISH is missing: --oven took 'soup' for its value; where 'soup' is meant as DISH, put it before --oven",
        None,
    )
    _, given = typed(kitchen, "cook", "--pot", "p", "--oven=any", "soup")
    assert (given[0].dish, given[0].oven) == ("soup", "any")
    done, given = typed(kitchen, "cook", "--pot", "p", "--oven")
    assert ("Missing argument" in done.output, given) == (True, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench --sustained zoo:x3d-xs", "MODEL is missing: --sustained took 'zoo:x3d-xs' for its TIME; where"),
        ("bench --sustained 15min --device local", "where '15min' is meant as MODEL, put it before --sustained\n"),
        ("devices add --adb SERIAL1", "NAME is missing: --adb took 'SERIAL1' for its SERIAL; where 'SERIAL1' is meant"),
    ],
)
def test_options_that_may_stand_alone_come_behind_the_argument(capsys, words, said):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_behind_two_dashes_nothing_is_an_option():
    assert with_values(["--oven", "--", "--oven"], {"--oven": "x"}) == ["--oven=x", "--", "--oven"]
    assert with_values(["a", "--oven"], {"--oven": ""}) == ["a", "--oven="]
    assert with_values(["a", "--oven"], {}) == ["a", "--oven"]


def test_help_is_the_documentation_of_the_request(kitchen):
    done, _ = typed(kitchen, "cook", "--help")
    text = " ".join(done.output.split())
    assert "Cook a dish from what there is. It is served at once." in text
    for one in fields_of(CookRequest):
        assert one.option.help in text
        assert one.option.argument or one.label in text
    assert "[default: 2; 1<=x<=12]" in text
    assert "[default: recipes.txt]" in text
    assert "[default: 3, 5]" in text
    assert "--wash / --no-wash" in text
    assert "--try / --no-try" in text
    assert "--pot POT" in text
    assert "--no-fast" not in text
    assert "--spice <str> A spice; may be repeated. --page" in text  # neither an empty default nor a list's type
    assert "--book <path>" in text
    assert "cook [OPTIONS] {dish} [side]..." in text


def test_a_group_without_a_subcommand_is_a_command(kitchen):
    done, given = typed(kitchen, "dishes", "--long", "--json")
    assert (done.exit_code, given) == (0, (ListDishesRequest(long=True), True))
    done, _ = typed(kitchen, "dishes", "--help")
    assert "The dishes; subcommands cook one." in done.output
    assert "cook  Cook a dish from what there is." in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--json", "cook", "soup", "--pot", "p"), "--json comes last: kitchen dishes cook ... --json"),
        (("--long", "cook", "soup", "--pot", "p"), "--long does not go with kitchen dishes cook; its own options come"),
    ],
)
def test_options_of_a_group_before_a_subcommand_are_refused(kitchen, words, said):
    done, given = typed(kitchen, "dishes", *words)
    assert given is None
    assert said in str(done.exception)
