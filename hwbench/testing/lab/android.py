"""The commands of an Android device that hwbench asks: shell scripts in the root, whose state lies in files there.

What they know is below ``/data/lab``: ``properties`` (lines NAME=VALUE), ``settings/NAMESPACE/KEY``, ``wakefulness``,
``fixed_performance``. A test reads there whether a setting was made and taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STATE = "data/lab"
PROPERTIES = {
    "ro.build.fingerprint": "hwbench/lab/lab:11/RQ1A.210105.003/1:user/release-keys",
    "ro.build.version.release": "11",
    "ro.build.version.sdk": "30",
    "ro.board.platform": "hwlab",
    "ro.hardware": "hwlab",
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a,armeabi",
    "ro.product.device": "lab",
    "ro.product.manufacturer": "hwbench",
    "ro.product.model": "lab phone",
    "ro.product.name": "lab",
    "ro.serialno": "HWLAB0001",
    "ro.soc.manufacturer": "hwbench",
    "ro.soc.model": "HWLAB1",
    "sys.boot_completed": "1",
}
# Of the thermal service, by degrees of the case at which each begins: 0 none to 6 shutdown.
THERMAL_STATUS = {1: 39, 2: 42, 3: 45, 4: 48, 5: 55, 6: 60}

GETPROP = r"""
state=/data/lab/properties
if [ $# = 0 ]; then
  while IFS='=' read -r name value; do echo "[$name]: [$value]"; done < $state
else
  while IFS='=' read -r name value; do
    if [ "$name" = "$1" ] && [ -n "$value" ]; then printf '%s\n' "$value"; exit 0; fi
  done < $state
  echo "$2"
fi
"""

SETTINGS = r"""
# settings get|put|delete|list NAMESPACE [KEY [VALUE]]
case "$2" in global|system|secure) ;; *) echo "Invalid namespace '$2'" >&2; exit 255;; esac
folder=/data/lab/settings/$2
case "$3" in */*|.*) echo "Invalid key '$3'" >&2; exit 255;; esac
case "$1" in
  get) cat "$folder/$3" 2>/dev/null || echo null;;
  put) mkdir -p "$folder" && printf '%s\n' "$4" > "$folder/$3";;
  delete) if [ -e "$folder/$3" ]; then rm "$folder/$3"; echo "Deleted 1 rows"; else echo "Deleted 0 rows"; fi;;
  list) for file in "$folder"/*; do [ -e "$file" ] && echo "${file##*/}=$(cat "$file")"; done;;
  *) echo "Invalid command: $1" >&2; exit 255;;
esac
"""

SVC = r"""
case "$1 $2 $3" in
  "power stayon true") settings put global stay_on_while_plugged_in 7;;
  "power stayon false") settings put global stay_on_while_plugged_in 0;;
  "power stayon ac") settings put global stay_on_while_plugged_in 1;;
  "power stayon usb") settings put global stay_on_while_plugged_in 2;;
  "power stayon wireless") settings put global stay_on_while_plugged_in 4;;
  "wifi enable "|"wifi enable") settings put global wifi_on 1;;
  "wifi disable "|"wifi disable") settings put global wifi_on 0;;
  "data enable "|"data enable") settings put global mobile_data 1;;
  "data disable "|"data disable") settings put global mobile_data 0;;
  *) echo "Available commands: power, data, wifi" >&2;;
esac
"""

CMD = r"""
# Both commands came with Android 11.
sdk=$(getprop ro.build.version.sdk)
unknown() { echo "Unknown command: $1" >&2; exit 255; }
case "$1 $2" in
  "power set-fixed-performance-mode-enabled")
    [ "$sdk" -ge 30 ] || unknown "$2"
    case "$3" in
      true|false) echo "$3" > /data/lab/fixed_performance;;
      *) echo "Error: no value specified" >&2; exit 255;;
    esac;;
  "connectivity airplane-mode")
    [ "$sdk" -ge 30 ] || unknown "$2"
    case "$3" in
      enable) settings put global airplane_mode_on 1;;
      disable) settings put global airplane_mode_on 0;;
      "") if [ "$(settings get global airplane_mode_on)" = 1 ]; then echo enabled; else echo disabled; fi;;
      *) unknown "$3";;
    esac;;
  power\ *|connectivity\ *) unknown "$2";;
  *) echo "cmd: Can't find service: $1" >&2; exit 20;;
