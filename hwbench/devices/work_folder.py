"""The work folder on a device, as shell: what makes it ours, who of its clients is alive, and what may be removed.

A folder is used when it is marked, was made here, is empty, or holds only what hwbench names; when it belongs to us, is
no symbolic link, and nobody else may write to it. Nothing is removed from it but names of our own form.

Beside ``files``, ``run`` and ``tmp`` (see ``depot.py``) lies ``live``: a stamp of each client, and what it uses of
``files``. Ages go by the time since the device was started, never by its clock: a board may have none.
"""

from __future__ import annotations

from hwbench.devices.supervisor import HERE

MARK = ".hwbench-work-folder"
# What a client that was killed has left over is kept for so long; its session may be looked at. Of a file that was on
# its way when the connection ended there is nothing to look at: it goes after HOLD_S, or where it is in the way.
LEFT_S = 6 * 86400
# A client that uses the folder stamps again after REFRESH_S. What it uses is held for HOLD_S after its stamp; one that
# was silent for half of that looks again what lies there.
REFRESH_S, HOLD_S = 600, 3600
# A file on its way that is as long as it was so many seconds before is not on its way any more.
STILL_S = 3

# The path that a device file names, without a slash at its end, which would lead through a symbolic link.
PLACE = r"""
place() {
  case $1 in
    "~" | "~/") folder=$HOME ;;
    "~/"*) folder=$HOME/${1#"~/"} ;;
    /*) folder=$1 ;;
    *) folder=./$1 ;;
  esac
  while :; do case $folder in ?*/) folder=${folder%/} ;; *) return ;; esac; done
}
"""

# A folder that belongs to us, and that nobody else may write to: not the group, not everybody.
OURS = r"""
ours() {
  [ -d "$1" ] && [ -O "$1" ] && ! [ -L "$1" ] || return 1
  case $(ls -ld "$1") in d????-??-*) ;; *) return 1 ;; esac
}
hex() {
  case $1 in *[!0-9a-f]*) return 1 ;; esac
  [ ${#1} = "$2" ]
}
"""

# Seconds since the stamp of client $1; nothing where there is no stamp. Other machines, which have the folder over a
# network, look after their clients; a client of this one from before it was started is gone, or stamps again.
_AGES = (
    HERE
    + r"""
clock() {
  here
  up=
  read -r up line < /proc/uptime
  up=${up%%.*}
  case $up in *[!0-9]*) up= ;; esac
} 2>/dev/null
sign() { echo "$up $boot $node" > "live/$1"; } 2>/dev/null
age() {
  since= was= host= age=
  [ -f "live/$1" ] && read -r since was host < "live/$1"
  case $since in *[!0-9]* | 0?*) return ;; esac
  [ "$since" ] && [ "$up" ] && [ ${#since} -lt 10 ] || return
  if [ "$was" != "$boot" ]; then
    age=0
    [ "$host" = "$node" ] && age=999999999
  else
    age=$((up-since))
    [ $age -lt 0 ] && [ -z "$boot" ] && age=999999999
  fi
}
running() {
  for record in "run/$1".*; do [ -e "$record" ] && return; done
  return 1
}
"""
)

# Where no room is left for our files: removes those of others that are on their way and do not grow, and counts them.
# A link that is stalled looks the same, and sends again what was removed; so the folder of such files stays, empty.
_BROKEN_OFF = (
    rf"""
still={STILL_S}
"""
    + r"""
emptied() { rm -rf "$1" && mkdir "$1"; }
broken_off() {
  set --
  for path in tmp/*/part.*; do
    name=${path#tmp/}
    name=${name%%/*}
    hex "$name" 16 && [ "$name" != "$own" ] && ! [ -L "tmp/$name" ] && [ -O "tmp/$name" ] || continue
    [ -d "$path" ] && ! [ -L "$path" ] && [ "$(ls -A "$path")" ] || continue
    running "$name" && continue
    age "$name"
    # Another machine looks after what its clients send.
    [ "$since" ] && [ "$was" != "$boot" ] && [ "$host" != "$node" ] && continue
    set -- "$@" "$path" "$(ls -lnA "$path")"
  done
  gone=0
  [ $# -gt 0 ] && sleep $still
  while [ $# -gt 0 ]; do
    [ "$(ls -lnA "$1")" = "$2" ] && emptied "$1" && gone=$((gone+1))
    shift 2
  done
}
"""
)

