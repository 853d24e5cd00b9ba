"""Answers requests on a Unix socket: a request is an .npz file of the inputs, the answer one of the outputs.

    python3 serve.py MODEL.twa SOCKET --threads 8

Each thread has a clone of the executable, with one worker: eight requests are computed at once, on eight cores.
"""

import argparse
import io
import os
import queue
import socketserver

import numpy as np

import tilewright as tw


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        size = int.from_bytes(self.rfile.read(8), "little")
        with np.load(io.BytesIO(self.rfile.read(size)), allow_pickle=False) as request:
            inputs = dict(request)
        executable = self.server.idle.get()  # waits where all are at work
        try:
            outputs = executable.run(inputs)
        finally:
            self.server.idle.put(executable)
        file = io.BytesIO()
        np.savez(file, **outputs)
        self.wfile.write(len(file.getvalue()).to_bytes(8, "little") + file.getvalue())


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, socket: str, executable: tw.Executable, threads: int):
        super().__init__(socket, Answer)
        executable.threads = 1
        self.idle: queue.SimpleQueue[tw.Executable] = queue.SimpleQueue()
        for clone in [executable, *(executable.clone() for _ in range(threads - 1))]:
            self.idle.put(clone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("socket")
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    if os.path.exists(options.socket):
        os.unlink(options.socket)
    with Server(options.socket, tw.load_executable(options.model), options.threads) as server:
        print(f"{options.threads} threads answer at {options.socket}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
