"""The `tw` command line.

Results go to stdout, errors to stderr.  A user's mistake ends with status 2 and its code, never with a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

import tilewright as tw

from . import compare_cli, device_cli, reduce_cli
from .cli_models import load_model, read_operators
from .cli_options import (
    Constants,
    Fallback,
    InPlace,
    Inputs,
    ModelFile,
    ModelPath,
    OperatorFile,
    Precision,
    Profiles,
    Records,
    Seed,
    Shapes,
    Sizes,
    Specialise,
    Target,
    Threads,
    Winograd,
    parse_constants,
    parse_in_place,
    parse_profiles,
    parse_shapes,
    parse_sizes,
    read_inputs,
    refuse_options_of_compiling,
)
from .interrupt import is_ignored, raise_keyboard_interrupt
from .lazy import lazily
from .notes import note

report, tune_report, tuning_charts = lazily("report"), lazily("tune_report"), lazily("tuning_charts")
html_page, made_up = lazily("html_page"), lazily("made_up")

app = typer.Typer(
    name="tw",
    help="Compile neural networks to machine code, run them, measure them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


INTERRUPTED = 130  # status of a command that Ctrl-C has ended, as shells have it


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"tilewright {tw.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def executable_of(
    context: typer.Context,
    path: Path,
    shapes: list[str],
    target: str,
    threads: int | None,
    precision: str,
    winograd: bool,
    in_place: list[str],
    db: Path | None,
    profiles: list[str],
    specialise: bool,
    operators: Path | None,
    fallback: str | None,
    constants: list[str],
) -> tw.Executable:
    """Loads an artifact, or loads and compiles a model."""
    if path.suffix == ".twa":
        refuse_options_of_compiling(context, path)
        executable = tw.load_executable(path, read_operators(operators))
        if threads is not None:
            executable.threads = threads
        return executable
    model = load_model(path, shapes, operators, fallback, constants)
    return tw.compile(
        model,
        target,
        threads,
        precision,
        db,
        winograd,
        in_place=parse_in_place(in_place),
        profiles=parse_profiles(profiles),
        specialise=specialise,
    )


@app.command()
def doctor(measure: Annotated[bool, typer.Option(help="Measure the peak and the memory, too (2 s).")] = True) -> None:
    """Show this machine, what was found on it, and which targets it serves."""
    report.doctor(measure)


@app.command()
def explain(
    model: ModelFile,
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    operators: OperatorFile = None,
    fallback: Fallback = None,
    html: Annotated[
        Path | None, typer.Option(help="Writes a page with the parts and what each node costs to this .html file.")
    ] = None,
) -> None:
    """Show a model's operators, coverage, work and size, without compiling it."""
    if fallback is None:
        print(tw.explain(model, parse_shapes(shape), read_operators(operators), html, parse_constants(constants)))
        return
    network = load_model(model, shape, operators, fallback, constants)
    print(network.explain())
    if html is not None:
        network.explain_html(html)


@app.command()
def compile(
    context: typer.Context,
    model: ModelFile,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The artifact; MODEL.twa if left out.")] = None,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    in_place: InPlace = [],  # noqa: B006
    db: Records = None,
    profile: Profiles = [],  # noqa: B006
    operators: OperatorFile = None,
    fallback: Fallback = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the compiler did, too.")] = False,
) -> None:
    """Compile a model to a .twa artifact."""
    start = time.perf_counter()
    if model.suffix == ".twa":
        raise tw.Error("TW1101", f"{model} is compiled\nhelp: give the model that it was made from")
    output = output or model.with_suffix(".twa")
    executable = executable_of(
        context,
        model,
        shape,
        target,
        threads,
        precision,
        winograd,
        in_place,
        db,
        profile,
        False,
        operators,
        fallback,
        constants,
    )
    executable.save(output)
    report.compiled(executable, output, time.perf_counter() - start)
    if verbose:
        print(executable.report())