esac
"""

INPUT = r"""
state=/data/lab/wakefulness
case "$1 $2" in
  "keyevent 223"|"keyevent KEYCODE_SLEEP") echo Asleep > $state;;
  "keyevent 224"|"keyevent KEYCODE_WAKEUP") echo Awake > $state;;
  "keyevent 26"|"keyevent KEYCODE_POWER")
    if [ "$(cat $state)" = Awake ]; then echo Asleep > $state; else echo Awake > $state; fi;;
  *) echo "Error: Unknown command: $1" >&2; exit 255;;
esac
"""

DUMPSYS = r"""
battery=/sys/class/power_supply/battery
usb=$(cat /sys/class/power_supply/usb/online)
flag() { if [ "$1" = 1 ]; then echo true; else echo false; fi; }
tenths() { echo "$(($1 / 10)).$(($1 % 10))"; }
case "$1" in
  battery)
    case "$(cat $battery/status)" in Charging) status=2;; *) status=3;; esac
    echo "Current Battery Service state:"
    echo "  AC powered: false"
    echo "  USB powered: $(flag "$usb")"
    echo "  Wireless powered: false"
    echo "  Max charging current: 500000"
    echo "  status: $status"
    echo "  health: 2"
    echo "  present: true"
    echo "  level: $(cat $battery/capacity)"
    echo "  scale: 100"
    echo "  voltage: 4012"
    echo "  temperature: $(cat $battery/temp)"
    echo "  technology: Li-ion";;
  thermalservice)
    case=$(cat $battery/temp)
    status=0
    @STATUS@
    echo "IsStatusOverride: false"
    echo "Thermal Status: $status"
    echo "Cached temperatures:"
    echo "HAL Ready: true"
    echo "HAL connection:"
    echo "	ThermalHAL 2.0 connected: yes"
    echo "Current temperatures from HAL:"
    echo "	Temperature{mValue=$(tenths $((case + 40))), mType=0, mName=AP, mStatus=$status}"
    echo "	Temperature{mValue=$(tenths "$case"), mType=2, mName=BATTERY, mStatus=$status}"
    echo "	Temperature{mValue=$(tenths $((case + 10))), mType=3, mName=SKIN, mStatus=$status}"
    echo "Current cooling devices from HAL:";;
  power)
    stay=$(settings get global stay_on_while_plugged_in)
    case "$stay" in null|0) on=false;; *) on=$(flag "$usb");; esac
    awake=$(cat /data/lab/wakefulness)
    echo "POWER MANAGER (dumpsys power)"
    echo ""
    echo "Power Manager State:"
    echo "  mWakefulness=$awake"
    echo "  mIsPowered=$(flag "$usb")"
    echo "  mStayOn=$on"
    echo "  mBatteryLevel=$(cat $battery/capacity)"
    echo "Settings and Configuration:"
    echo "  mStayOnWhilePluggedInSetting=${stay#null}"
    if [ "$awake" = Awake ]; then echo "Display Power: state=ON"; else echo "Display Power: state=OFF"; fi;;
  *) echo "Can't find service: $1" >&2; exit 0;;
esac
"""


def write_scripts(root: Path) -> None:
    """Puts the commands into ``root``/system/bin, and their state of a phone that was just unpacked."""
    thresholds = "; ".join(f'[ "$case" -lt {degrees}0 ] || status={n}' for n, degrees in THERMAL_STATUS.items())
    scripts = {
        "cmd": CMD,
        "dumpsys": DUMPSYS.replace("@STATUS@", thresholds),
        "getprop": GETPROP,
        "input": INPUT,
        "settings": SETTINGS,
        "svc": SVC,
    }
    for name, body in scripts.items():
        path = root / "system/bin" / name
        path.unlink(missing_ok=True)  # an applet of busybox may have the name
        path.write_text(f"#!/system/bin/sh{body}")
        path.chmod(0o755)
    values = {"wakefulness": "Awake", "fixed_performance": "false", "settings/global/airplane_mode_on": "0"}
    values["settings/global/stay_on_while_plugged_in"] = "0"
    for name, value in values.items():
        path = root / STATE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    write_properties(root, PROPERTIES)


def read_properties(root: Path) -> dict[str, str]:
    """All values of ``getprop``."""
    path = root / STATE / "properties"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("=", 1) for line in lines)


def write_properties(root: Path, changed: Mapping[str, str]) -> None:
    """Changes values of ``getprop``; a value has no line end."""
    values = {**read_properties(root), **changed}
    (root / STATE / "properties").write_text("".join(f"{name}={value}\n" for name, value in sorted(values.items())))
