import json

import pytest

from hwbench.runtimes import protocol
from hwbench.runtimes.protocol import (
    Begin,
    End,
    Error,
    FileChecked,
    Load,
    MalformedLine,
    Operations,
    Options,
    Start,
    Visit,
    leaves,
    parse_line,
)

VISIT = {
    "kind": "session",
    "id": "0",
    "round": 1,
    "samples_ns": [10, 11],
    "cpu_ns": 20,
    "wall_ns": 22,
    "nivcsw": 0,
    "majflt": 0,
    "maxrss_kb": 9,
    "clock_khz": 0,
    "temp_mc": 45000,
    "at_ns": 5,
}


def test_every_kind_is_read():
    start = '{"kind":"start","runner":"native","versions":{"executorch":"1.5.1"},"threads":1,"cpus":[1],"pid":7}'
    assert parse_line(start) == Start("native", {"executorch": "1.5.1"}, 1, (1,), 7)
    assert parse_line('{"kind":"begin","id":"a","round":2}') == Begin("a", 2)
    assert parse_line('{"kind":"load","id":"a","load_ns":5,"first_ns":6}') == Load("a", 5, 6)
    assert parse_line(json.dumps(VISIT)) == Visit("0", 1, (10, 11), 20, 22, 0, 0, 9, 0, 45000, 5)
    assert parse_line(json.dumps({**VISIT, "kind": "sentinel", "id": "sentinel"})).id == protocol.SENTINEL
    ops = parse_line(
        '{"kind":"ops","id":"a","total_ns":9,"ops":[["DELEGATE_CALL",8.5,3],["native_call_mean.out",1,3]]}'
    )
    assert ops == Operations("a", 9, (("DELEGATE_CALL", 8.5, 3), ("native_call_mean.out", 1.0, 3)))
    assert leaves(ops.ops) == (("mean.out", 1.0, 3),)
    assert parse_line('{"kind":"check","shape":[2,5],"load_ns":1,"first_ns":1}') == FileChecked((2, 5), 1, 1)
    assert parse_line('{"kind":"error","id":"a","stage":"load","reason":"x"}') == Error("a", "load", "x")
    assert parse_line('{"kind":"end"}') == End()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "[]",
        "3",
        "{}",
        '{"kind":"dance"}',
        '{"kind":"begin","id":3,"round":0}',
        '{"kind":"begin","id":"a"}',
        '{"kind":"begin","id":"a","round":-1}',
        '{"kind":"begin","id":"a","round":true}',
        '{"kind":"load","id":"a","load_ns":0,"first_ns":6}',
        '{"kind":"load","id":"a","load_ns":1.5,"first_ns":6}',
        '{"kind":"ops","id":"a","total_ns":9,"ops":[["x",1]]}',
        '{"kind":"ops","id":"a","total_ns":9,"ops":[["x",NaN,1]]}',
        '{"kind":"start","runner":"native","versions":[],"threads":1,"cpus":[1],"pid":7}',
        '{"kind":"session"',
        "\x00" * 10,
    ],
)
def test_anything_else_is_malformed(line):
    with pytest.raises(MalformedLine):
        parse_line(line)


@pytest.mark.parametrize("name", [name for name in VISIT if name != "kind"])
@pytest.mark.parametrize("value", [None, "x", -1, [0], {}])
def test_a_session_with_a_wrong_field_is_malformed(name, value):
    if isinstance(value, str) and name == "id":
        return
    with pytest.raises(MalformedLine):
        parse_line(json.dumps({**VISIT, name: value}))


@pytest.mark.parametrize("samples", [[], [0], [5, 0], [5, -1], [1.5], ["1"], None])
def test_a_sample_of_zero_never_gets_through(samples):
    with pytest.raises(MalformedLine):
        parse_line(json.dumps({**VISIT, "samples_ns": samples}))


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"begin","id":"' + "x" * protocol.MAX_LINE_CHARS + '","round":1}',
        100_000 * "[",
        '{"kind":"start","runner":"r","versions":{},"threads":1,"cpus":[' + 10_000 * "1," + '1],"pid":7}',
        '{"kind":"start","runner":"r","versions":{"a":1},"threads":1,"cpus":[1],"pid":7}',
        '{"kind":"ops","id":"a","total_ns":9,"ops":["abc"]}',
        '{"kind":"ops","id":"a","total_ns":9,"ops":[["x",true,1]]}',
        json.dumps({**VISIT, "at_ns": 2**63}),
    ],
)
def test_19_13_a_line_without_bounds_is_malformed(line):
    with pytest.raises(MalformedLine) as caught:
        parse_line(line)
    assert len(str(caught.value)) < 1000


def test_19_13_texts_are_one_line_that_can_be_stored_and_shown():
    said = parse_line(json.dumps({"kind": "error", "id": "a", "stage": "run", "reason": "no\nmemory \x1b[2J\ud800\0"}))
    assert said == Error("a", "run", "no memory [2J")
    assert parse_line(json.dumps({**VISIT, "at_ns": 2**63 - 1})).at_ns == 2**63 - 1


def test_arguments_are_those_that_differ_from_the_defaults():
    assert Options().argv() == ()
    options = Options(list="/a b", rounds=3, min_ms=1.5, cpus=(1, 0), profile=True)
    assert options.argv() == ("--list", "/a b", "--rounds", "3", "--min-ms", "1.5", "--cpus", "1,0", "--profile")