@app.command()
def run(
    context: typer.Context,
    model: ModelPath,
    input: Inputs = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Writes the outputs to this .npz file.")] = None,
    seed: Seed = 0,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    size: Sizes = [],  # noqa: B006
    in_place: InPlace = [],  # noqa: B006
    db: Records = None,
    profile: Profiles = [],  # noqa: B006
    specialise: Specialise = False,
    operators: OperatorFile = None,
    fallback: Fallback = None,
) -> None:
    """Run a model or an artifact once; inputs that are not given are made up."""
    executable = executable_of(
        context,
        model,
        shape,
        target,
        threads,
        precision,
        winograd,
        in_place,
        db,
        profile,
        specialise,
        operators,
        fallback,
        constants,
    )
    feed = read_inputs(input)
    if not feed:
        feed = made_up.made_up_inputs(executable.input_tensors, seed, parse_sizes(size, executable.dimensions))
        note("no --input: seeded random inputs")
    executable.seed(seed)
    outputs = executable.run(feed)
    report.outputs(outputs)
    if output:
        try:
            import numpy as np

            np.savez(output, **report.tensors_of(outputs))
        except OSError as error:
            raise tw.Error("TW1001", f"{output} cannot be written: {error.strerror}") from None


@app.command()
def bench(
    context: typer.Context,
    model: ModelPath,
    kernels: Annotated[bool, typer.Option("--kernels", "-k", help="Show every kernel, too.")] = False,
    roofline: Annotated[Path | None, typer.Option(help="Writes the kernels' roofline to this .svg file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Writes a run to this .json file for ui.perfetto.dev.")] = None,
    input: Inputs = [],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="Of measuring.")] = 3.0,
    warm_up: Annotated[float, typer.Option(help="Seconds of runs before, which do not count.")] = 0.2,
    streams: Annotated[int, typer.Option(help="So many runs at once, each on -j threads.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    seed: Seed = 0,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    size: Sizes = [],  # noqa: B006
    in_place: InPlace = [],  # noqa: B006
    db: Records = None,
    profile: Profiles = [],  # noqa: B006
    specialise: Specialise = False,
    operators: OperatorFile = None,
    fallback: Fallback = None,
) -> None:
    """Measure the latency with its spread; with --kernels, each kernel's bound and the share reached."""
    executable = executable_of(
        context,
        model,
        shape,
        target,
        threads,
        precision,
        winograd,
        in_place,
        db,
        profile,
        specialise,
        operators,
        fallback,
        constants,
    )
    feed = read_inputs(input)
    if not feed:
        feed = made_up.made_up_inputs(executable.input_tensors, seed, parse_sizes(size, executable.dimensions))
    measured = tw.benchmark(executable, feed, seconds, warm_up, streams)
    times = executable.profile(feed) if kernels or roofline or trace else None
    bounds = report.benchmark(executable, feed, measured, as_json, times if kernels else None)
    if kernels and not as_json:
        report.kernels(times, *bounds)
    if roofline:
        report.roofline(times, *bounds, roofline, model.name)
    if trace:
        times.to_perfetto(trace)


@app.command()
def tune(
    model: ModelFile,
    db: Annotated[
        Path | None,
        typer.Option("--db", help="Where records are kept; made where there is none.  Needed, except with --check."),
    ] = None,
    budget: Annotated[str, typer.Option(help="How long to search: 60s, 10m, 8h.")] = "10m",
    seed: Annotated[int, typer.Option(help="Of the search and of made-up inputs.")] = 0,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    explain: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="Search nothing: show what is known of a kernel, by its name or key."),
    ] = None,
    device: Annotated[
        list[str], typer.Option("--device", help="tcp://HOST:PORT of a `tw device serve` that measures; any number.")
    ] = [],  # noqa: B006
    key_file: device_cli.KeyFile = None,
    ray: Annotated[
        str | None, typer.Option(help="Measure on the nodes of this Ray cluster: auto, local, or its address.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Try candidates and keep nothing: for emulated devices.")
    ] = False,
    profile: Profiles = [],  # noqa: B006
    operators: OperatorFile = None,
    fallback: Fallback = None,
) -> None:
    """Search for faster schedules and choices of the network; the same command goes on where it stopped.

    Ctrl-C ends after the current candidate, twice at once; the exit status is 130 then.
    """
    if explain is not None:
        if db is None:
            raise tw.Error("TW1101", "--explain reads a database\nhelp: --db names it")
        print(tune_report.explained(str(db), explain))
        return
    loaded = load_model(model, shape, operators, fallback, constants)
    raise_keyboard_interrupt()
    try:
        with tune_report.progress() as on_event:
            with device_cli.ray_devices(ray) as devices:
                result = tw.tune(
                    loaded,
                    target,
                    db,
                    budget,
                    seed,
                    on_event,
                    threads,
                    precision,
                    winograd,
                    [*device, *devices],
                    key_file,
                    check,
                    profiles=parse_profiles(profile),
                )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tune_report.finished(result)
        was_stopped = result.was_stopped
    except KeyboardInterrupt:
        note("ended by Ctrl-C; what was tried is kept, and the same command goes on")
        was_stopped = True
    if was_stopped:
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # the job may be in compiled code, which nobody waits for


