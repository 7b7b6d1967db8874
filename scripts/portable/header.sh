#!/bin/sh
: \  If Python shows this line, this hangdoc.pyz is damaged. Copy it again.
# (Python reads this script only if the archive behind it is cut off.)
# hangdoc in one file: this script, and behind it the archive that Python runs (`python3 hangdoc.pyz`). `sh hangdoc.pyz` and
# `./hangdoc.pyz` look for a Python that can run it: on the PATH, then that of a running process that has loaded torch.
set -uf
case $0 in */*) file=$0 ;; *) file=./$0 ;; esac
[ -f "$file" ] || file=$(command -v -- "$0")
standard=/usr/sbin:/usr/bin:/sbin:/bin
PATH=${PATH:-$standard}
limit=$(
    PATH=$PATH:$standard
    command -v timeout
) && limit="$limit 10" # a file system may not answer

tell() { echo "hangdoc: $*" >&2; }

# quote WORD...: the words for a shell, each after a space.
quote() {
    for word; do
        case $word in
            *[!A-Za-z0-9_./=:,@%+-]* | '') printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
}

# suits COMMAND...: whether it is a Python that can run hangdoc.
suits() {
    $limit "$@" -c 'import sys, zlib, ctypes
sys.exit(not ((@OLDEST@) <= sys.version_info[:2] <= (@NEWEST@) and sys.implementation.name == "cpython" and "t" not in sys.abiflags))' \
        </dev/null >/dev/null 2>&1
}

# closed FILE: whether nobody but root can have changed the Python with this executable (hangdoc/fleet/find_python.py).
@CLOSED@

# own PID FILE: whether a process of this user runs this file. root runs nothing only because a process of root does.
own() { [ "$me" != 0 ] && [ "$(stat -c %u "/proc/$1" 2>/dev/null)" = "$me" ] && [ "/proc/$1/exe" -ef "$2" ]; }

for name in @NAMES@; do
    command -v "$name" >/dev/null && suits "$name" || continue
    [ "$name" = python3 ] || tell "runs with $(command -v "$name")."
    exec "$name" "$file" "$@"
done

PATH=$PATH:$standard # for the programs below: only the user's PATH says which Python to take
me=$(id -u)
seen=
refused=
IFS='
'
for each in $(
    set +f
    ls -ld /proc/[0-9]*/exe 2>/dev/null | sed -n 's|^.* /proc/\([0-9]*\)/exe -> \(/.*/python[0-9.]*\)$|\1 \2|p'
); do
    IFS=' '
    pid=${each%% *}
    path=${each#* }
    case $seen in *"|$path|"*) continue ;; esac
    $limit grep -q libtorch "/proc/$pid/maps" 2>/dev/null || continue
    seen="$seen|$path|"
    if closed "$path" || own "$pid" "$path"; then
        suits "$path" -I -S || continue
        tell "runs with $path, the Python of process $pid."
        exec "$path" -I -S "$file" "$@" # without site-packages, which others may be able to change
    elif [ -e "$path" ]; then
        refused=$path
        user=$(stat -c "#%u" "/proc/$pid" 2>/dev/null)
    fi
done
IFS=' '
case $file in /*) ;; *) file=$PWD/${file#./} ;; esac
if [ -n "$refused" ]; then
    tell "no Python @RANGE@ is on the PATH, and root does not run $refused, which other users can change." \
        "Run hangdoc as the user of the ranks, who must be able to read the file: sudo -u$(quote "${user:-USER}") sh$(quote "$file" "$@")"
else
    tell "needs CPython @RANGE@. None is on the PATH, and none runs a process that has loaded torch and is readable." \
        "Name one: PATH=/path/to/env/bin:\$PATH sh$(quote "$file" "$@")"
fi
exit 2
