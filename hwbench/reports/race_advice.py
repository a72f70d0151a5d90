"""What lets the best networks of a study race, or why there is no race."""

from __future__ import annotations

from hwbench.reports import commands
from hwbench.reports.result import StoredResult


def race_advice(result: StoredResult) -> str:
    """The command that lets networks race, with a clause ahead of it; where no other network is left, the clause alone.

    One network is no race. Others may be found where more are within the budget than were tried.
    """
    tried = {one.architecture for one in result.history if result.is_predicted_within(one)}
    measured = {one.architecture for one in result.measured}
    within = {one.architecture for one in result.measured if result.is_measured_within(one, result.settings.budget_ms)}
    if len(within | (tried - measured)) > 1:
        return f"let the best ones race: {commands.let_race(result)}"
    if result.feasible > len(tried):
        return (
            "one network that was tried is within the budget, which is no race; try more and let the best ones race: "
            f"{commands.let_more_race(result)}"
        )
    return "no other network is within the budget, so there is no race; a larger --budget has more"
