"""libFuzzer over the importer of ONNX, under AddressSanitizer and UndefinedBehaviorSanitizer.

    ./dev test --campaign importer [--runs 1000000] [--jobs 2] [--seed 1] [--keep FOLDER]

tests/fuzz/fuzz_onnx_import.cpp says what has to hold of any bytes.  It begins with tests/fuzz/onnx_corpus and the
models of ONNX's suite, once with their inputs and once with all but the first as constants.  An input may take 20 s
and 2 GiB.  What crashes or hangs is left in FOLDER (build-sanitize/fuzz), and a process begins anew after it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

from onnx.backend.test.loader import load_model_tests  # noqa: E402

from onnx_suite import bind  # noqa: E402

# known: sizes within a loop that a later node proves equal keep their older form in the graph that is imported, which
# then does not verify; what is compiled is a copy, in which all are of one form.
LEFT_OUT = {"test_loop11"}
MOST_BYTES = 8192  # of an input
MOST_FAILURES = 20  # of a process, after which it ends


def write_seeds(folder: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if case.name not in LEFT_OUT]
    for case in cases:
        models = {"": case.model, "-bound": bind(case.model, case.data_sets[0][0], 1)}
        for form, model in models.items():
            if model.ByteSize() <= MOST_BYTES:
                (folder / f"{case.name}{form}").write_bytes(model.SerializeToString())
    return len(list(folder.iterdir()))


def fuzz(runs: int, seed: int, seeds: Path, keep: Path) -> tuple[int, int, int]:
    """(executions, crashes, hangs)"""
    done, crashes, hangs = 0, 0, 0
    with tempfile.TemporaryDirectory() as found:
        while done < runs and crashes + hangs < MOST_FAILURES:
            command = [ROOT / "build-sanitize/tests/fuzz_onnx_import", f"-runs={runs - done}", f"-seed={seed}"]
            command += [f"-max_len={MOST_BYTES}", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"]
            command += [f"-artifact_prefix={keep}/", found, ROOT / "tests/fuzz/onnx_corpus", seeds]
            ended = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            text = ended.stderr.decode(errors="replace")
            executed = re.search(r"number_of_executed_units:\s*(\d+)", text)
            done += int(executed[1]) if executed else 0
            if ended.returncode == 0 or "run interrupted" in text:
                break
            if "ERROR: libFuzzer: timeout" in text:
                hangs += 1
            else:
                crashes += 1
            error = re.search("^.*(ERROR: |runtime error: |terminate called)", text, re.MULTILINE)
            print(text[error.start() :][:2000] if error else text[-2000:], flush=True)
            seed += 1000
            if not executed:
                break
    return done, crashes, hangs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=ROOT / "build-sanitize/fuzz")
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        models = write_seeds(Path(folder))
        share = -(-arguments.runs // arguments.jobs)
        parts = pool.map(
            lambda job: fuzz(share, arguments.seed + job, Path(folder), arguments.keep), range(arguments.jobs)
        )
        executions, crashes, hangs = map(sum, zip(*parts, strict=True))
    print(f"{executions} executions of the importer, begun with {models} models: {crashes} crashes, {hangs} hangs")
    sys.exit(crashes + hangs > 0 or executions < arguments.runs)
