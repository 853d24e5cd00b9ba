"""The `tw` command line.

Results go to stdout, errors to stderr.  A user's mistake ends with status 2 and its code, never with a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright as tw

from . import compare_cli, device_cli, kit_cli, reduce_cli
from .cli_models import Compiling, compiles, feed_of, read_operators, refuse_options_of_compiling
from .cli_options import (
    AsJson,
    Constants,
    Fallback,
    Inputs,
    ModelFile,
    ModelPath,
    OperatorFile,
    Seed,
    Shapes,
    Sizes,
    parse_constants,
    parse_profiles,
    parse_shapes,
)
from .interrupt import is_ignored, raise_keyboard_interrupt
from .lazy import lazily
from .notes import note, show_warnings

report, tune_report, tuning_charts = lazily("report"), lazily("tune_report"), lazily("tuning_charts")
html_page, deploying, models = lazily("html_page"), lazily("deploying"), lazily("model")

app = typer.Typer(
    name="tw",
    help="Compile neural networks to machine code, run them, measure them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


INTERRUPTED = 130  # status of a command that Ctrl-C has ended, as shells have it


def show(facts: dict[str, Any], as_json: bool, tell: Callable[[dict[str, Any]], None]) -> None:
    """A command's result: one object for scripts, or as `tell` puts it for people."""
    report.print_json(facts) if as_json else tell(facts)


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


@app.command()
def doctor(
    measure: Annotated[
        bool, typer.Option(help="Also measure peak arithmetic and memory bandwidth (2 seconds).")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Show this machine, what was found on it, and which targets it serves."""
    show(report.machine_facts(measure), as_json, report.doctor)


@app.command()
def explain(
    model: ModelFile,
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    operators: OperatorFile = None,
    fallback: Fallback = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page that shows the graph's parts and the cost of each node to this .html file."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Also compile for this target, and show what its kernels take.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a model's operators, coverage, work and size; it is only compiled with --target."""
    how = Compiling(shape=shape, constants=constants, operators=operators, fallback=fallback)
    if fallback is None:
        known = parse_shapes(shape), read_operators(operators)
        text = tw.explain(model, *known, html, parse_constants(constants))
        facts = models.describe(model, *known, parse_constants(constants)) if as_json else {}
    else:
        network = how.load(model)
        text, facts = network.explain(), network.describe() if as_json else {}
        if html is not None:
            network.explain_html(html)
    plan = {} if target is None else compiled_facts(replace(how, target=target), model)
    if plan:
        facts["compiled"] = plan

    def tell(facts: dict[str, Any]) -> None:
        print(text)
        if plan:
            report.steps(plan)
            report.requests(plan["requests"])

    show(facts, as_json, tell)


def compiled_facts(how: Compiling, model: Path) -> dict[str, Any]:
    """What `tw inspect` tells of the model's artifact, and how its kernels for a GPU reach memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / model.with_suffix(".twa").name
        executable = how.compile(how.load(model))
        executable.save(path)
        facts: dict[str, Any] = report.artifact_facts(path)
        return facts | {"requests": executable.memory_requests}


@app.command()
@compiles("specialise", "gpu")
def compile(
    context: typer.Context,
    model: ModelFile,
    how: Compiling,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The artifact to write. Default: MODEL.twa.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also show what the compiler did.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile a model to a .twa artifact."""
    start = time.perf_counter()
    if model.suffix == ".twa":
        raise tw.Error("TW1101", f"{model} is compiled\nhelp: give the model that it was made from")
    output = output or model.with_suffix(".twa")
    executable = how.executable(context, model)
    executable.save(output)
    show(report.file_facts(executable, output, time.perf_counter() - start), as_json, report.compiled)
    if verbose and not as_json:
        print(executable.report())


@app.command()
@compiles("specialise", "gpu")
def deploy(
    context: typer.Context,
    model: ModelPath,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to make. Files of the same names in it are replaced.")
    ],
    how: Compiling,
    input: Inputs = [],  # noqa: B006
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="How far numbers may be off in its check, as a share of an output's largest; by the precision."
        ),
    ] = None,
    seed: Seed = 0,
    size: Sizes = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Make a folder that runs where it is copied to: artifact, runner, C library and example, and a check of itself."""
    network = None if model.suffix == ".twa" else how.load(model)  # while it is there, it says what to expect
    executable = how.executable(context, model) if network is None else how.compile(network)
    feed = feed_of(executable, input, size, seed)
    deploying.deploy(executable, output, feed, tolerance=tolerance, name=model.stem)
    show(report.folder_facts(executable, output), as_json, report.deployed)


@app.command()
@compiles()
def run(
    context: typer.Context,
    model: ModelPath,
    how: Compiling,
    input: Inputs = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz file.")] = None,
    seed: Seed = 0,
    size: Sizes = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Run a model or an artifact once; inputs that are not given are made up."""
    executable = how.executable(context, model)
    feed = feed_of(executable, input, size, seed)
    executable.seed(seed)
    outputs = executable.run(feed)
    show(report.output_facts(outputs) if as_json else outputs, as_json, report.outputs)
    if output:
        try:
            import numpy as np

            np.savez(output, **report.tensors_of(outputs))
        except OSError as error:
            raise tw.Error("TW1001", f"{output} cannot be written: {error.strerror}") from None


