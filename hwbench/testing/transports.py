"""The suite that every transport passes: a test class with a fixture ``transport`` inherits ``TransportConformance``.

The commands are POSIX shell, so the suite runs on every Linux and Android device.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hwbench.devices import Transport
from hwbench.errors import DeviceError, InvalidValue, WorkspaceError

# What quoting gets wrong: blanks, quotes, dollars, backslashes, line ends, wildcards, other scripts, nothing at all.
ARGUMENTS = [
    "two words",
    "'single'",
    '"double"',
    "$HOME `id`",
    "back\\slash",
    "two\nlines",
    "*",
    "\u0416\u65e5",
    "",
    "-n",
    ";|&",
]


class TransportConformance:
    """Inherit, and give a fixture ``transport`` that opens one to a device."""

    def test_it_names_the_device(self, transport: Transport) -> None:
        assert transport.identity == transport.identity
        assert ":" in transport.identity
        assert transport.identity.isprintable()

    def test_status_and_streams_are_kept_apart(self, transport: Transport) -> None:
        result = transport.run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_s=20)
        assert (result.status, result.stdout, result.stderr, result.timed_out) == (7, "out\n", "err\n", False)
        assert not result.ok
        assert transport.run(["true"], timeout_s=20).ok

    def test_arguments_arrive_as_they_are(self, transport: Transport) -> None:
        result = transport.run(["sh", "-c", r'for a; do printf "<%s>" "$a"; done', "sh", *ARGUMENTS], timeout_s=20)
        assert result.stdout == "".join(f"<{argument}>" for argument in ARGUMENTS)

    def test_environment_and_stdin(self, transport: Transport) -> None:
        result = transport.run(
            ["sh", "-c", 'cat; echo "$HWBENCH_X"'], timeout_s=20, env={"HWBENCH_X": "a b"}, stdin="in\n"
        )
        assert result.stdout == "in\na b\n"

    def test_more_output_than_a_pipe_holds(self, transport: Transport) -> None:
        script = "i=0; while [ $i -lt 3000 ]; do echo $i-0123456789012345678901234567890123456789; i=$((i+1)); done"
        result = transport.run(["sh", "-c", f"{script}; {script} >&2"], timeout_s=60)
        assert len(result.stdout.splitlines()) == len(result.stderr.splitlines()) == 3000

    def test_a_missing_program_is_a_result(self, transport: Transport) -> None:
        result = transport.run(["hwbench-no-such-program"], timeout_s=20)
        assert result.status == 127
        assert "hwbench-no-such-program" in result.stderr

    def test_death_by_a_signal(self, transport: Transport) -> None:
        assert transport.run(["sh", "-c", "kill -9 $$"], timeout_s=20).status == -9

    def test_a_time_limit_ends_the_command_and_its_children(self, transport: Transport) -> None:
        mark = transport.temporary("mark")
        script = '(sleep 2; echo late > "$1") & echo early; sleep 60'
        start = time.monotonic()
        result = transport.run(["sh", "-c", script, "sh", mark], timeout_s=0.5)
        assert result.timed_out
        assert time.monotonic() - start < 30
        time.sleep(2.5)
        assert not transport.run(["test", "-e", mark], timeout_s=20).ok

    def test_lines_come_while_the_process_runs(self, transport: Transport) -> None:
        process = transport.spawn(
            ["sh", "-c", "echo one; read x < /dev/null; echo two; echo bad >&2; printf cut; exit 3"]
        )
        assert process.read_line(20) == "one"
        assert process.read_line(20) == "two"
        assert process.read_line(20) is None
        result = process.wait(20)
        assert (result.status, result.stderr) == (3, "bad\n")

    def test_a_silent_process_is_waited_for_and_killed(self, transport: Transport) -> None:
        process = transport.spawn(["sh", "-c", "echo one; sleep 60"])
        assert process.read_line(20) == "one"
        with pytest.raises(TimeoutError):
            process.read_line(0.1)
        with pytest.raises(TimeoutError):
            process.wait(0.1)
        process.kill()
        process.kill()
        assert process.read_line(20) is None
        assert process.wait(20).status == -9

    def test_spawning_a_missing_program(self, transport: Transport) -> None:
        process = transport.spawn(["hwbench-no-such-program"])
        assert process.read_line(20) is None
        assert process.wait(20).status == 127
        process.kill()

    def test_files_go_there_and_back(self, transport: Transport, tmp_path: Path) -> None:
        content = bytes(range(256)) * 1000
        source = tmp_path / "with blank and \u0416.bin"
        source.write_bytes(content)
        there = transport.push(source)
        assert there.startswith("/")
        assert there.endswith(".bin")
        assert transport.push(source) == there
        target = tmp_path / "new" / "back.bin"
        transport.pull(there, target)
        assert target.read_bytes() == content

    def test_programs_stay_programs(self, transport: Transport, tmp_path: Path) -> None:
        program = tmp_path / "program.sh"
        program.write_text("#!/bin/sh\necho ran\n")
        program.chmod(0o755)
        assert transport.run([transport.push(program)], timeout_s=20).stdout == "ran\n"

    def test_files_that_must_lie_side_by_side(self, transport: Transport, tmp_path: Path) -> None:
        sources = [tmp_path / "run.sh", tmp_path / "a b.txt"]
        sources[0].write_text('#!/bin/sh\ncat "${0%/*}/a b.txt"\n')
        sources[0].chmod(0o755)
        sources[1].write_text("beside\n")
        folder = transport.push_all(sources)
        assert transport.push_all(sources) == folder
        assert transport.run([f"{folder}/run.sh"], timeout_s=20).stdout == "beside\n"
        sources[1].write_text("other\n")
        (tmp_path / "next").mkdir()
        again = sources[0].rename(tmp_path / "next" / "run.sh")
        with pytest.raises(WorkspaceError, match=r"run\.sh"):
            transport.push_all(sources)
        with pytest.raises(InvalidValue, match=r"run\.sh"):
            transport.push_all([again, again])

    def test_files_that_a_command_writes(self, transport: Transport, tmp_path: Path) -> None:
        path = transport.temporary("answer.txt")
        assert transport.run(["sh", "-c", 'echo written > "$1"', "sh", path], timeout_s=20).ok
        transport.pull(path, tmp_path / "answer.txt")
        assert (tmp_path / "answer.txt").read_text() == "written\n"

    def test_missing_files(self, transport: Transport, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match=r"nothing\.bin"):
            transport.push(tmp_path / "nothing.bin")
        with pytest.raises(DeviceError, match="no-such-file"):
            transport.pull("/no-such-file", tmp_path / "target")
        assert list(tmp_path.iterdir()) == []

    def test_closing_ends_what_runs(self, transport: Transport) -> None:
        process = transport.spawn(["sh", "-c", "echo $$; sleep 60"])
        number = process.read_line(20)
        assert number is not None
        transport.close()
        transport.close()
        with transport:
            alive = transport.run(["kill", "-0", number], timeout_s=20)
        assert not alive.ok
