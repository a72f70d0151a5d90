"""What results.json says, as tables in Markdown."""

from collections.abc import Mapping

Cell = Mapping[str, Mapping[str, float]]
Results = Mapping[str, Mapping[str, Mapping[str, Cell]]]

# Networks to calibrate with, where a table shows one number of them.
SHOWN = "8"


def print_tables(results: Results) -> None:
    """One table of the bars, and one of everything by number of rows."""
    print("| machine | rows | median | within 5 % | within 10 % | coverage |\n" + "| --- " * 6 + "|")
    for machine, precisions in results.items():
        for precision, found in precisions.items():
            for name in ("all", "a-optimal gaussian 300"):
                if SHOWN in found.get(name, {}):
                    print(f"| {machine} {precision} | {name} | {_figures(found[name][SHOWN])} |")
    names = dict.fromkeys(name for precisions in results.values() for found in precisions.values() for name in found)
    for machine, precisions in results.items():
        for precision, found in precisions.items():
            print(f"\n| {machine} {precision} | 4 networks | 8 | 20 |\n" + "| --- " * 4 + "|")
            for name in names:
                if cell := found.get(name):
                    print(f"| {name} | {' | '.join(_short(cell.get(number)) for number in ('4', '8', '20'))} |")


def _figures(values: Mapping[str, float]) -> str:
    shares = " | ".join(f"{100 * values[name]:.0f}" for name in ("within_5", "within_10", "coverage"))
    return f"{100 * values['median_error']:.2f} | {shares}"


def _short(values: Mapping[str, float] | None) -> str:
    """Median error, share within 5 % and coverage, in per cent."""
    if values is None:
        return ""
    text = f"{100 * values['median_error']:.1f}, {100 * values['within_5']:.0f}, {100 * values['coverage']:.0f}"
    return text + (f" ({100 * values['refused']:.0f} refused)" if values["refused"] >= 0.005 else "")
