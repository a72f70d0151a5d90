import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwbench.api.prediction import profiled_classes
from hwbench.api.profile_request import parse_precisions, parse_variants
from hwbench.errors import InvalidFile, InvalidValue, NotMeasured, WorkspaceError
from hwbench.latency import (
    LatencyRow,
    LatencyTable,
    Role,
    context_chains,
    has_variants,
    load_table,
    profile_command,
    table_path,
)
from hwbench.spaces import read_space
from hwbench.specs import LatencyStats, Outcome, Precision, Target, Workload
from hwbench.studies.profiling_plan import space_workloads
from hwbench.workspace import Workspace, shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
PARTS = list(SPACE.parts(Precision.INT8, num_classes=8))
PUBLISHED = sorted((shipped() / "profiles").glob("*/*.csv"))


@pytest.fixture
def table(device) -> LatencyTable:
    full = device.table(PARTS[1:], context_chains(PARTS))
    reason = "XNNPACK said:\n no, thanks"
    failed = LatencyRow(Role.BLOCK, PARTS[0], Outcome.BUILD, None, "2026-01-31", reason=reason)
    return LatencyTable(full.target, full.precision, [*full, failed])


@pytest.fixture
def path(table, tmp_path) -> Path:
    table.write(tmp_path / "t.csv")
    return tmp_path / "t.csv"


def test_a_table_survives_the_disk(table, path):
    back = LatencyTable.read(path, target=table.target, precision=Precision.INT8)
    assert back.text == table.text
    assert len(back) == len(table) == len(PARTS) + len(context_chains(PARTS))
    for row in table.rows(Role.BLOCK):
        assert back[row.workload].median_s == pytest.approx(row.stats.median_s, rel=1e-3)
        assert row.workload in back
    assert back.target == table.target
    assert not back.emulated


def test_the_text_is_sorted_and_does_not_depend_on_the_order_of_the_rows(table):
    rows = list(table)
    np.random.default_rng(0).shuffle(rows)
    again = LatencyTable(table.target, table.precision, rows)
    assert again.text == table.text
    keys = [line.split(",")[:2] for line in table.text.splitlines()[2:]]
    assert keys == sorted(keys, key=lambda k: (["block", "chain", "network"].index(k[0]), k[1]))


def test_seconds_have_four_significant_digits(target):
    stats = LatencyStats(0.00123456789, 0.001, 0.002, 0.0012, 0.0013, 3, 30)
    row = LatencyRow(Role.BLOCK, PARTS[0], Outcome.OK, stats, "2026-01-31")
    assert ",0.001235," in LatencyTable(target, Precision.INT8, [row]).text


def test_the_same_bytes_in_every_process(table, path):
    code = (
        "import sys; from pathlib import Path; from hwbench.latency import LatencyTable\n"
        "print(LatencyTable.read(Path(sys.argv[1])).text, end=''); assert 'torch' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert out == table.text


def test_what_was_not_measured_names_the_nearest_rows_and_the_command(table):
    other = Workload.parse("x3d_i32_m96_o32_k1x3x3_relu@1x32x8x16x16/int8/auto")
    with pytest.raises(NotMeasured) as caught:
        table[other]
    assert "x3d_i32_m64_o32_k1x3x3_relu@1x32x8x16x16/int8/auto" in str(caught.value)
    assert "hwbench profile --device local --space SPACE --precision int8" in str(caught.value)
    assert other not in table


def test_a_failed_row_says_how_it_failed(table):
    with pytest.raises(NotMeasured, match="ended as build: XNNPACK said:"):
        table[PARTS[0]]
    assert PARTS[0] not in table
    assert PARTS[0].key not in [row.workload.key for row in table.rows(Role.BLOCK)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# hwbench latency table", "# something else", "expected a first line"),
        ("schema=1", "schema=2", "expected schema 1"),
        ("target=local/", "target=local-", "expected DEVICE/RUNTIME-VERSION"),
        ("precision=int8", "precision=int4", "expected fp32, fp16, bf16 or int8"),
        ("precision=int8", "precision=fp32", "expected rows in fp32"),
        ("emulated=no", "emulated=maybe", "yes or no"),
        ("median_s", "mean_s", "got 'mean_s'"),
        ("\nblock,", "\nblok,", "line 3: 'blok' is not a valid Role"),
        ("\nblock,", "\nnetwork,", "cannot have the role network"),
        (",ok,", ",fine,", "'fine' is not a valid Outcome"),
        (",ok,", ",crash,", "c0ffee"),
        ("2026-01-31", "yesterday", "expected a date"),
        ("/int8/auto", "/int8", "expected BLOCK>BLOCK@INPUT"),
        (",3,30,", ",0,30,", "at least one session"),
        (",3,30,", ",3,30,9,", "expected 13 columns, got 14"),
        ("c0ffee", "decaf", "2 different conditions"),
    ],
)
def test_a_damaged_table_is_one_clear_error(path, old, new, said):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if new == ",crash,":
        # numbers of a failed row are of no use and are not read
        assert len(LatencyTable.read(path).rows(Role.BLOCK)) == len(PARTS) - 2
        return
    with pytest.raises(InvalidFile, match=said) as caught:
        LatencyTable.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("number", ["0", "-0.001", "nan", "inf", "", "fast"])
