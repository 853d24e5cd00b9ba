"""Runs of an artifact for CUDA on arrays of the host, and on arrays in the GPU's memory.

    python3 tests/perf/device_arrays.py MODEL.twa [build/runtime/libtilewright_runtime.so]

Asks for Python's standard library and NVIDIA's driver alone. Medians of runs that follow one another: from the host and
back, in a stream that is waited for after each, and in a stream that is waited for after a hundred.  Outputs are
compared, and the status is 1 where they differ.
"""

import ctypes
import random
import statistics
import struct
import sys
import time

RUNS = 100


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    )


class Model:
    def __init__(self, path: str, runtime: str):
        self._runtime, self._executable = ctypes.CDLL(runtime), ctypes.c_void_p()
        self._runtime.tw_last_error.restype = ctypes.c_char_p
        self.call("tw_load", path.encode(), ctypes.byref(self._executable), is_of_executable=False)
        self.inputs, self.outputs = (self._tensors(kind) for kind in ("input", "output"))

    def call(self, name, *arguments, is_of_executable=True):
        first = [self._executable] if is_of_executable else []
        if getattr(self._runtime, name)(*first, *arguments) != 0:
            sys.exit(self._runtime.tw_last_error().decode())

    def _tensors(self, kind):
        tensors = [Tensor() for _ in range(getattr(self._runtime, f"tw_{kind}_count")(self._executable))]
        for at, tensor in enumerate(tensors):
            self.call(f"tw_{kind}", at, ctypes.byref(tensor))
            if any(tensor.shape[axis] < 0 for axis in range(tensor.rank)):
                sys.exit(f"{tensor.name.decode()} has open dimensions: compile the model for fixed ones")
        return tensors


class Gpu:
    def __init__(self):
        self._library, context, self.stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        if status := getattr(self._library, name)(*arguments):
            sys.exit(f"{name}: error {status}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)


def made_up(tensor):
    """Floats of f32 from -1 to 1; of other types zeros."""
    data = ctypes.create_string_buffer(tensor.bytes or 1)
    if tensor.dtype == b"f32":
        values = [random.uniform(-1, 1) for _ in range(min(tensor.bytes // 4, 4096))]
        part = struct.pack(f"{len(values)}f", *values)
        ctypes.memmove(data, (part * (tensor.bytes // max(len(part), 1) + 1))[: tensor.bytes], tensor.bytes)
    return data


def pointers(addresses):
    return (ctypes.c_void_p * len(addresses))(*addresses)


def median_ms(action):
    for _ in range(5):
        action()
    samples = []
    for _ in range(RUNS):
        start = time.perf_counter()
        action()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


def main(path, runtime="build/runtime/libtilewright_runtime.so"):
    model, gpu = Model(path, runtime), Gpu()
    sizes = [[tensor.bytes for tensor in tensors] for tensors in (model.inputs, model.outputs)]
    in_bytes, out_bytes = ((ctypes.c_size_t * len(each))(*each) for each in sizes)
    given, taken = [made_up(tensor) for tensor in model.inputs], [made_up(tensor) for tensor in model.outputs]
    host = [pointers([ctypes.addressof(each) for each in arrays]) for arrays in (given, taken)]
    device = [pointers([gpu.allocate(size) for size in each]) for each in sizes]
    for at, data in enumerate(given):
        gpu.call(
            "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device[0][at]), data, ctypes.c_size_t(in_bytes[at]), gpu.stream
        )

    def queue():
        model.call("tw_run_on_gpu", device[0], None, device[1], out_bytes, gpu.stream)

    def run_and_wait():
        queue()
        gpu.wait()

    def run_hundred():
        for _ in range(100):
            queue()
        gpu.wait()

    from_host = median_ms(lambda: model.call("tw_run", host[0], in_bytes, host[1], out_bytes))
    waiting = median_ms(run_and_wait)
    start = time.perf_counter()
    queue()
    queued = (time.perf_counter() - start) * 1e3
    run_hundred()
    start = time.perf_counter()
    run_hundred()
    following = (time.perf_counter() - start) * 10
    print(f"from the host and back                 {from_host:9.4f} ms a run")
    print(f"on the device, waited for              {waiting:9.4f}")
    print(f"on the device, a hundred in the stream {following:9.4f}")
    print(f"the call alone                         {queued:9.4f}")
    differ = 0
    for at, tensor in enumerate(model.outputs):
        result, size = ctypes.create_string_buffer(tensor.bytes or 1), ctypes.c_size_t(tensor.bytes)
        gpu.call("cuMemcpyDtoHAsync_v2", result, ctypes.c_uint64(device[1][at]), size, gpu.stream)
        gpu.wait()
        if result.raw[: tensor.bytes] != taken[at].raw[: tensor.bytes]:
            print(f"output {tensor.name.decode()} differs")
            differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
