"""`tw kit`: folders that try a GPU where there is no compiler, and what they gave there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright as tw

from .cli_models import Compiling, compiles
from .cli_options import AsJson
from .lazy import lazily
from .notes import note

kit, report, summary = lazily("kit"), lazily("report"), lazily("kit_runner.summary")
gpus_tried = lazily("gpus_tried")

app = typer.Typer(name="kit", help="Try a GPU where there is no compiler, and measure it.", no_args_is_help=True)


@app.command("make")
@compiles("target", "in_place", "profile", "specialise", "fallback", "db", "gpu")
def kit_make(
    how: Compiling,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to make. A kit that is there is replaced.")
    ],
    models: Annotated[
        list[Path] | None, typer.Argument(help="ONNX models that the kit runs, compares with a CPU, and measures.")
    ] = None,
    target: Annotated[str, typer.Option("--target", "-t", help="The GPU to compile for.")] = "cuda:sm_90",
    suite: Annotated[
        int | None, typer.Option(min=1, help="Also one in so many cases of ONNX's tests of operators; 1: all.")
    ] = None,
    only: Annotated[list[str], typer.Option(help="Only cases with such a name, with * and ?. May be repeated.")] = [],  # noqa: B006
    megabytes: Annotated[float, typer.Option(help="Leave out cases beyond that size of the kit.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Make a folder with compiled cases and a runner, for a machine with a GPU, its driver and Python alone."""
    how = replace(how, target=target)
    loaded = {path.stem: how.load(path) for path in models or []}  # as long as they are here, they say what to expect
    executables = {name: how.compile(model) for name, model in loaded.items()}
    made = tw.make_kit(output, target, executables, suite, only or ["*"], int(megabytes * 1e6), Progress())
    facts = {"folder": str(output), "cases": len(made["cases"]), "left_out": made["left_out"]}
    facts["unpredicted"] = made["unpredicted"]
    report.print_json(facts) if as_json else tell_made(facts)


class Progress:
    """Notes how many cases there are, now and then."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, name: str) -> None:
        self.count += 1
        if self.count % 200 == 0:
            note(f"{self.count} cases, now {name}")


def tell_made(facts: dict[str, Any]) -> None:
    for name, reason in facts["left_out"].items():
        print(f"without {name}: {reason}")
    for reason in sorted(set(facts["unpredicted"].values())):
        print(f"without predictions: {reason}")
    folder = facts["folder"]
    print(
        f"{folder}: {facts['cases']} cases. Copy it to a machine with the GPU, and run there: python3 {folder}/kit.py"
    )


def prediction(results: dict[str, Any]) -> dict[str, Any]:
    """How the data sheet's least times of kernels, where the kit has them, go with those that were measured."""
    from . import _core

    pairs = [
        (least, kernel["seconds"])
        for case in results["cases"]
        for kernel in case.get("kernels", ())
        if (least := case.get("least_seconds", {}).get(kernel["kernel"])) is not None
    ]
    least, measured = [each for each, _ in pairs], [each for _, each in pairs]
    correlation = _core.rank_correlation(least, measured) if len(pairs) > 1 else None
    return {"kernels": len(pairs), "rank_correlation": correlation}


def tell_read(summary: str, prediction: dict[str, Any]) -> None:
    print(summary)
    if prediction["rank_correlation"] is not None:
        print(
            f"\nleast times by the data sheet and measured ones of {prediction['kernels']} kernels: "
            f"rank correlation {prediction['rank_correlation']:.3f} (Spearman's)"
        )


@app.command("read")
def kit_read(
    results: Annotated[Path, typer.Argument(help="The folder that a kit's runner wrote, or its results.json.")],
    most: Annotated[int, typer.Option(help="How many cases to show that did not pass.")] = 40,
    tried: Annotated[
        Path | None,
        typer.Option(help="Where all cases passed, put the GPU in this list of those tried (gpus_tried.json)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a kit gave: cases that did not pass, rates, and how predictions order kernels; status 1 if there are
    any such or not all were run."""
    path = results / "results.json" if results.is_dir() else results
    try:
        found = json.loads(path.read_text())
        facts = summary.facts_of(found) | {"prediction": prediction(found)}
    except OSError as error:
        raise tw.Error("TW1001", f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise tw.Error("TW1001", f"{path} is not what a kit's runner writes") from None
    report.print_json(facts) if as_json else tell_read(summary.summary(found, most), facts["prediction"])
    if tried is not None:
        gpus_tried.record(found, tried)
    if facts["failed"] or not facts["is_complete"]:
        raise typer.Exit(1)
