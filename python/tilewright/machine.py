"""This machine: what it is, and what its cores and memory were measured to do."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

from . import _core


def describe() -> dict[str, Any]:
    """architecture, cpu, features, threads, vector_bits, l1_bytes, l2_bytes, l3_bytes, llvm_cpu."""
    return dict(_core.machine())


def cuda() -> dict[str, Any]:
    """compiler and compiler_problem (NVRTC), devices as (name, compute capability, bytes), driver with the CUDA that it
    supports, and device_problem."""
    add_nvrtc_hints()
    return dict(_core.cuda())


@functools.cache
def add_nvrtc_hints() -> None:
    """Tells the compiler where the PyPI packages nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12 keep libnvrtc."""
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or [] if package else []:
        for library in sorted(Path(folder).glob("*/lib/libnvrtc.so.*")):
            _core.add_nvrtc_hint(str(library))


def targets() -> list[str]:
    """Names that compile() takes as target."""
    return list(_core.target_names())


def kernel_cache() -> tuple[str, int, int] | None:
    """Directory, entries and bytes of the kernels that were compiled before and are kept; None when TW_CACHE is off."""
    return _core.kernel_cache()


def peak_flops(threads: int, seconds: float = 0.15) -> float:
    """f32 operations a second of that many threads, by fused multiply-adds (two each) on values in registers."""
    return _core.measure_peak_flops(threads, seconds)


def read_bandwidth(threads: int, seconds: float = 0.15) -> float:
    """Bytes a second that the threads read from memory, in streams that no cache holds."""
    return _core.measure_read_bandwidth(threads, seconds)


def copy_bandwidth(threads: int, seconds: float = 0.15) -> float:
    """Bytes a second that the threads read plus those that they write, when they copy what no cache holds."""
    return _core.measure_copy_bandwidth(threads, seconds)
