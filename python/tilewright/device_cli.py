"""`tw device`: machines that measure for tuning jobs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .cli_options import AsJson
from .error import Error
from .interrupt import raise_keyboard_interrupt
from .lazy import lazily

if TYPE_CHECKING:
    from .device import Device

device, device_wire, device_worker = lazily("device"), lazily("device_wire"), lazily("device_worker")


def machine_line(facts: dict[str, Any]) -> str:
    """Of what tw-measure says about its machine."""
    caches = ", ".join(
        f"{facts[f'l{level}_bytes'] >> 10} KiB L{level}" for level in (1, 2, 3) if facts[f"l{level}_bytes"]
    )
    parts = [facts["cpu"] or "a CPU without a name", facts["architecture"], f"{facts['threads']} threads", caches]
    if facts["gpu"]:
        emulated = ", emulated: for --check only" if facts["gpu_is_emulated"] else ""
        parts.append(f"{facts['gpu']}, sm_{facts['gpu_capability']}{emulated}")
    if facts["is_emulated"]:
        parts.append("emulated: for --check only")
    return ", ".join(part for part in parts if part)


@contextmanager
def ray_devices(address: str | None) -> Iterator[Sequence[Device]]:
    if address is None:
        yield []
        return
    from .ray_devices import RayPool

    with RayPool(address) as pool:
        yield pool.devices


app = typer.Typer(name="device", help="Machines that measure for tuning jobs.", no_args_is_help=True)
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="The key file that `tw device key` made. Both sides need a copy.")
]


@app.command("key")
def key(path: Annotated[Path, typer.Argument(help="The file to make.")], as_json: AsJson = False) -> None:
    """Make a key file; a copy of it on both sides is what they know each other by."""
    device_wire.make_key(path)
    print(json.dumps({"key": str(path)}) if as_json else f"{path}: whoever has it may have code measured")


@app.command("serve")
def serve(
    key_file: KeyFile = None,
    listen: Annotated[
        str,
        typer.Option(help="HOST:PORT to listen at. Give an address of this machine to be reached from other machines."),
    ] = "127.0.0.1:9190",
    program: Annotated[
        str, typer.Option(help="The path of tw-measure on the machine that measures, if that is another machine.")
    ] = str(device_worker.MEASURE_PROGRAM),
    run_with: Annotated[
        str,
        typer.Option(
            help="A command that starts it: 'qemu-aarch64' for an emulator, 'ssh board' for a board without Python."
        ),
    ] = "",
    emulated: Annotated[
        bool,
        typer.Option(
            "--emulated",
            help="This machine is emulated, and its times mean nothing. Most emulators are noticed without.",
        ),
    ] = False,
    most_megabytes: Annotated[int, typer.Option(min=1, help="How many megabytes a job may send at once.")] = 1024,
) -> None:
    """Measure for one tuning job at a time, until Ctrl-C."""
    if key_file is None:
        raise Error("TW1101", "a key file is needed\nhelp: `tw device key KEY`, then --key-file KEY")
    worker = device_worker.Worker(program, shlex.split(run_with), emulated)
    host, port = device_wire.parse_address(listen)
    server = device_worker.Server(worker, device_wire.Key(key_file), host, port, most_megabytes << 20)
    server.log = lambda line: print(line, file=sys.stderr, flush=True)
    print(f"{machine_line(worker.facts)} measures at {server.address}", flush=True)
    raise_keyboard_interrupt()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.close()


@app.command("show")
def show(
    address: Annotated[str, typer.Argument(help="tcp://HOST:PORT")],
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a machine says of itself."""
    (reached,) = device.open_devices([address], key_file)
    facts = device.facts_of(reached)
    print(json.dumps(facts) if as_json else machine_line(facts))
