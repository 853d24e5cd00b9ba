#!/bin/sh
# Compiles a model for a board, copies it there, and has the board check that it computes the same.
#
#   deploy_to_a_board.sh MODEL.onnx TARGET HOST
#   deploy_to_a_board.sh detector.onnx rpi4 pi@camera-7
set -eu
model=$1 target=$2 host=$3
name=$(basename "$model" .onnx)

tw deploy "$model" --target "$target" -o "$name-$target"
scp -qr "$name-$target" "$host:"
ssh "$host" "./$name-$target/check.sh --repeat 20"
