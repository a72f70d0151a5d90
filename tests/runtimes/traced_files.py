"""What the runner tells of the operations of a file, beside the executions that its loader traced."""

import statistics

from hwbench.runtimes.machine import Machine
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_runner import RunnerSession


def expect_traced_time(path, folder, samples):
    """Number and time of the operations are those of the executions that were traced."""

    class Keeping(Machine):
        def load(self, path, options):
            self.model = super().load(path, options)
            return self.model

    (folder / "list.tsv").write_text(f"a\t{path}\n")
    machine = Keeping()
    options = Options(list=str(folder / "list.tsv"), profile=True, warm_ms=1.0, min_samples=samples)
    (told,) = (answer for answer in RunnerSession(options, machine).answers() if answer["kind"] == "ops")
    assert {count for _, _, count in told["ops"]} == {len(machine.model.traced_ns)}
    assert told["total_ns"] == round(statistics.median(machine.model.traced_ns))
