import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from hwbench.deploy.records import from_plain, to_plain
from hwbench.errors import InvalidValue
from hwbench.specs import Precision


@dataclass(frozen=True)
class Inner:
    count: int
    share: float | None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise InvalidValue("count must not be negative")


@dataclass(frozen=True)
class Outer:
    name: str
    precision: Precision
    flag: bool
    pair: tuple[int, int]
    names: tuple[str, ...]
    counts: Mapping[str, int]
    inner: Inner
    maybe: Inner | None = None


GOOD = Outer("a", Precision.INT8, True, (1, 2), (), {"x": 1}, Inner(3, 0.5), Inner(0, None))


def plain() -> dict[str, object]:
    return json.loads(json.dumps(to_plain(GOOD)))


def test_a_record_comes_back_as_it_was() -> None:
    assert from_plain(Outer, plain()) == GOOD
    assert from_plain(Outer, plain() | {"maybe": None}).maybe is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"extra": 1}, "unknown key 'extra'"),
        ({"nane": "a"}, "did you mean 'name'"),
        ({"inner": {"count": 1, "share": 1.0, "coumt": 2}}, "unknown key 'inner.coumt'; did you mean 'count'"),
        ({"inner": {"count": 1}}, "key 'inner.share' is missing"),
        ({"inner": {"count": -1, "share": 1.0}}, "inner: count must not be negative"),
        ({"inner": {"count": True, "share": 1.0}}, "inner.count: expected a value of type int, got True"),
        ({"inner": {"count": 1.5, "share": 1.0}}, "inner.count: expected a value of type int"),
        ({"inner": {"count": 1, "share": "much"}}, "inner.share: expected a value of type float"),
        ({"inner": []}, "inner: expected an object"),
        ({"inner": None}, "inner: expected an object"),
        ({"name": None}, "name: expected a value of type str"),
        ({"precision": "int4"}, "precision: expected one of fp32, fp16, bf16, int8, got 'int4'"),
        ({"precision": ["int8"]}, "precision: expected one of fp32, fp16, bf16, int8"),
        ({"flag": 1}, "flag: expected a value of type bool"),
        ({"pair": [1]}, "pair: expected a list of 2"),
        ({"names": "abc"}, "names: expected a list"),
        ({"names": ["a", 2]}, "names[1]: expected a value of type str"),
        ({"counts": []}, "counts: expected an object"),
        ({"counts": {"x": "1"}}, "counts.x: expected a value of type int"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        from_plain(Outer, plain() | change)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", list(plain()))
def test_every_key_must_be_there(name: str) -> None:
    values = plain()
    del values[name]
    with pytest.raises(InvalidValue, match=f"key '{name}' is missing"):
        from_plain(Outer, values)


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_a_record_is_an_object(value: object) -> None:
    with pytest.raises(InvalidValue, match="expected an object"):
        from_plain(Outer, value)
