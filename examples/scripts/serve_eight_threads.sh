#!/bin/sh
# Serves a model from one process with eight threads, each with a clone of one executable: code and weights are there
# once.  First the rate that this machine can give, then a server that answers requests on a Unix socket.
#
#   serve_eight_threads.sh MODEL.onnx SOCKET
set -eu
model=$1 socket=$2

tw compile "$model" -o served.twa
tw bench served.twa --streams 8 --threads 1 --seconds 1
exec python3 "$(dirname "$0")/serve.py" served.twa "$socket" --threads 8
