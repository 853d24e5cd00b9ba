"""What NVIDIA's driver says itself: facts of the device, and how fast it copies."""

from __future__ import annotations

import ctypes
import statistics
import time
from typing import Any

from .comparing import Facts

COPY_BYTES = 256 << 20  # what is copied for the device's rate


class Problem(Exception):
    """What a case or a driver says."""


class Driver:
    """libcuda.so.1, for what the C library does not tell."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Problem(f"there is no NVIDIA driver: {error}") from None
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        status = function(*arguments) if function else "not there"
        if status != 0:
            raise Problem(f"{name}: error {status}")

    def number(self, name: str, kind: Any, *arguments: Any) -> int | None:
        value = kind()
        try:
            self.call(name, ctypes.byref(value), *arguments)
        except Problem:
            return None
        return int(value.value)


def hold_context() -> None:
    """Makes the device's context now, for as long as the process lives: not with each case again."""
    driver, context = Driver(), ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), driver.device)


ATTRIBUTES = {
    "multiprocessors": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "cache_bytes": 38,
    "capability_major": 75,
    "capability_minor": 76,
    "registers_of_multiprocessor": 82,
    "shared_bytes_of_multiprocessor": 81,
    "shared_bytes_of_block": 97,
}


def device_facts() -> Facts:
    driver = Driver()
    name = ctypes.create_string_buffer(128)
    driver.call("cuDeviceGetName", name, 128, driver.device)
    facts: Facts = {
        "name": name.value.decode(),
        "driver": driver.number("cuDriverGetVersion", ctypes.c_int),
        "memory_bytes": driver.number("cuDeviceTotalMem_v2", ctypes.c_size_t, driver.device),
    }
    for key, attribute in ATTRIBUTES.items():
        facts[key] = driver.number("cuDeviceGetAttribute", ctypes.c_int, attribute, driver.device)
    return facts


def ceilings() -> Facts:
    """Bytes a second, those read and those written, of copies within the device's memory, by its own clock."""
    driver, context = Driver(), ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), driver.device)
    driver.call("cuCtxPushCurrent_v2", context)
    size = min(COPY_BYTES, (driver.number("cuDeviceTotalMem_v2", ctypes.c_size_t, driver.device) or COPY_BYTES) // 16)
    stream, events, blocks = (
        ctypes.c_void_p(),
        [ctypes.c_void_p(), ctypes.c_void_p()],
        [ctypes.c_uint64() for _ in "ab"],
    )
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    for event in events:
        driver.call("cuEventCreate", ctypes.byref(event), 0)
    for block in blocks:
        driver.call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < 5 or (time.perf_counter() - start < 1 and len(seconds) < 1000):
        driver.call("cuEventRecord", events[0], stream)
        driver.call("cuMemcpyDtoDAsync_v2", blocks[1], blocks[0], ctypes.c_size_t(size), stream)
        driver.call("cuEventRecord", events[1], stream)
        driver.call("cuEventSynchronize", events[1])
        milliseconds = ctypes.c_float()
        driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        seconds.append(milliseconds.value * 1e-3)
    median = statistics.median(seconds)
    return {"copy_bytes": size, "copy_seconds": median, "copy_rate": 2 * size / median if median else None}