@app.command()
@compiles()
def bench(
    context: typer.Context,
    model: ModelPath,
    how: Compiling,
    kernels: Annotated[bool, typer.Option("--kernels", "-k", help="Also show every kernel.")] = False,
    roofline: Annotated[
        Path | None, typer.Option(help="Write a page with the kernels' roofline to this .html file.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace of one run to this .json file, for ui.perfetto.dev.")
    ] = None,
    input: Inputs = [],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="How many seconds to measure.")] = 3.0,
    warm_up: Annotated[float, typer.Option(help="How many seconds to run before that, without measuring.")] = 0.2,
    streams: Annotated[int, typer.Option(help="How many runs at the same time, each with -j threads.")] = 1,
    as_json: AsJson = False,
    seed: Seed = 0,
    size: Sizes = [],  # noqa: B006
) -> None:
    """Measure the latency with its spread; with --kernels, each kernel's bound and the share reached."""
    executable = how.executable(context, model)
    feed = feed_of(executable, input, size, seed)
    measured = tw.benchmark(executable, feed, seconds, warm_up, streams)
    times = executable.profile(feed) if kernels or roofline or trace else None
    bounds = report.benchmark(executable, feed, measured, as_json, times if kernels else None)
    if kernels and not as_json:
        report.kernels(times, *bounds)
    if roofline:
        report.roofline(times, *bounds, roofline, model.name)
    if trace and times:
        times.to_perfetto(trace)


@app.command()
@compiles("in_place", "db", "specialise", "gpu")
def tune(
    model: ModelFile,
    how: Compiling,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db", help="The database for the results. It is made if there is none. Required, except with --check."
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="How long to search: 60s, 10m, 8h.")] = "10m",
    seed: Annotated[int, typer.Option(help="The seed of the search and of made-up inputs.")] = 0,
    explain: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="Do not search. Show what is known of one kernel, by its name or key."),
    ] = None,
    device: Annotated[
        list[str],
        typer.Option(
            "--device", help="Measure on this machine, tcp://HOST:PORT, where `tw device serve` runs. May be repeated."
        ),
    ] = [],  # noqa: B006
    key_file: device_cli.KeyFile = None,
    ray: Annotated[
        str | None, typer.Option(help="Measure on the nodes of this Ray cluster: auto, local, or its address.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Try candidates and keep no results: for emulated devices.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one line of JSON for each event, as when the output is not a terminal."),
    ] = False,
) -> None:
    """Search for faster schedules and choices of the network; the same command goes on where it stopped.

    Ctrl-C ends after the current candidate, twice at once; the exit status is 130 then.
    """
    if explain is not None:
        if db is None:
            raise tw.Error("TW1101", "--explain reads a database\nhelp: --db names it")
        show(tune_report.task_facts(str(db), explain), as_json, lambda facts: print(tune_report.explained(facts)))
        return
    loaded = how.load(model)
    raise_keyboard_interrupt()
    try:
        with tune_report.progress(as_json) as on_event:
            with device_cli.ray_devices(ray) as devices:
                result = tw.tune(
                    loaded,
                    how.target,
                    db,
                    budget,
                    seed,
                    on_event,
                    how.threads,
                    how.precision,
                    how.winograd,
                    how.strassen,
                    [*device, *devices],
                    key_file,
                    check,
                    profiles=parse_profiles(how.profile),
                )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tune_report.finished(result, as_json)
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
app.add_typer(kit_cli.app)
db_app = typer.Typer(name="db", help="Work on a database of tuned schedules.", no_args_is_help=True)
app.add_typer(db_app)
DatabasePath = Annotated[Path, typer.Argument(help="A database that `tw tune` made.")]


