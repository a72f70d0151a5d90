"""What a device said as a reason is text in the table: no formula, no escape code, and the same after each reading."""

import csv
import re
from pathlib import Path

import pytest

from hwbench.errors import InvalidFile
from hwbench.latency import LatencyRow, LatencyTable, Role, compare_tables
from hwbench.specs import LatencyStats, Outcome, Precision, Session, Target, Workload

KEY = "x3d_i24_m54_o24_k3x3x3_swish@1x24x4x14x14/fp32/auto"
TARGET = Target("board", "executorch", "1.5.1")
HEADER = "role,key,outcome,median_s,p10_s,p90_s,ci_low_s,ci_high_s,sessions,samples,measured_on,conditions,reason"
TITLE = f"# hwbench latency table; schema=1; target={TARGET.key}; precision=fp32; emulated=no"


def table(reason: str) -> LatencyTable:
    row = LatencyRow(Role.BLOCK, Workload.parse(KEY), Outcome.CRASH, None, "2026-01-31", "", reason)
    return LatencyTable(TARGET, Precision.FP32, [row])


def reason_in(text: str) -> str:
    return list(csv.reader(text.splitlines()))[-1][-1]


def read(tmp_path: Path, text: str) -> LatencyTable:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return LatencyTable.read(path)


@pytest.mark.parametrize(
    "reason",
    [
        '=HYPERLINK("http://a.b","click")',
        "=1+1",
        "+1",
        "-1+cmd|' /C calc'!A0",
        "@SUM(A1)",
        "\t=1",
        "\r\n=1",
        "\x1b=1",
        "\u202e=1",
        " =1",
        "'=1",
        "''=1",
        "\uff1d1",
    ],
)
def test_19_17_a_formula_is_text_in_the_table(tmp_path, reason):
    text = table(reason).text
    written = reason_in(text)
    assert written.startswith("'")
    assert written.isprintable()
    again = read(tmp_path, text)
    (row,) = again
    assert f"'{row.reason}" == written
    assert again.text == text


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("killed by \x1b[31mSIGKILL\x1b[0m", "killed by [31mSIGKILL[0m"),
        ("a\x00b\x07c\x9bd", "abcd"),
        ("half \ud800 a pair", "half a pair"),
        ("two\nlines\u2028three", "two lines three"),
        ("'quoted' as ever", "'quoted' as ever"),
        ("a = b", "a = b"),
    ],
)
def test_19_17_a_reason_is_one_line_that_can_be_shown(tmp_path, reason, expected):
    text = table(reason).text
    assert reason_in(text) == expected
    again = read(tmp_path, text)
    assert [row.reason for row in again] == [expected]
    assert again.text == text


@pytest.mark.parametrize("reason", ["=1+1", "+1", "-1", "@A1", "'=1", "it's"])
def test_19_17_tables_of_before_open_and_say_the_same(tmp_path, reason):
    """As the rows were written until now: as they came."""
    old = f"{TITLE}\n{HEADER}\nblock,{KEY},crash,,,,,,,,2026-01-31,,{reason}\n"
    (row,) = first = read(tmp_path, old)
    assert row.reason == reason.removeprefix("'" if reason == "'=1" else "")
    assert [one.reason for one in read(tmp_path, first.text)] == [row.reason]


