"""What NVIDIA's assembler made of a model's kernels, told without a GPU.

    for kernel in gpu_kernels.of_artifact("net.twa"):
        print(kernel.symbol, kernel.registers, kernel.occupancy, kernel.instructions)

NVIDIA's own programs read the machine code in the artifact: cuobjdump says what a kernel takes, nvdisasm what it does
(`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`, or a CUDA toolkit).  Counts are of the code's instructions as
they stand, not of how often they are executed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from math import ceil, prod
from pathlib import Path
from typing import Any

from . import _core
from .error import Error

# Instructions by what they keep busy, in the order in which they are asked; "CUDA Binary Utilities", instruction sets.
CLASSES = {
    "tensor": r"[HIDBQ]MMA|.*GMMA|UTC.*MMA",
    "f32": r"FFMA|FADD|FMUL|FMNMX3?|FSETP?|FSEL|FCHK|FSWZADD",
    "f16": r"HFMA2|HADD2|HMUL2|HMNMX2|HSETP?2",
    "f64": r"D(FMA|ADD|MUL|SETP|MNMX)",
    "special": r"MUFU",
    "async copy": r"LDGSTS|LDGDEPBAR|DEPBAR|UBLKCP|UTMA.*|SYNCS",
    "global load": r"LDG?",
    "global store": r"STG?",
    "shared load": r"LDSM?",
    "shared store": r"STSM?",
    "local": r"LDL|STL",
    "constant": r"U?LDC|LDCU",
    "atomic": r"ATOM.*|RED.*",
    "shuffle": r"SHFL|REDUX|VOTE.*|MATCH|ELECT",
    "barrier": r"BAR|WARPSYNC|WARPGROUP|FENCE|MEMBAR|ERRBAR|NANOSLEEP",
    "conversion": r"[FI]2[FIP].*|F2FP|FRND",
    "integer": r"U?(IADD3?|IMAD|IMUL|IMNMX|ISETP?|LEA|LOP3|SHF|SHL|SHR|IABS|IDP|POPC|FLO|BREV|BMSK|SGXT|PRMT|VI\w+)",
    "move": r"U?(MOV|SEL|CSEL|S2R|S2UR|CS2R|R2UR|P2R|R2P|PLOP3|CLEA)|PMOVMSKB",
    "control": r"BMOV|BRA|BRX|JMP|EXIT|CALL|RET|BSSY|BSYNC|BREAK|KILL|NOP|YIELD|ACQBULK|PREEXIT",
}
_COMPILED = {name: re.compile(pattern) for name, pattern in CLASSES.items()}


@dataclass(frozen=True)
class GpuKernel:
    """One kernel of a model.  Bytes and registers are as the assembler has given them out."""

    symbol: str
    names: list[str]  # what it computes: a step of the plan each
    threads: int  # of a block
    blocks: int  # of the largest launch
    registers: int  # of a thread
    stack_bytes: int  # of a thread; spilled registers, and arrays that are indexed by variables, lie there
    shared_bytes: int  # of a block
    blocks_of_multiprocessor: int  # that it holds at a time
    occupancy: float  # the share of its warps that they are
    limited_by: str
    waves: int  # how often the device fills up with blocks
    least_seconds: float  # of all its launches, by the data sheet: arithmetic or memory
    bound: str  # which of the two
    instructions: dict[str, int] = field(default_factory=dict)  # by class
    wide_accesses: int = 0  # of global memory, of 128 bits

    @property
    def spills(self) -> int:
        """Loads and stores of a thread's own memory."""
        return self.instructions.get("local", 0)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def program(name: str) -> str:
    """From the PyPI package nvidia-cuda-NAME, from CUDA_HOME or from the path."""
    folders = [Path(os.environ[variable], "bin") for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    package = importlib.util.find_spec("nvidia")
    for place in package.submodule_search_locations or [] if package else []:
        folders += [path.parent for path in Path(place).glob(f"*/bin/{name}")]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders))) or shutil.which(name)
    if found is None:
        raise Error("TW1301", f"{name}, which reads GPU code, was not found\nhelp: pip install nvidia-cuda-{name}")
    return found


