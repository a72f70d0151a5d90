"""One command on a remote device under a supervisor: a POSIX shell that ends it when it must end.

The supervisor runs on the device, beside the command. It ends the command, its children included, when the time limit
is over, when the client says so, when the client's connection ends, and when the client was silent for ``LEASE_S``. So
a client that is gone leaves nothing running. It frames what the command writes on both streams with a random word that
the command cannot know (it came over stdin), so whatever the command or a login script prints is told from its end.

It needs a shell such as dash, busybox ash, mksh or bash, and ``sleep``, ``rm`` and ``/proc``; ``setsid`` where there is
one. Without ``setsid`` the command's children are found as descendants, and one that left its parents escapes.
"""

from __future__ import annotations

import math
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwbench.devices.link import Channel, Link, Stream
from hwbench.errors import DeviceError, InvalidValue

# A client that is alive says so this often; one that said nothing for the lease is taken for gone.
BEAT_S, LEASE_S = 10.0, 60.0
BEAT, KILL = b"beat\n", b"kill\n"
# What a login script may print before the command starts.
BANNER_BYTES = 1 << 16
# Signals that a shell reports as 128 + number.
SIGNALS = range(1, 65)

# Reads the script of %d lines from stdin, so that neither its length nor the login shell's syntax matters.
BOOT = (
    'exec sh -c \'s=; c=$(printf "\\nx"); c=${c%%x}; n=%d; '
    'while [ $n -gt 0 ]; do IFS= read -r l || exit 113; s=$s$l$c; n=$((n-1)); done; eval "$s"\''
)

# Field 22 of /proc/PID/stat, the time at which the process started: with it, a number that was given to another process
# in the meantime is not taken for ours.
STAMP = r"""
stamp() {
  stamped=
  read -r line < "/proc/$1/stat" || return 1
  set -- ${line##*) }
  state=$1 stamped=${20}
}
"""

# Which start of which machine this is: the numbers of processes and their starts mean nothing after the next one, nor
# on another machine that has the same folder over a network.
HERE = r"""
here() {
  boot= node=
  read -r boot < /proc/sys/kernel/random/boot_id
  read -r node < /proc/sys/kernel/hostname
}
"""

_DESCENDANTS = r"""
descendants() {
  found=" $1 " grown=1
  while [ $grown = 1 ]; do
    grown=0
    for file in /proc/[0-9]*/stat; do
      read -r line < "$file" || continue
      child=${line%% *}
      set -- ${line##*) }
      case $found in *" $2 "*) case $found in *" $child "*) ;; *) found="$found$child " grown=1 ;; esac ;; esac
    done
  done
}
"""

# Variables: token, limit and whole (seconds, empty for none), lease (seconds), record (a file that names the processes,
# for who finds it after the supervisor was killed), input (stdin of the command, removed at the end), exports.
SCRIPT = (
    r"""
exec 3<&0 4>&2 </dev/null 2>/dev/null
how=ended
trap : HUP INT
trap 'how=late' USR1
"""
    + STAMP
    + HERE
    + _DESCENDANTS
    + r"""
end() {
  stamp "$pid" && [ "$stamped" = "$start" ] || return
  [ "$1" ] && kill -USR1 $$
  if [ "$setsid" ]; then kill -9 "-$pid"; else descendants "$pid"; kill -9 $found; fi
  kill -9 "$pid"
}
setsid=
if command -v setsid >/dev/null; then setsid=setsid; fi
# A name is that of a program, not of a function here.
if ! [ "$setsid$exports" ]; then exports=:; fi
if [ "$exports" ]; then set -- sh -c "$exports; exec \"\$@\"" sh "$@"; fi
echo "$token+"; echo "$token+" >&4
$setsid "$@" < "${input:-/dev/null}" 2>&4 3<&- 4>&- &
pid=$!
stamp $$
watched=$stamped
stamp "$pid"
start=$stamped timer= watch=
if [ "$record" ]; then here; { echo "$$ $watched"; echo "$pid $start"; echo "$boot $node"; } > "$record"; fi
# Ends the sleep of a subshell with it; its $! is ours until it has started one.
leave='case $! in "$pid" | "$timer") ;; *) kill -9 "$!" ;; esac; exit 0'
if [ "$limit" ]; then
  (
    trap "$leave" TERM
    sleep "$limit" &
    wait "$!" || { sleep "$whole" & wait "$!"; }
    end late
  ) >/dev/null 3<&- 4>&- &
  timer=$!
fi
if [ "$lease" ]; then
  (
    beat=
    trap 'beat=1' USR1
    trap "$leave" TERM
    while :; do
      beat=
      sleep "$lease" &
      wait "$!"
      [ "$beat" ] || break
      kill -9 "$!"
    done
    end
  ) >/dev/null 3<&- 4>&- &
  watch=$!
fi
(
  while IFS= read -r word <&3; do
    case $word in kill) end ;; beat) [ "$watch" ] && kill -USR1 "$watch" ;; esac
  done
  end
) >/dev/null 4>&- &
guard=$!
while :; do
  wait "$pid"
  status=$?
  stamp "$pid" && [ "$stamped" = "$start" ] || break
done
[ "$setsid" ] && kill -9 "-$pid"
kill $timer $watch $guard
if [ "$record$input" ]; then rm -f "$record" "$input"; fi
echo "$token-$status $how"; echo "$token-" >&4
exit 0
"""
)

