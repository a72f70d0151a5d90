"""What one process of a runner says, line by line, and what its end means for the file under way."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from hwbench.devices import Process, Transport
from hwbench.errors import DeviceError
from hwbench.measure.visits import RemainingVisits
from hwbench.runtimes.runners import STARTUP_S, describe_end
from hwbench.specs import Outcome

# The runner keeps the time limit of a visit itself; whoever waits allows for the way.
GRACE_S = 5.0
# A runner that talks and comes to no end of a visit: so many times what the longest visit may take, with the sentinel.
MAX_IDLE_VISITS = 3
# Exit statuses of a runner that was called wrongly, and of a shell that may not start one, or finds none.
_NOT_EXECUTABLE = 126
_NO_START = (2, _NOT_EXECUTABLE, 127)


class _Ended(Exception):
    """The runner was ended from here."""


@dataclass
class RunnerOutput:
    """The lines of a process; their end takes files out of the visits, where it is a file's fault.

    Args:
        process: The runner.
        transport: Asked whether the device is still there where the runner says nothing.
        visits: What the runner visits.
        timeout_s: Time limit of a visit.
    """

    process: Process
    transport: Transport
    visits: RemainingVisits
    timeout_s: float
    last_end: str = ""

    def lines(self) -> Iterator[str]:
        """The lines up to the end of the process.

        Raises:
            DeviceError: The runner does not start, or the device refuses to go on.
            DeviceLost: The device went away.
        """
        limit = STARTUP_S
        longest = MAX_IDLE_VISITS * (STARTUP_S + self.timeout_s + GRACE_S)
        visits_left, since = -1, 0.0
        try:
            while (line := self._read(limit, heard=visits_left >= 0)) is not None:
                if visits_left != (visits_left := self.visits.total):
                    since = time.monotonic()
                elif time.monotonic() - since > longest:
                    self.process.kill()
                    self._timed_out(f"talked for {longest:.0f} s without the end of a visit")
                    return
                yield line
                limit = self.timeout_s + GRACE_S + (0 if self.visits.loads else STARTUP_S)
        except _Ended:
            return
        self._judge_end()

    def _read(self, limit: float, *, heard: bool) -> str | None:
        """The next line, None at the end; ``_Ended`` where the runner had to be ended and what that means is said."""
        try:
            return self.process.read_line(limit)
        except TimeoutError:
            self.process.kill()
            # A device out of reach says nothing either; asking it raises then.
            self.transport.run(["true"], timeout_s=STARTUP_S)
            self._timed_out(f"said nothing for {limit:.0f} s")
        except DeviceError as error:
            # More in one line than memory is for, or its shell there was ended; closer words are about the device, and
            # so are any before the first line.
            if type(error) is not DeviceError or not heard:
                raise
            self.process.kill()
            self.last_end = str(error)
            self.visits.strike(Outcome.PARSE, str(error))
        raise _Ended

    def _judge_end(self) -> None:
        try:
            result = self.process.wait(GRACE_S)
        except TimeoutError:
            self.process.kill()
            self._timed_out(f"closed its output and did not end within {GRACE_S:.0f} s")
            return
        self.last_end = describe_end(result.status, result.stderr)
        if result.status in _NO_START:
            see = "devices check DEVICE" if result.status == _NOT_EXECUTABLE else "doctor"
            raise DeviceError(f"the runner does not start: {self.last_end}; see: hwbench {see}")
        if result.status == -signal.SIGALRM:
            self._timed_out(f"took longer than {self.timeout_s:.0f} s")
        elif result.status == -signal.SIGKILL:
            reason = f"the runner was {describe_end(result.status, '')} while it ran this file"
            self.visits.strike(Outcome.CRASH, reason)
        elif result.status != 0:
            reason = f"the runner ended while it ran this file: {self.last_end}"
            self.visits.fail(self.visits.current, Outcome.CRASH, reason)

    def _timed_out(self, reason: str) -> None:
        self.last_end = f"the runner {reason}"
        self.visits.fail(self.visits.current, Outcome.TIMEOUT, reason)