# Arguments: work folder as the device file names it, our name. Prints its real path. What is refused, and why, is the
# last line of stderr: "hwbench:", a word, a name.
PREPARE = (
    PLACE
    + OURS
    + _AGES
    + _BROKEN_OFF
    + rf"""
mark={MARK}
left={LEFT_S}
hold={HOLD_S}
"""
    + r"""
refuse() { echo "hwbench: $*" >&2; exit 5; }
known() {
  name=${1##*/}
  case $1 in
    files | run | tmp | live) [ -d "$1" ] && ! [ -L "$1" ] ;;
    files/*) hex "${name%%.*}" 64 ;;
    run/* | tmp/* | live/*) hex "${name%%.*}" 16 ;;
    *) false ;;
  esac
}
adopt() {
  some=$made
  for path in * .[!.]* ..?* */* */.[!.]* */..?*; do
    [ -e "$path" ] || [ -L "$path" ] || continue
    known "$path" || [ "$path" = $mark ] || refuse foreign "$path"
    some=1
  done
  [ "$some" ] && return
  # It is empty, and may be there for everybody: such a folder is not taken away from the others.
  case $(ls -ld .) in ?????????[tT]*) refuse shared ;; esac
  [ "$work" != / ] || refuse shared
  ! [ "$HOME" ] || [ "$work" != "$(cd "$HOME" && pwd -P)" ] || refuse shared
}
place "$1"
own=$2 above=${folder%/*} made=
[ -L "$folder" ] && refuse link "$(cd "$folder" && pwd -P)"
if ! [ -e "$folder" ]; then
  [ -z "$above" ] || mkdir -p "$above" || exit 1
  umask 077
  if mkdir "$folder"; then made=1; else [ -d "$folder" ] || exit 1; fi
fi
umask 077
if ! [ -d "$folder" ]; then echo "Not a directory" >&2; exit 1; fi
[ -O "$folder" ] || refuse owner
cd "$folder" || exit 1
[ -O . ] || refuse owner
work=$(pwd -P)
if ! { [ -f $mark ] && [ -O $mark ] && ! [ -L $mark ]; }; then
  [ -L $mark ] && refuse foreign $mark
  adopt
  # On a full disk it need not succeed: what lies there is known by its names.
  { echo "hwbench keeps files in this folder, and removes those of them that are old." > $mark; } 2>/dev/null
fi
for part in files run tmp live; do
  [ -L $part ] && refuse foreign $part
  [ -d $part ] || mkdir $part || [ -d $part ] || exit 1
  [ -O $part ] || refuse owner
done
chmod go-w . files run tmp live 2>/dev/null
ours . || refuse open
clock
for path in tmp/*; do
  name=${path#tmp/}
  hex "$name" 16 && [ -d "$path" ] && [ -O "$path" ] && ! [ -L "$path" ] || continue
  running "$name" && continue
  age "$name"
  if ! [ "$age" ]; then sign "$name"
  elif [ "$age" -gt $left ]; then rm -rf "$path" "live/$name" "live/$name.uses"
  elif [ "$age" -gt $hold ]; then
    for part in "$path"/part.*; do [ -d "$part" ] && [ "$(ls -A "$part")" ] && emptied "$part"; done
  fi
done
rm -rf "tmp/$own" "live/$own.uses"
mkdir "tmp/$own" 2>/dev/null || { broken_off; mkdir "tmp/$own"; } || exit 1
sign "$own"
echo "$work"
"""
)

# Arguments: work folder, our name. Says that we are there.
REFRESH = (
    _AGES
    + r"""
cd "$1" && [ -d "tmp/$2" ] || exit 1
clock
sign "$2"
exit 0
"""
)

# Arguments: work folder, our name. Prints the names in files, the last used first; KiB and name of each; and the names
# that other clients use now; with a slash between them.
LIST = (
    OURS
    + _AGES
    + rf"""
hold={HOLD_S}
"""
    + r"""
cd "$1/files" || exit 1
ls -t
echo /
du -sk *
echo /
cd .. || exit 1
clock
for uses in live/*.uses; do
  [ -f "$uses" ] || continue
  name=${uses#live/}
  name=${name%.uses}
  [ "$name" = "$2" ] && continue
  age "$name"
  if ! [ "$age" ] || [ "$age" -le $hold ] || running "$name"; then cat "$uses"; fi
done
exit 0
"""
)

# Arguments: work folder, our name. Prints how many uploads of others were removed that had broken off.
FREE = (
    OURS
    + _AGES
    + _BROKEN_OFF
    + r"""
cd "$1" || exit 1
own=$2
clock
broken_off
echo "$gone"
"""
)

# Arguments: work folder, our name. Removes what only we needed.
CLEAR = 'cd "$1" && rm -rf "tmp/$2" "live/$2" "live/$2.uses"'
