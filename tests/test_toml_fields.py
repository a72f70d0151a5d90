from pathlib import Path

import pytest

from hwbench.errors import InvalidFile
from hwbench.toml_fields import Fields


@pytest.fixture
def read(tmp_path: Path):
    def _read(text: str) -> Fields:
        path = tmp_path / "a.toml"
        path.write_text(text, encoding="utf-8")
        return Fields.read(path)

    return _read


def test_typed_values_and_scalars_as_lists(read):
    fields = read(
        'schema = 1\nname = "x"\none = 8\nmany = [1, 2.5]\n[inner]\nname = "y"\n[[row]]\nn = 1\n[[row]]\nn = 2\n'
    )
    assert fields.text("name") == "x"
    assert fields.integers("one") == (8,)
    assert fields.numbers("many") == (1.0, 2.5)
    assert fields.table("inner").text("name") == "y"
    assert [row.integer("n") for row in fields.tables("row")] == [1, 2]
    assert fields.integer("absent", 3) == 3
    assert list(fields.tables("none", required=False)) == []
    fields.done()


def test_the_mark_that_some_editors_write_before_utf_8_is_no_part_of_the_file(read):
    assert read('\ufeffschema = 1\r\nname = "é"\r\n').text("name") == "é"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 2\n", "schema = 1"),
        ("schema = 'one'\n", "whole number"),
        ("", "'schema' is missing"),
        ("schema = [", "cannot be read as TOML"),
        ("schema = 1\nwidht = 3\n", "did you mean 'width'"),
        ("schema = 1\nwidth = true\n", "width: expected a whole number"),
        ("schema = 1\nwidth = -1\n", "at least 0"),
        ("schema = 1\nwidth = 1.5\n", "whole number"),
    ],
)
def test_what_does_not_validate_names_file_and_key(read, text, said):
    def one_width() -> None:
        fields = read(text)
        fields.integer("width", 1)
        fields.done()

    with pytest.raises(InvalidFile, match=said) as caught:
        one_width()
    assert "a.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "bound"),
    [("1e300", r"at most 1e\+18"), ("inf", r"at most 1e\+18"), (f"{10**19}", r"at most 1e\+18"), ("-1", "at least 0")],
)
def test_the_bound_that_a_number_breaks_is_named(read, text, bound):
    with pytest.raises(InvalidFile, match=f"v: expected a number, {bound}, got"):
        read(f"schema = 1\nv = {text}\n").number("v")


@pytest.mark.parametrize("text", ["schema = 1\nv = []\n", "schema = 1\nv = [3, 3]\n", "schema = 1\nv = [1, 'a']\n"])
def test_lists_hold_different_values_of_one_type(read, text):
    with pytest.raises(InvalidFile, match="v: expected"):
        read(text).integers("v")


def test_no_file_and_no_text(tmp_path):
    with pytest.raises(InvalidFile, match="cannot be read"):
        Fields.read(tmp_path / "absent.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile, match="cannot be read"):
        Fields.read(tmp_path / "b.toml")


def test_where_a_nested_error_lies_is_said(read):
    fields = read("schema = 1\n[[stages]]\ndepth = 1\n[[stages]]\ndepht = 1\n")
    second = list(fields.tables("stages"))[1]
    with pytest.raises(InvalidFile, match=r"stages 2\.depth' is missing; the file has depht"):
        second.integer("depth")
    with pytest.raises(InvalidFile, match="expected a table"):
        read("schema = 1\na = 1\n").table("a")
    with pytest.raises(InvalidFile, match="at least one table"):
        list(read("schema = 1\na = 1\n").tables("a"))


def test_a_key_that_was_looked_for_is_among_those_that_a_misspelt_one_is_told(read):
    fields = read("schema = 1\n[input]\nspan_ss = 2.0\n").table("input")
    assert "span_s" not in fields
    with pytest.raises(InvalidFile, match=r"unknown key 'span_ss' in \[input\]; did you mean 'span_s'\? known: span_s"):
        fields.done()
