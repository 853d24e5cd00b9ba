"""Reads a picture with three compiled networks, checks them against ONNX Runtime, and repeats it for a board.

./dev demo downloads the networks and starts this.  It ends with 0 only if every line was read without a
mistake, every output agrees with ONNX Runtime's, and the board's answer is the same.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import board
import ocr
import picture
import tilewright as tw

ROOT = Path(__file__).resolve().parents[1]
NETWORKS = {
    "detection": "ch_PP-OCRv4_det_infer.onnx",
    "classification": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "recognition": "ch_PP-OCRv4_rec_infer.onnx",
}
TOLERANCE = 1e-3  # of probabilities, after some hundred layers in f32
console = Console(highlight=False)


class Network:
    """One network, compiled for this machine and loaded into ONNX Runtime, with what they were seen to do."""

    def __init__(self, kind: str, path: Path, shape: tuple[int, ...], threads: int):
        self.kind, self.path, self.shape = kind, path, shape
        start = time.perf_counter()
        self.model = tw.load(path, shapes={"x": shape})
        self.executable = tw.compile(self.model, threads=threads)
        self.compile_seconds = time.perf_counter() - start
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.worst_difference = 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Our answer, compared with ONNX Runtime's."""
        (answer,) = self.executable.run({"x": x}).values()
        (expected,) = self.session.run(None, {"x": x})
        self.worst_difference = max(self.worst_difference, float(np.abs(answer - expected).max()))
        self.last_input = x
        return answer

    def latencies(self, seconds: float) -> tuple[float, float]:
        """Median milliseconds of ours and of ONNX Runtime's, measured in turn."""
        x, ours, theirs = self.last_input, [], []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(ours) < 5:
            for samples, run in (
                (ours, lambda: self.executable.run({"x": x})),
                (theirs, lambda: self.session.run(None, {"x": x})),
            ):
                run()  # wakes this one's threads
                start = time.perf_counter()
                for _ in range(3):
                    run()
                samples.append((time.perf_counter() - start) / 3 * 1e3)
        return statistics.median(ours), statistics.median(theirs)


def read(image, models: Path, threads: int):
    """Finds, turns and reads the lines of the picture.  Returns the networks and a row for each line."""

    def network(kind: str, shape: tuple[int, ...]) -> Network:
        with console.status(f"Compiling the {kind} network for this CPU"):
            return Network(kind, models / NETWORKS[kind], shape, threads)

    x = ocr.detection_input(image)
    detection = network("detection", x.shape)
    boxes = ocr.find_lines(detection(x))
    lines = [image.crop((box.left, box.top, box.right, box.bottom)) for box in boxes]
    width = ocr.recognition_width(lines)
    classification = network("classification", ocr.CLASSIFICATION_SHAPE)
    recognition = network("recognition", (1, 3, ocr.RECOGNITION_HEIGHT, width))
    metadata = {entry.key: entry.value for entry in onnx.load(recognition.path).metadata_props}
    alphabet = ocr.alphabet(metadata["character"])

    rows = []
    for box, line in zip(boxes, lines, strict=True):
        turned = ocr.is_upside_down(classification(ocr.line_input(line, ocr.CLASSIFICATION_SHAPE[-1])))
        answer = recognition(ocr.line_input(line.rotate(180) if turned else line, width))
        rows.append((box, turned, *ocr.decode(answer, alphabet)))
    return [detection, classification, recognition], rows, alphabet


def show_text(rows) -> None:
    table = Table(
        title="The text in the picture", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name, justify in (("at", "left"), ("turned", "left"), ("read", "left"), ("confidence", "right")):
        table.add_column(name, justify=justify)
    for box, turned, text, confidence in rows:
        table.add_row(f"{box.left},{box.top}", "180°" if turned else "", f"[bold]{text}[/]", f"{confidence:.1%}")
    console.print(table)


def show_networks(networks, threads: int, seconds: float) -> None:
    title = f"One inference on this CPU, {threads} threads, in milliseconds"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("network")
    for name in ("input", "compiled", "Tilewright", "ONNX Runtime", "difference"):
        table.add_column(name, justify="right")
    with console.status("Measuring"):
        for network in networks:
            ours, theirs = network.latencies(seconds)
            table.add_row(
                network.kind,
                "×".join(map(str, network.shape)),
                f"{network.compile_seconds:.1f} s",
                f"{ours:.2f}",
                f"{theirs:.2f}",
                f"{network.worst_difference:.1e}",
            )
    console.print(table)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--models", type=Path, default=ROOT / ".cache/demo/models")
    arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--seconds", type=float, default=1.5, help="of measuring each network")
    arguments.add_argument("--no-board", action="store_true", help="leave out the emulated board")
    options = arguments.parse_args()

    image = picture.draw()
    saved = ROOT / ".cache/demo/picture.png"
    picture.save(image, saved)
    console.print(f"A picture with {len(picture.LINES)} lines of text: {saved.relative_to(ROOT)}")
    networks, rows, alphabet = read(image, options.models, options.threads)
    show_text(rows)
    show_networks(networks, options.threads, options.seconds)

    problems = []
    if [text for _, _, text, _ in rows] != [text for text, *_ in picture.LINES]:
        problems.append("the text read is not the text drawn")
    problems += [
        f"{n.kind}: differs from ONNX Runtime by {n.worst_difference:.1e}"
        for n in networks
        if not n.worst_difference <= TOLERANCE
    ]
    if not options.no_board:
        with console.status("Compiling the recognition network for AArch64, running it under qemu"):
            answer = board.run(networks[2].model, networks[2].last_input)
        difference = float(np.abs(answer.output - networks[2](networks[2].last_input)).max())
        text, _ = ocr.decode(answer.output, alphabet)
        console.print(
            f"AArch64: compiled in {answer.compile_seconds:.1f} s to {answer.artifact_bytes / 1e6:.1f} MB, "
            f"ran under qemu in {answer.run_seconds:.1f} s, read [bold]{text}[/]\n"
            f"         largest difference from this CPU {difference:.1e}"
        )
        if text != rows[-1][2] or not difference <= TOLERANCE:
            problems.append("the board's answer is another one")
    for problem in problems:
        console.print(f"[bold red]wrong:[/] {problem}")
    if not problems:
        console.print("[bold green]All lines are right, and every output agrees.[/]")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
