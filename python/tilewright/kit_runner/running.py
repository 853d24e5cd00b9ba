"""Has a worker run the cases of a kit, and writes what they gave.

Cases run in a process of their own, which is started again where one ends it, so that no case loses the others.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from .comparing import Facts
from .summary import is_bad, summary
from .worker import work

CASE_SECONDS = 120.0  # that a case may take before it is ended
MOST_FAULTS = 20  # in a row, of which the last is hardly its case's own
MOST_KEPT = 16 << 20  # bytes of outputs that differ


class Worker:
    """Answers requests in a process that is started where there is none."""

    def __init__(self, folder: Path, environment: dict[str, str], log: Path):
        self._folder, self._environment, self._log = folder, environment, log
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Facts, seconds: float) -> Facts:
        """Its reply; {"status": "crashed" or "too slow"} where there is none."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, str(self._folder / "kit.py"), "--worker"]
            with open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self._environment
                )
        process, end, text = self._process, time.monotonic() + seconds, b""
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close()
                return {"status": "too slow", "message": f"no answer within {seconds:.0f} s"}
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                status = process.wait()
                self.close()
                how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                return {"status": "crashed", "message": f"its process ended: {how}"}
            text += part
        reply: Facts = json.loads(text)
        if reply.get("status") == "failed":
            self.close()
        return reply

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass
        self._process = None


def nvidia_smi() -> str | None:
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu"
    if not shutil.which("nvidia-smi"):
        return None
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def run(folder: Path, output: Path, chosen: list[str], seconds: float, environment: dict[str, str]) -> Facts:
    """Runs the cases with such names, and gives what it has written to `output`."""
    manifest: Facts = json.loads((folder / "manifest.json").read_text())
    output.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(output / "outputs", ignore_errors=True)  # of a run before
    worker = Worker(folder, environment, output / "worker.log")
    cases = [case for case in manifest["cases"] if any(fnmatch.fnmatchcase(case["name"], part) for part in chosen)]
    results: Facts = {key: manifest[key] for key in ("tilewright", "target", "compiler")}
    results |= {"python": platform.python_version(), "system": platform.platform(), "clocks_before": nvidia_smi()}
    results["device"] = worker.ask({"job": "facts"}, CASE_SECONDS)
    results["ceilings"] = worker.ask({"job": "ceilings"}, CASE_SECONDS)
    worker.close()  # with the memory that it has copied
    results["cases"], results["is_complete"] = [], False
    if "message" in results["device"]:
        note(results["device"]["message"])
        cases = []
    elif not cases:
        note(f"no case is called {' or '.join(chosen)}: their names are the folders in cases/")
    try:
        run_cases(cases, results, worker, output, seconds)
    except KeyboardInterrupt:
        note("ended by Ctrl-C; what was run is written")
    results["is_complete"] = len(results["cases"]) == len(cases) > 0
    worker.close()
    results["clocks_after"] = nvidia_smi()
    write_results(results, output)
    return results


def run_cases(cases: list[Facts], results: Facts, worker: Worker, output: Path, seconds: float) -> None:
    """Adds their rows to the results, which are also written now and then."""
    start = saved = time.monotonic()
    faults = kept = 0
    for at, case in enumerate(cases):
        now = time.monotonic()
        if now - start > seconds:
            break
        if now - saved > 5:
            saved = now
            write_results(results, output)
            note(f"{at} of {len(cases)} cases, {now - start:.0f} s")
        place = output / "outputs" / case["name"]
        request = {"job": "case", "name": case["name"], "kept": str(place) if kept < MOST_KEPT else None}
        reply = worker.ask(request, CASE_SECONDS)
        results["cases"].append({**case, **reply, "seconds": round(time.monotonic() - now, 4)})
        kept += sum(file.stat().st_size for file in place.glob("*")) if reply["status"] == "wrong" else 0
        faults = faults + 1 if reply["status"] in ("failed", "crashed", "too slow") else 0
        if faults == MOST_FAULTS:
            note(f"{faults} cases in a row did not run; the last says: {reply['message']}")
            break


def write_results(results: Facts, output: Path) -> None:
    path = output / "results.json.new"
    path.write_text(json.dumps(results, indent=1))
    path.replace(output / "results.json")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(folder: Path) -> int:
    """The command: `folder` is the kit."""
    parser = argparse.ArgumentParser(description="Run this kit's cases on the GPU, and write what they gave.")
    parser.add_argument("--device", type=int, help="which GPU, as nvidia-smi numbers them; the first")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), help="the folder to write; results")
    parser.add_argument("--only", action="append", help="names of cases, with * and ?; may be repeated")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after about so many seconds")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(folder)
    environment = dict(os.environ)
    if options.device is not None:
        environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(options.device)}
    results = run(folder, options.output, options.only or ["*"], options.seconds, environment)
    print(summary(results))
    print(f"\nwritten to {options.output}: send that folder back")
    return 0 if results["is_complete"] and not any(map(is_bad, results["cases"])) else 1
