"""A transport over any link: what ssh and adb have in common.

Commands run under a supervisor (``supervisor.py``), files go into a depot by their content (``depot.py``). When the
connection ends, whoever waits gets DeviceLost, and the next call connects again: a few attempts with growing pauses,
then DeviceUnreachable. What commands of this client were still running is ended first, and what was left over by
clients whose supervisor was killed; commands of other clients that are alive are let be.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from hwbench.devices.base import MOST_PULL_BYTES, Address, CommandResult
from hwbench.devices.depot import Depot
from hwbench.devices.device_text import number
from hwbench.devices.link import Link, Stream
from hwbench.devices.supervisor import BEAT_S, HERE, LEASE_S, STAMP, Chore, Order, Supervised
from hwbench.devices.work_folder import OURS, PLACE
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, HwbenchError

# Pauses before the attempts to connect again; about half a minute in all, as long as a Wi-Fi or an adbd takes.
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
# What may pass here between the time limit of a command and its last word, whatever the device sends: the start of
# shells on a slow device, the way there; and what it printed, which a slow network brings at this rate.
ANSWER_S, OUTPUT_BYTES_PER_S = 30.0, 100_000
# What lines that are there already may cost beyond the time limit of who reads them.
LINE_S = 1.0
# A command may write this much where it is held in memory; results of such a size belong in a file.
MOST_OUTPUT_BYTES = 64 << 20
# The end of what a process wrote to stderr; enough for a message, not for a log.
TAIL_BYTES = 4096
# Of the processes of other clients so many are told.
MOST_OTHERS = 5
# Scripts of ours that only look at a few files.
SCRIPT_S = 60.0

# Ends what nobody watches any more. A record says who watches and what runs: two lines of process number and start, and
# a third of the start of the machine, which records of older versions lack. Records are believed in a folder that is
# ours alone, and only files of ours there: the folder may be one that others made, in a place where all may write.
# Arguments: the work folder, our name. Prints how many were ended, and the numbers of what other clients run.
SWEEP = (
    STAMP
    + HERE
    + PLACE
    + OURS
    + r"""