# The same without a supervisor. Variables: token. What it says is looked at, so it says it in one language.
PLAIN = r"""
exec </dev/null
LC_ALL=C
export LC_ALL
echo "$token+"; echo "$token+" >&2
(
%s
)
echo "$token-$? ended"; echo "$token-" >&2
exit 0
"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Order:
    """What to run.

    Args:
        argv: The command.
        env: Added to its environment.
        record: A file for who must end it when its supervisor was killed; empty: none.
        input: A file there that is its stdin, and is removed; empty: nothing.
        timeout_s: None: until it ends or is ended.

    Raises:
        InvalidValue: Nothing to run; a NUL in an argument, which no system can hand over; no name of a variable.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    record: str = ""
    input: str = ""
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not self.argv or self.argv[0].startswith("-"):
            raise InvalidValue(f"expected the name of a program first, got {list(self.argv)}")
        for text in (*self.argv, *self.env.values()):
            if "\0" in text:
                raise InvalidValue(f"an argument cannot hold a NUL character: {text[:80]!r}")
        for name in self.env:
            if not _NAME.fullmatch(name):
                raise InvalidValue(f"expected a name of a variable such as OMP_NUM_THREADS, got {name!r}")

    @property
    def leased(self) -> bool:
        """The client must say now and then that it is there; a short command ends by its limit anyway."""
        return self.timeout_s is None or self.timeout_s > LEASE_S

    def script(self, token: str) -> str:
        """The supervisor for it, in shell."""
        exports = "; ".join(f"export {name}={shlex.quote(value)}" for name, value in self.env.items())
        values = {
            "token": token,
            "record": self.record,
            "input": self.input,
            "limit": "" if self.timeout_s is None else f"{self.timeout_s:.3f}",
            "whole": "" if self.timeout_s is None else str(math.ceil(self.timeout_s)),
            "lease": f"{LEASE_S:.0f}" if self.leased else "",
            "exports": exports,
        }
        given = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
        return f"{given}set -- {shlex.join(self.argv)}\n{SCRIPT}"


@dataclass(frozen=True)
class Chore:
    """A script of ours that ends by itself, soon: nobody need watch it, which saves processes.

    Args:
        text: Shell; it may ``exit``.
        arguments: Its positional parameters.
        timeout_s: When the client takes the device for lost.
    """

    text: str
    arguments: Sequence[str] = ()
    timeout_s: float | None = None
    leased: bool = False

    def script(self, token: str) -> str:
        """It between the frames, in shell."""
        return f"token={token}\n" + PLAIN % f"set -- {shlex.join(self.arguments)}\n{self.text}"