def test_19_17_tables_of_the_repository_stay_byte_for_byte(tmp_path):
    root = Path(__file__).parents[2] / "experiments"
    found = [path for path in sorted(root.rglob("*.csv")) if path.read_text(encoding="utf-8").startswith("# hwbench")]
    assert found
    for path in found[:: max(len(found) // 6, 1)]:
        assert LatencyTable.read(path).text == path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("end", ["", "; rows:adaptive", "; between_runs=0.005; form:stream"])
def test_a_table_saved_by_a_spreadsheet_keeps_what_its_first_line_says(tmp_path, end, quote):
    written = table("").text.replace(TITLE, TITLE + end)
    saved = written.replace(TITLE + end, f"{quote}{TITLE}{end}{quote}{',' * HEADER.count(',')}")
    assert saved != written
    assert read(tmp_path, saved).adaptive == ("adaptive" in end)
    assert read(tmp_path, saved).text == read(tmp_path, written).text


@pytest.mark.parametrize("blank", ["", "  ", "," * HEADER.count(",")])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_table_saved_by_an_editor_is_the_same_table(tmp_path, blank, mark, line_end):
    written = table("").text
    title, header, row = written.splitlines()
    lines = [title, header, blank, row, blank, ""]
    assert read(tmp_path, mark + line_end.join(lines)).text == written


def test_lines_without_a_value_count_where_a_damaged_line_is_named(tmp_path):
    title, header, row = table("").text.splitlines()
    with pytest.raises(InvalidFile, match="line 5: expected 13 columns, got 12"):
        read(tmp_path, "\n".join([title, header, row, "", row.removesuffix(",")]))


@pytest.mark.parametrize("lines", [[TITLE], [TITLE, "", ""]])
def test_a_table_without_columns_is_refused(tmp_path, lines):
    with pytest.raises(InvalidFile, match="expected the columns role,key"):
        read(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    "at",
    [
        "2026-02-30T10:00Z",
        "2026-13-01T10:00Z",
        "2026-01-31T24:00Z",
        "0000-01-31T10:00Z",
        "\u0662026-01-31T22:15Z",
        "2026-01-31 22:15",
    ],
)
def test_a_scale_of_a_time_that_no_calendar_has_is_refused_with_the_name_of_its_file(tmp_path, at):
    day = f"; scale:1.0621; scale_low:1.0512; scale_high:1.0734; scale_at:{at}; occasion_sd:0.043; occasions:3"
    with pytest.raises(InvalidFile, match=r"table\.csv: scale: expected a time such as 2026-01-31T22:15Z, got "):
        read(tmp_path, table("").text.replace(TITLE, TITLE + day))


@pytest.mark.parametrize("day", ["2026-13-45", "2026-02-30", "0000-01-01", "\u0662026-01-31", "2026-W01-1", "20260131"])
def test_a_day_that_no_calendar_has_is_refused_with_the_line(tmp_path, day):
    with pytest.raises(InvalidFile, match=r"table\.csv: line 3: latency row: expected a date such as 2026-01-31, got "):
        read(tmp_path, table("").text.replace("2026-01-31", day))
    aa = f"; aa=0.0012; aa_low=-0.003; aa_high=0.005; aa_pairs=8; aa_median_s=0.00207; aa_on={day}"
    with pytest.raises(InvalidFile, match=r"table\.csv: A/A test: expected a date such as 2026-01-31, got "):
        read(tmp_path, table("").text.replace(TITLE, TITLE + aa))


NUMBERS = {"median_s": "0.00207", "p10_s": "0.00204", "p90_s": "0.00211", "ci_low_s": "0.00206", "ci_high_s": "0.00208"}
WITH_LATENCY = NUMBERS | {"sessions": "5", "samples": "50"}


def measured(tmp_path: Path, name: str = "", **changed: str) -> LatencyTable:
    """A table of one row with a latency, as it is read from a file of some name."""
    cells = ",".join((WITH_LATENCY | changed).values())
    text = f"{TITLE}\n{HEADER}\nblock,{KEY},ok,{cells},2026-01-31,,\n"
    (tmp_path / name).mkdir(exist_ok=True)
    return read(tmp_path / name, text)


@pytest.mark.parametrize(
    "changed",
    [
        {"median_s": "2.07"},
        {"median_s": "0.00205"},
        {"median_s": "0.00209"},
        {"ci_low_s": "0.002075"},
        {"ci_high_s": "0.002065"},
        {"p10_s": "0.00212"},
        {"p10_s": "0"},
        dict.fromkeys(NUMBERS, "1e-300"),
    ],
    ids=str,
)
def test_a_row_whose_median_is_not_in_its_interval_is_refused(tmp_path, changed):
    written = WITH_LATENCY | changed
    got = re.escape(", ".join(f"{name}={written[name]}" for name in NUMBERS))
    with pytest.raises(InvalidFile, match=rf"table\.csv: line 3: .* and median_s inside its interval, got {got}; "):
        measured(tmp_path, **changed)
    assert measured(tmp_path).rows(Role.BLOCK)[0].stats.median_s == 0.00207


@pytest.mark.parametrize("column", NUMBERS)
@pytest.mark.parametrize("number", ["0.002_07", "\u0660.00207", "2.07ms", "nan", "inf", "1e308", ""])
def test_what_is_no_number_of_a_table_is_refused(tmp_path, column, number):
    with pytest.raises(InvalidFile, match=r"table\.csv: line 3: expected a number such as 0\.00207, got '"):
        measured(tmp_path, **{column: number})


@pytest.mark.parametrize("column", ["sessions", "samples"])
@pytest.mark.parametrize("count", ["5_0", "\u0665", "5.0", "-5", "9999999999", ""])
def test_what_is_no_count_of_a_table_is_refused(tmp_path, column, count):
    with pytest.raises(InvalidFile, match=r"table\.csv: line 3: expected a whole number such as 50, got '"):
        measured(tmp_path, **{column: count})


@pytest.mark.parametrize(
    "further",
    [
        "between_runs=1e300",
        "between_runs=0.00_5",
        "aa=0.0012; aa_low=-0.003; aa_high=1e300; aa_pairs=8; aa_median_s=0.00207; aa_on=2026-01-31",
        "aa=0.0012; aa_low=-0.003; aa_high=0.005; aa_pairs=1_0; aa_median_s=0.00207; aa_on=2026-01-31",
        "scale:1e300; scale_low:1e300; scale_high:1e300; scale_at:2026-01-31T22:15Z; occasion_sd:0.043; occasions:3",
        "scale:1.06; scale_low:1e-300; scale_high:1.07; scale_at:2026-01-31T22:15Z; occasion_sd:0.043; occasions:3",
        "scale:1.06; scale_low:1.05; scale_high:1.07; scale_at:2026-01-31T22:15Z; occasion_sd:1e6; occasions:3",
        "scale:1.06; scale_low:1.05; scale_high:1.07; scale_at:2026-01-31T22:15Z; occasion_sd:0.043; occasions:1_0",
    ],
)
def test_what_is_no_number_of_a_first_line_is_refused(tmp_path, further):
    with pytest.raises(InvalidFile, match=r"table\.csv: expected (between_runs|the A/A test|the scale) as .*; restore"):
        read(tmp_path, table("").text.replace(TITLE, f"{TITLE}; {further}"))


def test_tables_at_the_ends_of_what_is_read_are_compared(tmp_path):
    least = {"median_s": "1e-12", "p10_s": "1e-12", "ci_low_s": "0"}
    before, after = measured(tmp_path, "before"), measured(tmp_path, "after", **least, p90_s="1e9", ci_high_s="1e9")
    for pair in ((before, after), (after, before)):
        (row,) = compare_tables(*pair).rows
        assert 0 <= row.chance <= 1


def test_a_median_of_sessions_outside_of_most_samples_is_written_and_read(tmp_path):
    """Two short sessions while the device was slow, and a long one: p10 and p90 are of all samples together."""
    sessions = [Session((0.002,) * 100), Session((0.0025,) * 3), Session((0.0026,) * 3)]
    stats = LatencyStats.of(sessions)
    assert stats.median_s > stats.p90_s
    row = LatencyRow(Role.BLOCK, Workload.parse(KEY), Outcome.OK, stats, "2026-01-31")
    text = LatencyTable(TARGET, Precision.FP32, [row]).text
    assert read(tmp_path, text).text == text
