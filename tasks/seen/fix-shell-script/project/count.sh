#!/bin/sh
# Prints how many entries a directory has.
set -eu
ls $1 | wc -l | tr -d ' '
