#!/bin/sh
# check.sh TASK PROJECT ANSWER: exits with 0 if the task is done in the directory PROJECT; otherwise says what is missing.
# TASK is the directory of the task, ANSWER a file with what the agent said. The task's own check.sh uses the functions below.
set -eu
TASK=$(cd "$1" && pwd)
ORIGINAL=$TASK/project
ANSWER=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
export PYTHONDONTWRITEBYTECODE=1

fail() {
    printf "%s\n" "$*" >&2
    exit 1
}
# says PATTERN...: the answer has each of these, in upper or lower case.
says() {
    for pattern; do grep -Eiq -- "$pattern" "$ANSWER" || fail "the answer lacks: $pattern"; done
}
# silent_on PATTERN...: the answer has none of these.
silent_on() {
    for pattern; do ! grep -Eiq -- "$pattern" "$ANSWER" || fail "the answer has: $pattern"; done
}
# has FILE PATTERN, lacks FILE PATTERN: a file has a line, or none, that matches.
has() {
    [ -f "$1" ] || fail "$1 is missing"
    grep -Eq -- "$2" "$1" || fail "$1 lacks: $2"
}
lacks() {
    [ -f "$1" ] || fail "$1 is missing"
    ! grep -Eq -- "$2" "$1" || fail "$1 still has: $2"
}
# passes COMMAND...: a command succeeds.
passes() {
    "$@" >/dev/null 2>&1 </dev/null || fail "failed: $*"
}
# prints TEXT COMMAND...: a command succeeds and prints exactly this.
prints() {
    expected=$1
    shift
    printed=$("$@" 2>/dev/null </dev/null) || fail "failed: $*"
    [ "$printed" = "$expected" ] || fail "printed something else: $*"
}
# only FILE...: no file of the project was changed but these. New files are allowed.
only() {
    (cd "$ORIGINAL" && find . -type f) | while read -r file; do
        for allowed; do [ "./$allowed" != "$file" ] || continue 2; done
        cmp -s "$file" "$ORIGINAL/$file" || fail "changed: $file"
    done
}

cd "$2"
# Python trusts a cached file if the source has the same size and the same second of change.
find . -type d -name __pycache__ -prune -exec rm -rf {} +
. "$TASK/check.sh"