def printed(name: str, *arguments: str) -> str:
    done = subprocess.run([program(name), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Error("TW1301", f"{name} does not read the code: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def resources(path: str) -> dict[str, dict[str, int]]:
    """Of each function: REG, STACK, SHARED …"""
    found = re.findall(r"^ Function (\S+):\n +(.*)$", printed("cuobjdump", "-res-usage", path), re.M)
    return {
        name: {key: int(value) for key, value in re.findall(r"(\w+)(?:\[0\])?:(\d+)", usage)} for name, usage in found
    }


def class_of(instruction: str) -> str:
    """Of "LDG.E.128": "global load"; "other" of what is in none."""
    name = instruction.partition(".")[0]
    return next((kind for kind, pattern in _COMPILED.items() if pattern.fullmatch(name)), "other")


def disassembly(path: str) -> dict[str, list[str]]:
    """Of each function its instructions, by their names with what they are specified by: "FFMA", "LDG.E.128"."""
    functions: dict[str, list[str]] = {}
    instructions: list[str] = []
    for line in printed("nvdisasm", "-c", path).splitlines():
        if start := re.fullmatch(r"\.text\.(\S+):", line):
            instructions = functions.setdefault(start[1], [])
        elif match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            instructions.append(match[1])
    return functions


def of_plan(path: str | os.PathLike[str], plan: dict[str, Any]) -> list[GpuKernel]:
    """Of an artifact with this plan (`Executable.describe`); nothing where it has no kernels of a GPU."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for step in plan["steps"]:
        if step["kernel"]:
            steps.setdefault(step["kernel"], []).append(step)
    if _core.kernel_fit(plan["target"], 1, 1, 0) is None:
        return []
    used, code = resources(os.fspath(path)), disassembly(os.fspath(path))
    return [
        kernel_of(symbol, launches, used[symbol], code[symbol], plan["target"]) for symbol, launches in steps.items()
    ]


def of_artifact(path: str | os.PathLike[str]) -> list[GpuKernel]:
    return of_plan(path, _core.inspect_artifact(os.fspath(path)))


def kernel_of(
    symbol: str, launches: list[dict[str, Any]], used: dict[str, int], code: Iterable[str], target: str
) -> GpuKernel:
    code = list(code)
    threads, blocks = prod(launches[0]["block"]), max(prod(launch["grid"]) for launch in launches)
    shared = used["SHARED"] + max(launch["shared_bytes"] for launch in launches)
    fit = _core.kernel_fit(target, threads, used["REG"], shared)
    assert fit is not None
    held = fit["blocks"] * fit["multiprocessors"]
    instructions = Counter(class_of(instruction) for instruction in code)
    rate = fit["tensor_flops" if instructions["tensor"] else "flops"]
    for names, kind in ((("IMMA", "IGMMA"), "byte_operations"), (("QMMA", "QGMMA"), "float8_operations")):
        if any(instruction.startswith(names) for instruction in code):
            rate = fit[kind]
    if any(instruction.startswith("HMMA") and "TF32" in instruction for instruction in code):
        rate /= 2
    arithmetic = sum(launch["flops"] for launch in launches) / rate
    memory = sum(launch["bytes"] for launch in launches) / fit["bytes"]
    of_memory = ("global load", "global store")
    return GpuKernel(
        symbol=symbol,
        names=[launch["name"] for launch in launches],
        threads=threads,
        blocks=blocks,
        registers=used["REG"],
        stack_bytes=used["STACK"] + used["LOCAL"],
        shared_bytes=shared,
        blocks_of_multiprocessor=fit["blocks"],
        occupancy=fit["occupancy"],
        limited_by=fit["limited_by"],
        waves=ceil(blocks / held) if held else 0,
        least_seconds=max(arithmetic, memory),
        bound="arithmetic" if arithmetic > memory else "memory",
        instructions=dict(instructions.most_common()),
        wide_accesses=sum(".128" in instruction and class_of(instruction) in of_memory for instruction in code),
    )
