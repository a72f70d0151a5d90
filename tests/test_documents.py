"""JSON and TOML of others: it reads, or it is a ``ValueError``."""

import pytest

from hwbench.documents import MAX_DEPTH, read_json, read_toml


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", 100_000 * "[", 100_000 * '{"a":', "1" + 400 * "0", 5000 * "9", "-" + 400 * "9"),
        '{"a": [' + 400 * "9" + "]}",
        60 * "[" + 60 * "]",
    ],
)
def test_19_13_json_that_does_not_do(text):
    with pytest.raises(ValueError):
        read_json(text)


@pytest.mark.parametrize("value", [100_000 * "[", 100_000 * "{a=", 5000 * "9", "0x" + 5000 * "f", "", "1979-13-41"])
def test_19_13_toml_that_does_not_do(value):
    with pytest.raises(ValueError):
        read_toml(f"a = {value}")


def test_what_does():
    deepest = (MAX_DEPTH - 2) * "[" + (MAX_DEPTH - 2) * "]"
    assert read_json('{"a": [1, 2.5, "b", null, -18446744073709551616]}') == {"a": [1, 2.5, "b", None, -(2**64)]}
    assert read_json(deepest) is not None
    assert read_json(b'"a"') == "a"
    assert read_toml("a = 1\n[b]\nc = [true]\n") == {"a": 1, "b": {"c": [True]}}
