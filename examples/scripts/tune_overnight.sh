#!/bin/sh
# Tunes a model for some hours, compiles it with what was found, and writes a report.  Ctrl-C, or a reboot, loses
# nothing: start it again, and it goes on.
#
#   tune_overnight.sh MODEL.onnx [BUDGET]      BUDGET: 8h if left out
set -eu
model=$1 budget=${2:-8h}
name=${model%.onnx}

trap : INT  # the job hears of Ctrl-C itself, and what comes after it is still to be done
status=0
tw tune "$model" --db "$name.db" --budget "$budget" --json >>"$name.jsonl" || status=$?
# 130: it was stopped; what it found until then counts.
[ "$status" = 0 ] || [ "$status" = 130 ] || exit "$status"

tw db verify "$name.db"
tw compile "$model" --db "$name.db" -o "$name.twa"
tw report "$name.db" -o "$name.html"
exit "$status"