class Supervised:
    """The client's side of a supervised command: takes the two streams apart from their frames."""

    def __init__(self, link: Link, order: Order | Chore) -> None:
        token = secrets.token_hex(16)
        script = order.script(token).strip("\n") + "\n"
        self.leased = order.leased
        self.channel: Channel = link.open(BOOT % script.count("\n"))
        self._framed = {stream: _Framed(token.encode()) for stream in Stream}
        self._closed = False
        self.channel.write(script.encode())

    @property
    def ended(self) -> bool:
        """The supervisor said that the command has ended, and everything before that was read."""
        return all(framed.trailer is not None for framed in self._framed.values())

    def read(self, timeout_s: float) -> tuple[Stream, bytes]:
        """The next bytes that the command wrote, maybe none; call it until ``ended``.

        Raises:
            TimeoutError: Nothing came in this time.
            DeviceError: There is no POSIX shell at the other end, or the supervisor was killed.
            DeviceLost: The connection ended.
        """
        chunk = self.channel.read(timeout_s)
        if chunk is None:
            raise DeviceError(self._broken())
        framed = self._framed[chunk.stream]
        data = framed.feed(chunk.data)
        if not framed.started and len(framed.held) > BANNER_BYTES:
            raise DeviceError(f"its login shell prints without end: {plain(framed.held[:200])}")
        return chunk.stream, data

    def status(self) -> tuple[int, bool]:
        """Exit status (below zero: the signal), and whether the time limit ended it; call it when it has ended.

        A status of 128 + a signal's number is taken for that signal, as a shell reports it.
        """
        words = (self._framed[Stream.STDOUT].trailer or b"").split()
        if len(words) != 2 or not re.fullmatch(rb"[0-9]{1,3}", words[0]) or int(words[0]) > 255:
            raise DeviceError(f"expected an exit status from the device, got {plain(b' '.join(words))}")
        status = int(words[0])
        return (128 - status if status - 128 in SIGNALS else status), words[1] == b"late"

    def beat(self) -> None:
        """Says that the client is there."""
        if self.leased and not self._closed:
            self.channel.write(BEAT)

    def kill(self) -> None:
        """Asks the supervisor to end the command; its end is to be read."""
        if not self._closed:
            self.channel.write(KILL)

    def close(self) -> None:
        """Lets go: what still runs is ended by the supervisor, which sees its stdin end."""
        if not self._closed:
            self._closed = True
            self.channel.close()

    def _broken(self) -> str:
        out, err = (self._framed[stream] for stream in (Stream.STDOUT, Stream.STDERR))
        if out.started:
            return "the shell that watched the command was ended on the device; it may be short of memory"
        said = plain((out.held + err.held)[-400:].strip())
        return f"it does not answer as a POSIX shell does: it said {said}"


class _Framed:
    """One stream: what comes before ``TOKEN+`` and after ``TOKEN-... `` is not the command's."""

    def __init__(self, token: bytes) -> None:
        self._begin, self._end = token + b"+\n", token + b"-"
        self.started = False
        self.trailer: bytes | None = None
        self.held = bytearray()
        self._ending = False

    def feed(self, data: bytes) -> bytes:
        """The command's bytes in it; what may be the beginning of the end is held back."""
        if self.trailer is not None:
            return b""
        self.held += data
        if not self.started:
            _, found, after = bytes(self.held).partition(self._begin)
            if not found:
                return b""
            self.started, self.held = True, bytearray(after)
        return self._take()

    def _take(self) -> bytes:
        given = b""
        if not self._ending:
            at = self.held.find(self._end)
            keep = at if at >= 0 else len(self.held) - _overlap(self.held, self._end)
            given = bytes(self.held[:keep])
            del self.held[:keep]
            if at < 0:
                return given
            self._ending = True
        rest, found, _ = bytes(self.held).partition(b"\n")
        if found or len(rest) > 200:
            self.trailer = rest[len(self._end) :]
            self.held.clear()
        return given


def _overlap(data: bytearray, word: bytes) -> int:
    """Length of the longest end of ``data`` that ``word`` begins with."""
    return next((n for n in range(min(len(data), len(word) - 1), 0, -1) if data.endswith(word[:n])), 0)


def plain(data: bytes | bytearray) -> str:
    """What a device said, for a message: in quotes, with control characters made visible."""
    return repr(data.decode(errors="replace"))