def test_a_latency_is_a_positive_number(path, number):
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if ",ok," in line)
    cells = lines[at].split(",")
    cells[3] = number
    path.write_text("\n".join([*lines[:at], ",".join(cells), *lines[at + 1 :]]) + "\n")
    with pytest.raises(InvalidFile, match=f"line {at + 1}"):
        LatencyTable.read(path)


def test_two_rows_of_one_workload_are_refused(path):
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[2]]) + "\n")
    with pytest.raises(InvalidFile, match="has two rows"):
        LatencyTable.read(path)


def test_a_path_may_be_text(table, tmp_path):
    table.write(f"{tmp_path}/text.csv")
    assert LatencyTable.read(f"{tmp_path}/text.csv").text == table.text
    with pytest.raises(InvalidFile, match=r"no latency table .*missing\.csv"):
        LatencyTable.read(f"{tmp_path}/missing.csv")


def test_every_prefix_of_a_table_is_read_whole_or_refused(path, table):
    text = path.read_text()
    full = {row.workload.key for row in table}
    for end in range(0, len(text), 97):
        path.write_text(text[:end])
        try:
            keys = {row.workload.key for row in LatencyTable.read(path)}
        except InvalidFile:
            continue
        assert keys <= full


def test_no_text_at_all(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\x00\xff\xfe")
    for name, said in (
        ("t.csv", "cannot be read"),
        ("absent.csv", "no latency table .*; measure one: hwbench profile"),
    ):
        with pytest.raises(InvalidFile, match=said):
            LatencyTable.read(tmp_path / name)
    with pytest.raises(InvalidFile, match="cannot be read"):
        LatencyTable.read(tmp_path)


def test_a_table_of_another_target_is_refused(path):
    with pytest.raises(InvalidFile, match=r"expected a table of s9/executorch-1.5.1/t1, this one is of local/"):
        LatencyTable.read(path, target=Target("s9", "executorch", "1.5.1", 1))
    with pytest.raises(InvalidFile, match="expected a table in fp32"):
        LatencyTable.read(path, precision=Precision.FP32)


def test_tables_lie_with_their_device(table, tmp_path):
    workspace = Workspace.create(tmp_path)
    path = table_path(workspace.root, table.target, Precision.INT8)
    assert path == tmp_path / "profiles" / "local" / "executorch-1.5.1.int8.t1.csv"
    table.write(path)
    assert load_table(workspace, table.target, Precision.INT8).text == table.text
    with pytest.raises(NotMeasured, match="hwbench profile --device s9 --space x3d-tiny --precision int8 --threads 2"):
        load_table(workspace, Target("s9", "executorch", "1.5.1", 2), Precision.INT8, "x3d-tiny")


def test_a_renamed_table_is_noticed(table, tmp_path):
    workspace = Workspace.create(tmp_path)
    other = Target("s9", "executorch", "1.5.1", 1)
    table.write(table_path(workspace.root, other, Precision.INT8))
    with pytest.raises(InvalidFile, match=r"of local/.*; move it away, then run hwbench profile --device s9 again$"):
        load_table(workspace, other, Precision.INT8)
    measure = "hwbench profile --device s9 --space x3d-tiny --precision int8 --classes 20"
    with pytest.raises(InvalidFile, match=f"of local/.*; move it away, then measure: {measure}$"):
        load_table(workspace, other, Precision.INT8, "x3d-tiny", classes=20)


def test_a_table_of_another_machine_is_not_taken_for_this_one(table, tmp_path, monkeypatch):
    elsewhere = tmp_path / "shipped"
    monkeypatch.setattr("hwbench.latency.table.shipped", lambda: elsewhere)
    phone = Target("s9", "executorch", "1.5.1", 1)
    for target in (table.target, phone):
        LatencyTable(target, Precision.INT8, table).write(table_path(elsewhere, target, Precision.INT8))
    workspace = Workspace.create(tmp_path / "work")
    assert load_table(workspace, phone, Precision.INT8).target == phone
    with pytest.raises(NotMeasured, match="--device local"):
        load_table(workspace, table.target, Precision.INT8)


def test_the_command_that_fills_a_table_names_its_runtime():
    command = profile_command(Target("local", "torch", "2.14.1", 2), Precision.FP32, "x3d-tiny")
    assert command == "hwbench profile --device local --space x3d-tiny --precision fp32 --threads 2 --runtime torch"


def test_the_command_that_fills_a_table_measures_its_heads(device):
    parts = list(SPACE.parts(Precision.INT8, num_classes=20))
    head = next(part for part in parts if part.blocks[-1].role.gives_logits)
    of_twenty = device.table(parts, [], [])
    assert of_twenty.num_classes == 20
    assert of_twenty.command("x3d-tiny").endswith("--space x3d-tiny --precision int8 --classes 20")
    of_eight = device.table(PARTS, [], [])
    assert "--classes" not in of_eight.command("x3d-tiny")
    assert of_eight.command("x3d-tiny", head).endswith("--classes 20")


def test_without_a_measured_head_there_is_no_number_of_classes_to_choose(device):
    unfinished = device.table([part for part in PARTS if not part.blocks[-1].role.gives_logits], [], [])
    with pytest.raises(InvalidFile, match=r"no head of x3d-tiny yet; .*: hwbench profile .*--space x3d-tiny") as caught:
        profiled_classes(unfinished, "x3d-tiny")
    assert "--classes" not in str(caught.value)
    of_two = device.table({*PARTS, *SPACE.parts(Precision.INT8, num_classes=20)}, [], [])
    with pytest.raises(InvalidFile, match="numbers of classes: 8, 20; choose one with --classes"):
        profiled_classes(of_two, "x3d-tiny")


def test_where_there_is_no_table_the_command_measures_the_heads_that_were_asked_for(tmp_path, target):
    with pytest.raises(NotMeasured, match=r"--space x3d-tiny --precision int8 --classes 20$"):
        load_table(Workspace.create(tmp_path), target, Precision.INT8, "x3d-tiny", classes=20)


def test_rows_are_consistent_from_the_start(target):
    stats = LatencyStats(1, 1, 1, 1, 1, 1, 1)
    with pytest.raises(InvalidValue, match="a failed one has none"):
        LatencyRow(Role.BLOCK, PARTS[0], Outcome.CRASH, stats, "2026-01-31")
    with pytest.raises(InvalidValue, match="a failed one has none"):
        LatencyRow(Role.BLOCK, PARTS[0], Outcome.OK, None, "2026-01-31")


def test_a_place_that_cannot_be_written_is_a_clear_error(table, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="a part of the path is a file"):
        table.write(tmp_path / "file" / "t.csv")


def test_every_published_table_validates_and_lies_where_it_belongs():
    for path in PUBLISHED:
        table = LatencyTable.read(path)
        assert table_path(shipped(), table.target, table.precision) == path
        assert table.text == path.read_text()


def test_the_nearest_rows_are_those_of_nearly_the_same_size(target):
    stats = LatencyStats(1e-3, 9e-4, 2e-3, 9e-4, 1.1e-3, 3, 30)
    wanted = Workload.parse("x3d_i24_m54_o24_k3x3x3_swish@1x24x4x56x56/int8/auto")
    near = [
        "x3d_i24_m72_o24_k3x3x3_swish@1x24x4x56x56/int8/auto",
        "x3d_i24_m54_o24_k3x3x3_hswish@1x24x4x56x56/int8/auto",
        "x3d_i24_m54_o24_k3x3x3_swish@1x24x8x56x56/int8/auto",
    ]
    far = [
        "x3d_i24_m54_o24_k1x3x3_swish@1x24x4x56x56/int8/auto",  # another kernel, one field
        "x3d_i24_m54_o24_k3x3x3_swish@1x24x16x112x112/int8/auto",  # one field of the key, and 16 times the work
        "x3d_i192_m54_o192_k3x3x3_swish@1x192x4x56x56/int8/auto",
        "head_i24_m54_d2048_o8_kglobal_relu@1x24x4x56x56/int8/auto",
    ]
    rows = [LatencyRow(Role.BLOCK, Workload.parse(k), Outcome.OK, stats, "2026-01-31", "c") for k in [*far, *near]]
    table = LatencyTable(target, Precision.INT8, rows)
    assert table.nearest(wanted) == near
    with pytest.raises(NotMeasured, match=f"nearest rows: {re.escape(', '.join(near))}; measure it: hwbench profile"):
        table[wanted]


@pytest.mark.parametrize("variant", ["auto", "segments"])
def test_the_command_of_a_missing_row_measures_it(variant):
    parts = list(SPACE.parts(Precision.INT8, num_classes=11))
    for part in (next(filter(has_variants, parts)), parts[-1]):
        wanted = replace(part, variant=variant) if has_variants(part) else part
        empty = LatencyTable(Target("s9", "executorch", "1.5.1", 2), Precision.INT8, [])
        words = empty.explain(wanted, "x3d-tiny").rpartition("measure it: ")[2].split()
        given = dict(zip(words[2::2], words[3::2]))
        assert words[:2] == ["hwbench", "profile"]
        assert (given["--device"], given["--threads"], given["--space"]) == ("s9", "2", "x3d-tiny")
        (precision,) = parse_precisions(given["--precision"])
        variants = parse_variants(given.get("--variants", ""))
        assert wanted in space_workloads(SPACE, precision, int(given.get("--classes", 8)), 0, variants)