@db_app.command("show")
def db_show(
    database: DatabasePath,
    task: Annotated[
        str | None, typer.Option(help="Show the trials and predictions of one kernel, by its name or key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in it."""
    from . import _core

    if task is not None:
        show(tune_report.task_facts(str(database), task), as_json, lambda facts: print(tune_report.explained(facts)))
        return
    show(dict(_core.database_summary(str(database))), as_json, tune_report.database)


@db_app.command("merge")
def db_merge(
    database: DatabasePath,
    others: Annotated[list[Path], typer.Argument(help="Databases, or files of JSON lines from `tw db export`.")],
    as_json: AsJson = False,
) -> None:
    """Add the rows of others, in any order; each of them wholly or not at all."""
    from . import _core

    rows = {str(other): _core.database_merge(str(database), str(other)) for other in others}
    show(
        {"new_rows": rows},
        as_json,
        lambda _: print(*(f"{name}: {new} new rows" for name, new in rows.items()), sep="\n"),
    )


@db_app.command("export")
def db_export(
    database: DatabasePath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of the standard output.")
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
def db_verify(database: DatabasePath, as_json: AsJson = False) -> None:
    """Check the file and the digest of every row; status 1 if anything is wrong."""
    from . import _core

    problems = _core.database_verify(str(database))
    verdict = f"{len(problems)} problems" if problems else "everything is as it was written"
    show({"problems": problems}, as_json, lambda _: print(*problems, verdict, sep="\n"))
    if problems:
        raise typer.Exit(1)


@db_app.command("prune")
def db_prune(database: DatabasePath, as_json: AsJson = False) -> None:
    """Remove records of other versions of the compiler, which this one does not use."""
    from . import _core

    rows = _core.database_prune(str(database))
    show({"rows_removed": rows}, as_json, lambda _: print(f"{rows} rows removed"))


@app.command("report")
def report_page(
    database: DatabasePath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write one offline HTML page with charts of what tuning jobs found."""
    text = tuning_charts.page(tuning_charts.read(str(database)), f"Tuning report: {database.name}")
    html_page.write_page(output, text)
    size = len(text.encode())
    show({"page": str(output), "bytes": size}, as_json, lambda _: print(f"{output}: {size / 1e6:.1f} MB"))


@app.command()
def inspect(
    context: typer.Context,
    path: ModelPath,
    text: Annotated[bool, typer.Option(help="Print the graph of a model as text.")] = False,
    shape: Shapes = [],  # noqa: B006
    constants: Constants = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Show what is inside an artifact (of any machine) or a model."""
    if path.suffix == ".twa":
        refuse_options_of_compiling(context, path)
        show(report.artifact_facts(path), as_json, report.artifact)
        return
    known = parse_shapes(shape), None
    if text:
        graph = tw.load(path, *known, constants=parse_constants(constants)).text
        show({"text": graph}, as_json, lambda _: print(graph))
        return
    facts = models.describe(path, *known, parse_constants(constants)) if as_json else {}
    show(facts, as_json, lambda _: print(tw.explain(path, *known, constants=parse_constants(constants))))


def main() -> None:
    # Compiled code does not hear of Ctrl-C: it ends the command at once, but for those that have something to finish.
    if not is_ignored():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    show_warnings()
    try:
        app(prog_name="tw")
    except tw.Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()
