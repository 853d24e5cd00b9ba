#!/bin/sh
# Checks a compiled model beside ONNX Runtime: outputs, and if they differ, where that begins and a small model that
# shows it.  Its exit status is 1 where they differ.
#
#   check_before_shipping.sh MODEL.onnx [OPTIONS OF tw check: --precision bf16, -i inputs.npz, --tolerance 1e-3 …]
set -eu
model=$1
shift

tw check "$model" "$@" && exit 0
tw compare "$model" "$@" --html "${model%.onnx}.differences.html" || true
tw reduce "$model" "$@" -o "${model%.onnx}.small.onnx"
exit 1
