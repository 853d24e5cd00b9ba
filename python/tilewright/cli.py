"""The `tw` command line.

Results go to stdout, errors to stderr.  A user's mistake ends with status 2 and its code, never with a traceback.
"""

from __future__ import annotations

import re
import runpy
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import tilewright as tw

from . import _core, device_cli, report, tune_report, tuning_charts

app = typer.Typer(
    name="tw",
    help="Compile neural networks to machine code, run them, measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelPath = Annotated[Path, typer.Argument(help="An ONNX model, or a .twa artifact where it can be run.")]
Shapes = Annotated[
    list[str],
    typer.Option(
        "--shape", "-s", help="NAME=1,3,224,224 fixes the shape of an input; NAME=batch:1..64,3,224,224 leaves it open."
    ),
]
Sizes = Annotated[
    list[str],
    typer.Option("--size", help="NAME=8: of an open dimension, for made-up inputs; its least if left out."),
]
Target = Annotated[str, typer.Option("--target", "-t", help="cpu, x86:avx2, aarch64, rpi4, cuda:sm_90, …")]
Threads = Annotated[int | None, typer.Option("--threads", "-j", help="Workers of a run; every core if left out.")]
Precision = Annotated[str, typer.Option(help="Of convolutions and matrix products: f32, bf16, f16.")]
Winograd = Annotated[bool, typer.Option(help="3×3 convolutions by Winograd's filtering: faster, rounds a little more.")]
InPlace = Annotated[
    list[str], typer.Option("--in-place", help="OUTPUT=INPUT: one array for both, of which a run changes elements.")
]
Profiles = Annotated[
    list[str],
    typer.Option(
        "--profile",
        help="batch=1,seq=128 or batch=1,seq=1..32..64: sizes of open dimensions that get their own kernels.",
    ),
]
Specialise = Annotated[bool, typer.Option("--specialise", help="Compile for the sizes of the run before it.")]
Records = Annotated[Path | None, typer.Option("--db", help="Tuned schedules: the database that `tw tune` made.")]
Fallback = Annotated[
    str | None, typer.Option(help="onnxruntime: it computes nodes that would be refused; says which, to stderr.")
]
OperatorFile = Annotated[
    Path | None, typer.Option("--operators", help="A Python file with a list `operators` of your own tw.Operator.")
]
Seed = Annotated[
    int, typer.Option(help="Of the inputs that are made up; in `tw run`, of random numbers that the model draws, too.")
]


def parse_dimension(text: str, option: str) -> int | tw.Dim | None:
    """8, batch, batch:1..64, batch:1.., or ? for what the model says."""
    if text.isdecimal():
        return int(text)
    if text == "?":
        return None
    match = re.fullmatch(r"([A-Za-z_]\w*)(?::(\d+)\.\.(\d*))?", text)
    if not match:
        raise tw.Error(
            "TW1004",
            f"--shape {option} does not say a shape: {text!r} is no dimension\n"
            "help: write --shape NAME=1,3,224,224 or --shape NAME=batch:1..64,3,224,224",
        )
    name, low, high = match.groups()
    return tw.Dim(name, int(low or 1), int(high) if high else None)


def parse_shapes(options: list[str]) -> dict[str, tuple[int | tw.Dim | None, ...]]:
    shapes = {}
    for option in options:
        name, equals, extents = option.partition("=") if ":" in option.partition("=")[2] else option.rpartition("=")
        if not equals:
            raise tw.Error("TW1004", f"--shape {option} does not say a shape\nhelp: write --shape NAME=1,3,224,224")
        is_fixed = re.fullmatch(r"\d+([,x]\d+)*|", extents)
        parts = re.split("[,x]" if is_fixed else ",", extents) if extents else []
        shapes[name] = tuple(parse_dimension(part, option) for part in parts)
    return shapes


def parse_sizes(options: list[str], dimensions: dict[str, tuple[int, int | None]]) -> dict[str, int]:
    """A size for each open dimension."""
    sizes = {name: max(low, 1) for name, (low, _) in dimensions.items()}
    for option in options:
        name, _, size = option.rpartition("=")
        if name not in sizes or not size.isdecimal():
            known = ", ".join(sizes) or "none"
            raise tw.Error("TW1101", f"--size {option}\nhelp: write --size NAME=8; the open dimensions are: {known}")
        sizes[name] = int(size)
    return sizes


def parse_in_place(options: list[str]) -> dict[str, str]:
    pairs = dict(option.partition("=")[::2] for option in options)
    if wrong := [option for option in options if "=" not in option]:
        raise tw.Error("TW1101", f"--in-place {wrong[0]} names no pair\nhelp: write --in-place OUTPUT=INPUT")
    return pairs


def parse_profiles(options: list[str]) -> list[dict[str, tuple[int, ...]]]:
    """Sizes by name: 8, min..max, or min..opt..max."""
    profiles = []
    for option in options:
        if not re.fullmatch(r"[A-Za-z_]\w*=\d+(\.\.\d+){0,2}(,[A-Za-z_]\w*=\d+(\.\.\d+){0,2})*", option):
            raise tw.Error(
                "TW1004",
                f"--profile {option} does not say sizes of dimensions\n"
                "help: write --profile batch=1,seq=128 or --profile batch=1,seq=1..32..64",
            )
        pairs = [part.split("=") for part in option.split(",")]
        profiles.append({name: tuple(int(size) for size in sizes.split("..")) for name, sizes in pairs})
    return profiles


def read_operators(path: Path | None) -> list[tw.Operator] | None:
    """The list `operators` of a Python file."""
    if path is None:
        return None
    try:
        operators = runpy.run_path(str(path)).get("operators")
    except OSError as error:
        raise tw.Error("TW1001", f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(operators, (list, tuple)):
        raise tw.Error("TW1003", f"{path} has no list `operators`\nhelp: operators = [tw.Operator(…)]")
    return list(operators)


def load_model(path: Path, shapes: list[str], operators: Path | None, fallback: str | None) -> tw.Model:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", tw.FallbackWarning)
        model = tw.load(path, parse_shapes(shapes), read_operators(operators), fallback)
    for each in said:
        report.note(str(each.message))
    return model


def executable_of(
    path: Path,
    shapes: list[str],
    target: str,
    threads: int | None,
    precision: str,
    winograd: bool,
    in_place: list[str],
    db: Path | None,
    profiles: list[str],
    specialise: bool = False,
    operators: Path | None = None,
    fallback: str | None = None,
) -> tw.Executable:
    """Loads an artifact, or loads and compiles a model."""
    if path.suffix == ".twa":
        executable = tw.load_executable(path, read_operators(operators))
        if threads is not None:
            executable.threads = threads
        return executable
    model = load_model(path, shapes, operators, fallback)
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


def made_up_inputs(inputs: dict[str, str], seed: int, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Seeded inputs: normal floats, small integers, all-true masks."""
    rng, feed = np.random.default_rng(seed), {}
    for name, kind in inputs.items():
        dtype, shape = report.dtype_and_shape(kind, sizes)
        if dtype.kind == "b" or "mask" in name:
            feed[name] = np.ones(shape, dtype)
        elif dtype.kind in "iu":
            feed[name] = rng.integers(0, 100, shape).astype(dtype)
        else:
            feed[name] = rng.standard_normal(shape).astype(dtype)
    return feed


def read_inputs(options: list[str]) -> dict[str, np.ndarray]:
    """NAME=file.npy options, and .npz files whose entries are named."""
    feed = {}
    for option in options:
        name, _, file = option.rpartition("=")
        try:
            loaded = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise tw.Error("TW1001", f"{file} cannot be read as a NumPy file: {error}") from None
        if isinstance(loaded, np.ndarray) and name:
            feed[name] = loaded
        elif not isinstance(loaded, np.ndarray) and not name:
            feed.update(loaded)
        else:
            raise tw.Error("TW1101", f"--input {option}\nhelp: write --input NAME=file.npy or --input file.npz")
    return feed


@app.command()
def doctor(measure: Annotated[bool, typer.Option(help="Measure the peak and the memory, too (2 s).")] = True) -> None:
    """Show this machine, what was found on it, and which targets it serves."""
    report.doctor(measure)


@app.command()
def explain(
    model: ModelPath,
    shape: Shapes = [],  # noqa: B006
    operators: OperatorFile = None,
    fallback: Fallback = None,
) -> None:
    """Show a model's operators, coverage, work and size, without compiling it."""
    if fallback is None:
        print(tw.explain(model, parse_shapes(shape), read_operators(operators)))
    else:
        print(load_model(model, shape, operators, fallback).explain())


@app.command()
def compile(
    model: ModelPath,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The artifact; MODEL.twa if left out.")] = None,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
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
    output = output or model.with_suffix(".twa")
    executable = executable_of(
        model, shape, target, threads, precision, winograd, in_place, db, profile, False, operators, fallback
    )
    executable.save(output)
    report.compiled(executable, output, time.perf_counter() - start)
    if verbose:
        print(executable.report())


@app.command()
def run(
    model: ModelPath,
    input: Annotated[list[str], typer.Option("--input", "-i", help="NAME=file.npy, or file.npz.")] = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Writes the outputs to this .npz file.")] = None,
    seed: Seed = 0,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
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
        model, shape, target, threads, precision, winograd, in_place, db, profile, specialise, operators, fallback
    )
    feed = read_inputs(input)
    if not feed:
        feed = made_up_inputs(executable.input_tensors, seed, parse_sizes(size, executable.dimensions))
        report.note("no --input: seeded random inputs")
    executable.seed(seed)
    outputs = executable.run(feed)
    report.outputs(outputs)
    if output:
        try:
            np.savez(output, **report.tensors_of(outputs))
        except OSError as error:
            raise tw.Error("TW1001", f"{output} cannot be written: {error.strerror}") from None


@app.command()
def bench(
    model: ModelPath,
    kernels: Annotated[bool, typer.Option("--kernels", "-k", help="Show every kernel, too.")] = False,
    roofline: Annotated[Path | None, typer.Option(help="Writes the kernels' roofline to this .svg file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Writes a run to this .json file for ui.perfetto.dev.")] = None,
    seconds: Annotated[float, typer.Option(help="Of measuring.")] = 3.0,
    seed: Seed = 0,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
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
        model, shape, target, threads, precision, winograd, in_place, db, profile, specialise, operators, fallback
    )
    feed = made_up_inputs(executable.input_tensors, seed, parse_sizes(size, executable.dimensions))
    samples, end = [], time.perf_counter() + seconds
    executable.run(feed)
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        executable.run(feed)
        samples.append(time.perf_counter() - start)
    times = executable.profile(feed) if kernels or roofline or trace else None
    bounds = report.benchmark(executable, feed, samples)
    if kernels:
        report.kernels(times, *bounds)
    if roofline:
        report.roofline(times, *bounds, roofline, model.name)
    if trace:
        times.to_perfetto(trace)


@app.command()
def tune(
    model: ModelPath,
    db: Annotated[Path | None, typer.Option("--db", help="Where records are kept; made where there is none.")] = None,
    budget: Annotated[str, typer.Option(help="How long to search: 60s, 10m, 8h.")] = "10m",
    seed: Annotated[int, typer.Option(help="Of the search and of made-up inputs.")] = 0,
    target: Target = "cpu",
    shape: Shapes = [],  # noqa: B006
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

    Ctrl-C ends after the current candidate.
    """
    if explain is not None:
        if db is None:
            raise tw.Error("TW1101", "--explain reads a database\nhelp: --db names it")
        print(tune_report.explained(str(db), explain))
        return
    loaded = load_model(model, shape, operators, fallback)
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
    tune_report.finished(result)


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
    try:
        with open(output, "w") if output else nullcontext(sys.stdout) as file:
            _core.database_lines(str(database), lambda line: print(line, file=file))
    except OSError as error:
        raise tw.Error("TW1001", f"{output} cannot be written: {error.strerror}") from None


@db_app.command("verify")
def db_verify(database: DatabasePath) -> None:
    """Check the file and the digest of every row; status 1 if anything is wrong."""
    problems = _core.database_verify(str(database))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "everything is as it was written")
    if problems:
        raise typer.Exit(1)


@db_app.command("prune")
def db_prune(database: DatabasePath) -> None:
    """Remove records of other versions of the compiler, which this one does not use."""
    print(f"{_core.database_prune(str(database))} rows removed")


@app.command("report")
def report_page(
    database: DatabasePath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
) -> None:
    """Write one offline HTML page with charts of what tuning jobs found."""
    text = tuning_charts.page(tuning_charts.read(str(database)), f"Tuning report: {database.name}")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise tw.Error("TW1001", f"{output} cannot be written: {error.strerror}") from None
    print(f"{output}: {len(text.encode()) / 1e6:.1f} MB")


@app.command()
def inspect(
    path: ModelPath,
    text: Annotated[bool, typer.Option(help="Print the graph of a model in its text form.")] = False,
    shape: Shapes = [],  # noqa: B006
) -> None:
    """Show what is inside an artifact (of any machine) or a model."""
    if path.suffix == ".twa":
        report.artifact(path)
    elif text:
        print(tw.load(path, parse_shapes(shape)).text)
    else:
        print(tw.explain(path, parse_shapes(shape)))


def main() -> None:
    try:
        app()
    except tw.Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()