same() { [ "$1" ] && [ "$2" ] && stamp "$1" && [ "$stamped" = "$2" ]; }
sweep() {
  for record in run/*; do
    name=${record##*/}
    hex "${name%%.*}" 16 && [ -f "$record" ] && [ -O "$record" ] && ! [ -L "$record" ] || continue
    watcher= watched= pid= start= was= host=
    { read -r watcher watched; read -r pid start; read -r was host; } < "$record"
    case $watcher$watched$pid$start in *[!0-9]*) continue ;; esac
    if [ "$was" ] && [ "$was" != "$boot" ]; then
      # Nothing runs on after a start; what another machine runs that has this folder, too, is not ours to end.
      [ "$host" = "$node" ] && rm -f "$record"
      continue
    fi
    # A watcher of state Z is dead, and nobody has asked for its end.
    if [ "${name%%.*}" != "$own" ] && same "$watcher" "$watched" && [ "$state" != Z ]; then
      same "$pid" "$start" && others="$others $pid"
      continue
    fi
    if same "$pid" "$start"; then
      kill -9 "-$pid" 2>/dev/null
      kill -9 "$pid" 2>/dev/null
      ended=$((ended+1))
    fi
    rm -f "$record"
  done
}
place "$1"
own=$2 ended=0 others=
if ! [ -L "$folder" ] && cd "$folder" 2>/dev/null; then
  set -- run/*
  if [ -e "$1" ] && ours . && ours run; then
    here 2>/dev/null
    sweep
  fi
fi
echo "$ended$others"
"""
)


class RemoteTransport:
    """A ``Transport`` over a link that is connected already.

    Args:
        link: The way there; closed with the transport.
        address: Says the device's name, for messages, and the work folder there.
        pauses_s: Before each attempt to connect again.

    Attributes:
        others: The numbers there of processes that other clients ran when the connection was made.
    """

    others: tuple[int, ...] = ()

    def __init__(self, link: Link, address: Address, *, pauses_s: Sequence[float] = PAUSES_S) -> None:
        self._link = link
        self._address = address
        self._pauses_s = tuple(pauses_s)
        self._owner = secrets.token_hex(8)
        self._count = 0
        self._connected = True
        self._swept = False
        self._processes: set[RemoteProcess] = set()
        self._beater: _Beater | None = None
        self._depot = Depot(address, self._owner, link, self._script)

    @property
    def identity(self) -> str:
        return self._link.identity

    @property
    def over_usb(self) -> bool:
        """It is on a cable, so that its radios may be switched off."""
        return getattr(self._link, "over_usb", False)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> CommandResult:
        with self._using():
            input = self._depot.text(stdin) if stdin else ""
            # What ends soon needs no record; writing and removing one starts a program.
            record = self._record() if timeout_s > LEASE_S else ""
            order = Order(argv, env or {}, record, input, timeout_s)
            return self._run(order)

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> RemoteProcess:
        with self._using():
            self._beater = self._beater or _Beater()
            command = Supervised(self._link, Order(argv, env or {}, self._record()))
            process = RemoteProcess(self, command)
            self._processes.add(process)
            self._beater.add(command)
            return process

    def push(self, source: Path) -> str:
        with self._using():
            return self._depot.push(source)

    def push_all(self, sources: Sequence[Path]) -> str:
        with self._using():
            return self._depot.push_all(sources)

    def pull(self, source: str, target: Path, *, most_bytes: int = MOST_PULL_BYTES) -> None:
        with self._using():
            self._depot.pull(source, target, most_bytes=most_bytes)

    def temporary(self, name: str) -> str:
        with self._using():
            return self._depot.temporary(name)

    def close(self) -> None:
        for process in list(self._processes):
            process.close()
        if self._beater is not None:
            self._beater.stop()
            self._beater = None
        if self._connected:
            with contextlib.suppress(HwbenchError):
                self._depot.clear()
            self._link.close()
            self._lost()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """A connection while it lasts; errors name the device."""
        if not self._connected:
            self._reconnect()
        with self._noticing():
            if not self._swept:
                self._sweep()
            yield

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except DeviceError as error:
            if isinstance(error, DeviceLost):
                self._lost()
            raise self._named(error) from error.__cause__

    def _named(self, error: DeviceError) -> DeviceError:
        """The same with the name of the device in front, which a link does not say of what ended."""
        name, said = f"device {self._address.name!r}", str(error)
        return error if said.startswith(name) else type(error)(f"{name}: {said}")

    def _lost(self) -> None:
        self._connected = self._swept = False
        self._depot.forget()

    def _reconnect(self) -> None:
        refused: DeviceError = DeviceUnreachable(f"device {self._address.name!r} does not answer")
        for pause in self._pauses_s:
            time.sleep(pause)
            try:
                self._link.reconnect()
                self._connected = True
                self._sweep()
            except (DeviceUnreachable, DeviceLost) as error:
                self._lost()
                refused = error
            else:
                return
        raise DeviceUnreachable(str(self._named(refused))) from refused

    def _sweep(self) -> None:
        words = self._script(SWEEP, self._address.work_dir, self._owner).stdout.split()
        self.others = tuple(filter(None, map(number, words[1 : MOST_OTHERS + 1])))
        self._swept = True

    def _record(self) -> str:
        """A file for the record of a command; none without a work folder of ours: it is watched all the same."""
        self._count += 1
        try:
            return f"{self._depot.prepare()}/run/{self._owner}.{self._count}"
        except DeviceLost:
            raise
        except DeviceError:
            return ""

    def _script(self, text: str, *arguments: str, timeout_s: float = SCRIPT_S) -> CommandResult:
        return self._run(Chore(text, arguments, timeout_s))

    def _run(self, order: Order | Chore) -> CommandResult:
        try:
            command = Supervised(self._link, order)
            try:
                return self._collect(command, order.timeout_s or 0.0)
            finally:
                command.close()
        except DeviceError as error:
            raise self._named(error) from error

    def _collect(self, command: Supervised, timeout_s: float) -> CommandResult:
        output = {stream: bytearray() for stream in Stream}
        start = beat = time.monotonic()
        while not command.ended:
            with contextlib.suppress(TimeoutError):
                stream, data = command.read(min(1.0, BEAT_S))
                output[stream] += data
                if len(output[stream]) > MOST_OUTPUT_BYTES:
                    raise DeviceError(too_much(stream))
            # The device ends the command; this holds where the device does not do what it should.
            on_the_way_s = sum(map(len, output.values())) / OUTPUT_BYTES_PER_S
            if not command.ended and time.monotonic() > start + timeout_s + ANSWER_S + on_the_way_s:
                raise DeviceLost(
                    f"the command did not end within {ANSWER_S:.0f} s after its time limit of {timeout_s:g} s, "
                    "which the device should have held; start it anew"
                )
            if time.monotonic() - beat >= BEAT_S:
                command.beat()
                beat = time.monotonic()
        status, late = command.status()
        out, err = (output[stream].decode(errors="replace") for stream in (Stream.STDOUT, Stream.STDERR))
        return CommandResult(status, out, err, late)


class RemoteProcess:
    """A process on a device whose lines are read while it runs; of its stderr the end is kept."""

    # Between the request to end it and its end.
    KILL_S = 20.0

    def __init__(self, transport: RemoteTransport, command: Supervised) -> None:
        self._transport = transport
        self._command = command
        self._lines = bytearray()
        self._tail = bytearray()
        self._gone: DeviceError | None = None
        self._result: CommandResult | None = None

    def read_line(self, timeout_s: float) -> str | None:
        deadline = time.monotonic() + timeout_s
        searched = 0
        while (end := self._lines.find(b"\n", searched)) < 0:
            searched = len(self._lines)
            if not self._advance(deadline, f"no line in {timeout_s:g} s"):
                return None
        line = self._lines[:end].decode(errors="replace")
        del self._lines[: end + 1]
        return line

    def wait(self, timeout_s: float) -> CommandResult:
        deadline = time.monotonic() + timeout_s
        while self._advance(deadline, f"the process has not ended after {timeout_s:g} s"):
            pass
        assert self._result is not None
        return self._result

    def kill(self) -> None:
        if self._result is None and self._gone is None:
            # What cannot be told is told by the end of the connection; the supervisor listens to both.
            with contextlib.suppress(DeviceError, TimeoutError):
                self._command.kill()
                deadline = time.monotonic() + self.KILL_S
                while self._advance(deadline, "it does not end"):
                    pass
        self.close()

    def close(self) -> None:
        """Lets go of the process, which ends by that if it has not yet."""
        self._command.close()
        self._transport._processes.discard(self)
        if self._transport._beater is not None:
            self._transport._beater.discard(self._command)
        if self._result is None and self._gone is None:
            self._lines.clear()
            self._result = CommandResult(-9, "", self._tail.decode(errors="replace"))

    def _advance(self, deadline: float, late: str) -> bool:
        """Reads on; False when the process has ended."""
        if self._gone is not None:
            raise self._gone
        if self._result is not None:
            return False
        left_s = deadline - time.monotonic()
        if left_s < -LINE_S:
            raise TimeoutError(late)
        try:
            with self._transport._noticing():
                self._read(max(0.0, left_s))
        except TimeoutError:
            raise TimeoutError(late) from None
        except DeviceError as error:
            self._gone = error
            self.close()
            raise
        return True

    def _read(self, timeout_s: float) -> None:
        stream, data = self._command.read(timeout_s)
        if stream is Stream.STDOUT:
            self._lines += data
            if len(self._lines) > MOST_OUTPUT_BYTES:
                raise DeviceError(too_much(stream))
        else:
            self._tail += data
            del self._tail[:-TAIL_BYTES]
        if self._command.ended:
            status, _ = self._command.status()
            self._result = CommandResult(status, "", self._tail.decode(errors="replace"))
            self.close()


class _Beater:
    """A thread that says to the supervisors of running processes that their client is there."""

    def __init__(self) -> None:
        self._commands: set[Supervised] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="hwbench-heartbeat").start()

    def add(self, command: Supervised) -> None:
        with self._lock:
            self._commands.add(command)

    def discard(self, command: Supervised) -> None:
        with self._lock:
            self._commands.discard(command)

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            with self._lock:
                commands = list(self._commands)
            for command in commands:
                # Who reads from it notices the end of the connection.
                with contextlib.suppress(HwbenchError):
                    command.beat()


def too_much(stream: Stream) -> str:
    """What is said when a command writes more than is held in memory."""
    return (
        f"a command wrote more than {MOST_OUTPUT_BYTES >> 20} MiB to {stream.value}; "
        "let it write to a file, and fetch that"
    )
