#!/bin/sh
# Measures a model and fails where it has become slower than the measurement that is kept in a file, which the first run
# makes.  Commit the file, or keep it where your CI keeps things; remove it to begin anew.
#
#   bench_in_ci.sh MODEL.onnx BASELINE.json [ALLOWED]      ALLOWED: by which share it may be slower; 0.1 if left out
set -eu
model=$1 baseline=$2 allowed=${3:-0.1}

tw bench "$model" --json --seconds 3 >measured.json
[ -e "$baseline" ] || cp measured.json "$baseline"
python3 - "$baseline" measured.json "$allowed" <<'PYTHON'
import json
import sys

before, now = (json.load(open(path)) for path in sys.argv[1:3])
ratio = now["median_ms"] / before["median_ms"]
print(f"{now['median_ms']:.3f} ms, {ratio:.2f} times the baseline's")
sys.exit(ratio > 1 + float(sys.argv[3]))
PYTHON