app.command("check")(compare_cli.check_command)
app.command("compare")(compare_cli.compare_command)
app.command("reduce")(reduce_cli.reduce_command)
app.add_typer(device_cli.app)
db_app = typer.Typer(name="db", help="Work on a database of tuned schedules.", no_args_is_help=True)
app.add_typer(db_app)
DatabasePath = Annotated[Path, typer.Argument(help="A database that `tw tune` made.")]


@db_app.command("show")
def db_show(
    database: DatabasePath,
    task: Annotated[
        str | None, typer.Option(help="One kernel, by its name or key: its trials and predictions.")
    ] = None,
) -> None:
    """Show what is in it."""
    from . import _core

    if task is not None:
        print(tune_report.explained(str(database), task))
        return
    tune_report.database(_core.database_summary(str(database)))


@db_app.command("merge")
def db_merge(
    database: DatabasePath,
    others: Annotated[list[Path], typer.Argument(help="Databases, or lines of JSON as `tw db export` writes them.")],
) -> None:
    """Add the rows of others, in any order; each of them wholly or not at all."""
    from . import _core

    for other in others:
        print(f"{other}: {_core.database_merge(str(database), str(other))} new rows")


@db_app.command("export")
def db_export(
    database: DatabasePath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file instead of the standard output.")
    ] = None,
) -> None:
    """Write every row as a line of JSON."""
    from . import _core

    try:
        with open(output, "w") if output else nullcontext(sys.stdout) as file:
            _core.database_lines(str(database), lambda line: print(line, file=file))
    except OSError as error:
        raise tw.Error("TW1001", f"{output} cannot be written: {error.strerror}") from None


@db_app.command("verify")
def db_verify(database: DatabasePath) -> None:
    """Check the file and the digest of every row; status 1 if anything is wrong."""
    from . import _core

    problems = _core.database_verify(str(database))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "everything is as it was written")
    if problems:
        raise typer.Exit(1)


@db_app.command("prune")
def db_prune(database: DatabasePath) -> None:
    """Remove records of other versions of the compiler, which this one does not use."""
    from . import _core

    print(f"{_core.database_prune(str(database))} rows removed")


@app.command("report")
def report_page(
    database: DatabasePath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
) -> None:
    """Write one offline HTML page with charts of what tuning jobs found."""
    text = tuning_charts.page(tuning_charts.read(str(database)), f"Tuning report: {database.name}")
    html_page.write_page(output, text)
    print(f"{output}: {len(text.encode()) / 1e6:.1f} MB")


@app.command()
def inspect(
    context: typer.Context,
    path: ModelPath,
    text: Annotated[bool, typer.Option(help="Print the graph of a model in its text form.")] = False,
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
) -> None:
    """Show what is inside an artifact (of any machine) or a model."""
    if path.suffix == ".twa":
        refuse_options_of_compiling(context, path)
        report.artifact(path)
    elif text:
        print(tw.load(path, parse_shapes(shape), constants=parse_constants(constants)).text)
    else:
        print(tw.explain(path, parse_shapes(shape), constants=parse_constants(constants)))


def main() -> None:
    # Compiled code does not hear of Ctrl-C: it ends the command at once, but for those that have something to finish.
    if not is_ignored():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        app(prog_name="tw")
    except tw.Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()
