"""The programs of an Android that knobs, probe and state use, as shell scripts which keep their state in files.

``install`` puts them into a folder that comes first on the PATH of whatever shell plays the device; the folder that
``PHONE`` names (default ``/data/phone``) holds what they remember:

* ``props/NAME``: properties; ``settings/SPACE.KEY``: settings, absent ones are ``null``;
* ``wakefulness`` (``Awake``, ``Asleep``), ``battery``, ``thermal``: what ``dumpsys`` prints of them;
* ``fixed-performance``: ``true`` or ``false``; where ``no-power-hal`` is there, that mode is refused;
* ``root``: when it is there, ``su`` gives root; ``sudoer``: the same for ``sudo -n``;
* ``log``: every change, one line each.

A value is replaced as a whole, as on a real device: a program that is killed leaves the former one or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_START = """#!/bin/sh
: "${PHONE:=/data/phone}"
keep() { printf '%s\\n' "$2" >"$PHONE.$$" && mv -f "$PHONE.$$" "$1"; }
"""

SCRIPTS: Mapping[str, str] = {
    "getprop": """
cat "$PHONE/props/$1" 2>/dev/null || echo
""",
    "settings": """
file="$PHONE/settings/$2.$3"
case $1 in
  get) cat "$file" 2>/dev/null || echo null ;;
  put) mkdir -p "$PHONE/settings"; keep "$file" "$4"; echo "settings put $2 $3 $4" >>"$PHONE/log" ;;
  delete) rm -f "$file"; echo "settings delete $2 $3" >>"$PHONE/log"; echo "Deleted 1 rows" ;;
  *) echo "Invalid command: $1" >&2; exit 255 ;;
esac
""",
    "cmd": """
if [ "$(getprop ro.build.version.sdk)" -lt 30 ]; then echo "Unknown command: $2" >&2; exit 255; fi
case "$1 $2" in
  "power set-fixed-performance-mode-enabled")
    if [ -e "$PHONE/no-power-hal" ]; then
      echo "Failed to set FIXED_PERFORMANCE mode" >&2
      exit 255
    fi
    keep "$PHONE/fixed-performance" "$3" ;;
  "connectivity airplane-mode")
    case $3 in
      enable) settings put global airplane_mode_on 1 ;;
      disable) settings put global airplane_mode_on 0 ;;
      *) [ "$(settings get global airplane_mode_on)" = 1 ] && echo enabled || echo disabled ;;
    esac ;;
  *) echo "cmd: Can't find service: $1" >&2; exit 20 ;;
esac
echo "cmd $*" >>"$PHONE/log"
""",
    "dumpsys": """
if [ "$1" = -t ]; then shift 2; fi
case $1 in
  battery) cat "$PHONE/battery" 2>/dev/null ;;
  thermalservice) cat "$PHONE/thermal" 2>/dev/null ;;
  power)
    echo "POWER MANAGER (dumpsys power)"
    echo "  mWakefulness=$(cat "$PHONE/wakefulness" 2>/dev/null || echo Awake)" ;;
  *) echo "Can't find service: $1" >&2 ;;
esac
""",
    "input": """
case "$1 $2" in
  "keyevent 223") keep "$PHONE/wakefulness" Asleep ;;
  "keyevent 224") keep "$PHONE/wakefulness" Awake ;;
  *) echo "Error: Unknown command: $1" >&2; exit 255 ;;
esac
echo "input $*" >>"$PHONE/log"
""",
    "am": """
if [ "$(id -u)" != 0 ]; then
  echo "Security exception: Permission Denial: not allowed to send broadcast $4" >&2
  exit 255
fi
echo "am $*" >>"$PHONE/log"
""",
    "id": """
echo "${PHONE_UID:-2000}"
""",
    "sudo": """
if [ ! -e "$PHONE/sudoer" ]; then echo "sudo: a password is required" >&2; exit 1; fi
PHONE_UID=0; export PHONE_UID
shift; exec "$@"
""",
    "su": """
if [ ! -e "$PHONE/root" ]; then echo "su: permission denied" >&2; exit 1; fi
PHONE_UID=0; export PHONE_UID
case $1 in
  0) shift; exec "$@" ;;
  -c) exec sh -c "$2" ;;
esac
""",
}


def install(folder: Path) -> None:
    """Writes the programs into a folder, executable."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in SCRIPTS.items():
        path = folder / name
        path.write_text(_START + body.lstrip("\n"))
        path.chmod(0o755)
