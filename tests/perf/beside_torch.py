"""A network beside PyTorch in one process, on Tilewright's own threads and on those that PyTorch has.

    ./dev run python tests/perf/beside_torch.py MODEL.onnx [--threads 2]

Takes the package torch.  Each team in a process of its own; medians of runs that follow one another, alone and after
a product of matrices by PyTorch.
"""

import argparse
import statistics
import subprocess
import sys
import time


def measure(path: str, team: str, threads: int) -> None:
    import torch  # first: its OpenMP runtime is the one that is taken

    import tilewright as tw
    from tilewright.made_up import made_up_inputs, smallest_sizes

    executable = tw.compile(path, threads=threads)
    executable.team = team
    torch.set_num_threads(threads)
    inputs = made_up_inputs(executable.input_tensors, 0, smallest_sizes(executable.dimensions))
    a = torch.randn(600, 600)
    for name, theirs in (("alone", None), ("after PyTorch's product", lambda: a @ a)):
        ours, both = [], []
        for _ in range(60):
            start = time.perf_counter()
            if theirs:
                theirs()
            middle = time.perf_counter()
            executable.run(inputs)
            end = time.perf_counter()
            ours.append((end - middle) * 1e3)
            both.append((end - start) * 1e3)
        print(f"{team:7} {name:24} {statistics.median(ours[10:]):8.2f} ms, with it {statistics.median(both[10:]):8.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--team")
    given = parser.parse_args()
    if given.team:
        measure(given.model, given.team, given.threads)
    else:
        for team in ("own", "openmp"):
            command = [sys.executable, __file__, given.model, "--threads", str(given.threads), "--team", team]
            subprocess.run(command, check=True)
