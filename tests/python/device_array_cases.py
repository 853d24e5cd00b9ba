"""Arrays in the GPU's memory. Each case is a process that finds the emulator or a GPU (test_device_arrays.py).

`files` has artifacts for the device: net.twa (conftest.small_network), sum.twa (two inputs, open rows), rows.twa (sizes
that the run computes) and cpu.twa (the first for this CPU).
"""

import ctypes
import gc
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import _core, machine
from tilewright.kit_runner.driver import Driver

SKIPPED = 77  # a status, as automake's tests have it

files = Path(sys.argv[1])
driver = Driver()
library = driver._library
IS_EMULATED = hasattr(library, "cuda_emulator_calls")
context = ctypes.c_void_p()
driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), driver.device)
driver.call("cuCtxPushCurrent_v2", context)
random = np.random.default_rng(3)
x = random.standard_normal((1, 3, 16, 16)).astype(np.float32)


def skip(why):
    print(why)
    sys.exit(SKIPPED)


def executable(name="net"):
    return tw.load_executable(files / f"{name}.twa")


def new_stream():
    stream = ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    return stream.value


def wait_for(stream):
    driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))


def calls(begin):
    return library.cuda_emulator_calls(begin.encode()) if IS_EMULATED else 0


class Memory:
    """What another library has allocated, `offset` bytes of it unused; poison where it is not filled."""

    def __init__(self, array, offset=0):
        self.array, self.base = np.ascontiguousarray(array), ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(self.base), ctypes.c_size_t(offset + max(self.array.nbytes, 1)))
        self.address = self.base.value + offset
        self.write(self.array)

    def write(self, array, stream=1):
        self._kept = np.ascontiguousarray(array)
        arguments = self.address, self._kept.ctypes.data, array.nbytes, stream
        driver.call("cuMemcpyHtoDAsync_v2", *map(ctypes.c_size_t, arguments))
        if stream == 1:
            wait_for(1)

    def read(self):
        result = np.empty_like(self.array)
        driver.call("cuMemcpyDtoHAsync_v2", *map(ctypes.c_size_t, (result.ctypes.data, self.address, result.nbytes, 1)))
        wait_for(1)
        return result

    def free(self):
        driver.call("cuMemFree_v2", self.base)


class Interface(Memory):
    """It, by __cuda_array_interface__."""

    def __init__(self, array, offset=0, **changes):
        super().__init__(array, offset)
        self.facts = {"shape": array.shape, "typestr": array.dtype.str, "data": (self.address, False), "version": 3}
        self.facts |= changes

    @property
    def __cuda_array_interface__(self):
        return self.facts


class Speaker:
    """A DeviceArray of which only DLPack is known, with or without its version 1."""

    def __init__(self, array, has_versions=True, device=None):
        self._array, self._has_versions, self._device = array, has_versions, device
        self.streams = []

    def __dlpack_device__(self):
        return self._device or self._array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        if options and not self._has_versions:
            raise TypeError("max_version?")
        self.streams.append(stream)
        return self._array.__dlpack__(stream=stream, **options)


def refused(code, text, action, *arguments, **options):
    with pytest.raises(tw.Error) as caught:
        action(*arguments, **options)
    assert caught.value.code == code and text in str(caught.value), caught.value


def close(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=1e-6)


def case_arrays_are_made_copied_and_given_away():
    import ml_dtypes

    for dtype in ("f4", "f8", "f2", "i1", "i8", "u2", "?", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        for shape in ((), (5,), (2, 3, 4), (0, 3)):
            array = (random.standard_normal(shape) * 3).astype(dtype)
            there = tw.to_device(array)
            assert isinstance(there, tw.DeviceArray) and there.shape == shape and there.dtype == array.dtype
            assert there.nbytes == array.nbytes and there.gpu == 0 and there.stream is None
            np.testing.assert_array_equal(there.numpy(), array)
            np.testing.assert_array_equal(np.asarray(there), array)
            assert there.__dlpack_device__() == (2, 0)
            for has_versions in (True, False):
                view = _core.view_on_gpu(Speaker(there, has_versions), "it", None, True)
                assert view is not there and view.shape == shape and view.dtype == array.dtype
                np.testing.assert_array_equal(view.numpy(), array)
    there = tw.to_device([[1.0, 2.0]])
    assert len(there) == 1 and repr(there) == "<tilewright.DeviceArray f64[1,2] on GPU 0>"
    facts = there.__cuda_array_interface__
    assert facts["typestr"] == "<f8" and facts["version"] == 3 and facts["stream"] is None and facts["strides"] is None
    np.testing.assert_array_equal(np.asarray(there, dtype=np.float32), np.float32([[1, 2]]))
    assert not hasattr(tw.to_device(np.zeros(2, ml_dtypes.bfloat16)), "__cuda_array_interface__")
    for problem, options in (
        (BufferError, {"dl_device": (1, 0)}),
        (BufferError, {"copy": True}),
        (ValueError, {"stream": 0}),
    ):
        with pytest.raises(problem):
            there.__dlpack__(**options)
    with pytest.raises(ValueError):
        there.__array__(copy=False)
    with pytest.raises(TypeError):
        len(tw.to_device(np.float32(1)))
    with pytest.raises(BufferError):
        tw.to_device(np.zeros(2, ml_dtypes.int4)).__dlpack__()


def case_memory_is_given_back():
    def live():
        gc.collect()
        return library.cuda_emulator_live_objects() if IS_EMULATED else 0

    before = live()
    there = tw.to_device(x)
    capsules = [there.__dlpack__(), there.__dlpack__(max_version=(1, 0))]  # which nobody takes
    view = _core.view_on_gpu(Speaker(there), "it", None, False)
    del there, capsules
    np.testing.assert_array_equal(view.numpy(), x)  # it keeps the memory
    del view
    assert live() == before
    net = executable()
    for _ in range(3):
        net(tw.to_device(x), outputs="device")
    del net
    assert live() == before


def case_inputs_and_outputs_lie_on_the_device():
    net, expected = executable(), executable()(x)[0]
    for given in (x, Interface(x), tw.to_device(x), Speaker(tw.to_device(x)), Speaker(tw.to_device(x), False)):
        assert isinstance(net(given)[0], np.ndarray)  # wherever inputs are
        np.testing.assert_array_equal(net(given)[0], expected)
        result = net.run({"x": given}, outputs="device")["y"]
        assert isinstance(result, tw.DeviceArray) and result.stream is None
        np.testing.assert_array_equal(result.numpy(), expected)
        empty = np.full_like(expected, 7)
        for out in (Interface(empty), tw.to_device(empty), Speaker(tw.to_device(empty))):
            assert net.run({"x": given}, out={"y": out})["y"] is out
            there = out if hasattr(out, "__cuda_array_interface__") else out._array
            np.testing.assert_array_equal(_core.view_on_gpu(there, "it", None, False).numpy(), expected)
        into = np.empty_like(expected)
        net.run({"x": given}, out={"y": into})
        np.testing.assert_array_equal(into, expected)
    assert {kernel.seconds > 0 for kernel in net.profile({"x": tw.to_device(x)}, 2).kernels} == {True}


def case_results_go_into_other_executables():
    first, second = executable("sum"), executable("sum")
    a, b = (random.standard_normal((5, 8)).astype(np.float32) for _ in "ab")
    before = calls("cuMemcpyHtoD") + calls("cuMemcpyDtoH")
    on_device = {"a": tw.to_device(a), "b": tw.to_device(b)}
    middle = first.run(on_device, outputs="device")["y"]
    result = second.run({"a": middle, "b": on_device["b"]}, outputs="device")["y"]
    if IS_EMULATED:  # a, b and the constants of two executables, if there are any
        assert calls("cuMemcpyHtoD") + calls("cuMemcpyDtoH") - before <= 4
    close(result, np.tanh(np.tanh(a + b) + b))
    mixed = first.run({"a": on_device["a"], "b": b})["y"]
    close(mixed, np.tanh(a + b))


def case_arrays_that_are_not_aligned_are_copied_there():
    net, expected = executable(), executable()(x)[0]
    for offset in (4, 16, 60, 64):
        given, out = Interface(x, offset), Interface(np.full_like(expected, 7), offset)
        before = calls("cuMemcpyDtoD")
        net.run({"x": given}, out={"y": out})
        assert calls("cuMemcpyDtoD") - before == (2 if IS_EMULATED and offset % 64 else 0)
        np.testing.assert_array_equal(out.read(), expected)


def case_tensors_of_torch():
    if IS_EMULATED:
        skip("PyTorch has no emulated GPU")
    try:
        import torch
    except ImportError:
        skip("PyTorch is not installed")
    if not torch.cuda.is_available():
        skip("PyTorch is one without CUDA")
    net, expected = executable(), executable()(x)[0]
    there, out = torch.from_numpy(x).cuda(), torch.empty((1, 10), device="cuda")
    for _ in range(3):
        net.run({"x": there}, out={"y": out})
        close(out.cpu(), expected)
        out.zero_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        given = there / 2 + there / 2
        net.run({"x": given}, out={"y": out}, stream=stream.cuda_stream)
        total = out.double().sum()
    stream.synchronize()
    close(out.cpu(), expected)
    close(total.cpu(), 1)
    given = there / 2 + there / 2  # in the current stream, which a run waits for
    close(torch.from_dlpack(net.run({"x": given}, outputs="device")["y"]).cpu(), expected)
    refused("TW1101", "input 'x' is not C-contiguous", net.run, {"x": there.transpose(2, 3)})
    refused("TW1101", "input 'x' is f16", net.run, {"x": there.half()})
    refused("TW1101", "input 'x' is not given away", net.run, {"x": there.clone().requires_grad_()})


def case_the_second_run_is_one_launch():
    net, expected, stream = executable(), executable()(x)[0], new_stream()
    there, out = tw.to_device(x), tw.to_device(np.empty_like(expected))
    counted = ("cuMemcpy", "cuLaunchKernel", "cuGraphLaunch", "cuStreamSynchronize")
    seen = []
    for options in ({}, {}, {}, {"stream": stream}, {"stream": stream}):
        before = [calls(name) for name in counted]
        net.run({"x": there}, out={"y": out}, **options)
        seen.append([calls(name) - was for name, was in zip(counted, before, strict=True)])
    np.testing.assert_array_equal(out.numpy(), expected)
    if not IS_EMULATED:
        return
    kernels = sum(bool(step["kernel"]) for step in net.describe()["steps"])
    assert kernels > 1
    assert seen == [
        [0, kernels, 0, 1],
        [0, kernels, 1, 1],  # which records it
        [0, 0, 1, 1],
        [0, 0, 1, 0],  # it is left to the stream
        [0, 0, 1, 0],
    ]
    # So it is for arrays that take turns.
    pairs = [(tw.to_device(x * k), tw.to_device(np.empty_like(expected))) for k in (1, 2, 3)]
    for _ in range(2):
        for given, result in pairs:
            net.run({"x": given}, out={"y": result})
    before = calls("cuLaunchKernel"), calls("cuGraphLaunch")
    for given, result in pairs:
        net.run({"x": given}, out={"y": result})
    assert (calls("cuLaunchKernel") - before[0], calls("cuGraphLaunch") - before[1]) == (0, 3)
    for k, (_, result) in enumerate(pairs, 1):
        close(result, executable()(x * k)[0])


class Stream:
    def __init__(self, handle):
        self._handle = handle

    def __cuda_stream__(self):
        return 0, self._handle


def case_a_run_is_queued_in_a_stream():
    net, expected, handle = executable(), executable()(x)[0], new_stream()
    for stream in (handle, Stream(handle)):
        given, out = Interface(np.zeros_like(x)), Interface(np.full_like(expected, 7))
        given.write(x, handle)  # in the stream, before the run
        net.run({"x": given}, out={"y": out}, stream=stream)
        if IS_EMULATED:  # where nothing is done before somebody waits
            there = (ctypes.c_float * expected.size).from_address(out.address)
            assert list(there) == [7.0] * expected.size
        wait_for(handle)
        np.testing.assert_array_equal(out.read(), expected)
    result = net.run({"x": given}, outputs="device", stream=stream)["y"]
    assert result.stream is stream and result.__cuda_array_interface__["stream"] == handle
    np.testing.assert_array_equal(result.numpy(), expected)  # which waits
    # Arrays of the host are read and written by the call.
    np.testing.assert_array_equal(net.run({"x": x}, stream=handle)["y"], expected)
    np.testing.assert_array_equal(net(x, stream=handle)[0], expected)
    for default in (0, 1, 2):
        np.testing.assert_array_equal(net.run({"x": given}, outputs="device", stream=default)["y"].numpy(), expected)


def case_streams_wait_for_one_another():
    net, streams = executable("sum"), [new_stream() for _ in range(3)]
    ours = random.standard_normal((2, 8)).astype(np.float32)
    there = tw.to_device(ours)
    expected, value = ours, there
    for k in range(12):  # each reads the result of the one before, in another stream
        stream = (*streams, None)[k % 4]
        value = net.run({"a": value, "b": there}, outputs="device", stream=stream)["y"]
        expected = np.tanh(expected + ours)
    close(value, expected)
    # Runs of one executable take turns, though nothing else says so.
    results = [
        net.run({"a": tw.to_device(ours * k), "b": there}, outputs="device", stream=stream)["y"]
        for k, stream in enumerate(streams * 3)
    ]
    for k in reversed(range(9)):
        close(results[k], np.tanh(ours * k + ours))
    # What another library has queued is waited for, in its stream and by DLPack.
    late, other = Interface(np.zeros_like(ours), stream=streams[0]), streams[1]
    for options in ({}, {"stream": other}):
        late.write(ours, streams[0])
        close(net.run({"a": late, "b": there}, outputs="device", **options)["y"], np.tanh(ours + ours))
        late.write(np.zeros_like(ours))
    queued = Speaker(net.run({"a": there, "b": there}, outputs="device", stream=streams[2])["y"])
    for options, asked in (({}, 1), ({"stream": other}, other), ({"stream": 0}, 1)):
        result = net.run({"a": queued, "b": there}, outputs="device", **options)["y"]
        assert queued.streams.pop() == asked
        close(result, np.tanh(np.tanh(ours + ours) + ours))
    # An executable that is gone has waited.
    out = Interface(np.zeros_like(ours))
    net.run({"a": there, "b": there}, out={"y": out}, stream=other)
    del net
    gc.collect()
    close(out.read(), np.tanh(ours + ours))


def case_sizes_may_be_open_or_computed():
    total = executable("sum")
    for rows in (1, 7, 3, 7):
        a, b = (random.standard_normal((rows, 8)).astype(np.float32) for _ in "ab")
        result = total.run({"a": tw.to_device(a), "b": tw.to_device(b)}, outputs="device")["y"]
        assert result.shape == (rows, 8)
        close(result, np.tanh(a + b))
    found = executable("rows")
    for seed in range(4):
        data = np.random.default_rng(seed).integers(0, 2, (4, 5)).astype(np.float32)
        for stream in (None, new_stream()):
            result = found.run({"x": tw.to_device(data)}, outputs="device", stream=stream)["y"]
            assert isinstance(result, tw.DeviceArray)
            np.testing.assert_array_equal(result.numpy(), np.stack(np.nonzero(data)))
            np.testing.assert_array_equal(found.run({"x": tw.to_device(data)}, stream=stream)["y"], result.numpy())


def case_the_c_interface_takes_addresses_and_a_stream():
    runtime = ctypes.CDLL(str(Path(__file__).parents[2] / "build/runtime/libtilewright_runtime.so"))
    runtime.tw_last_error.restype = ctypes.c_char_p

    def run(name, inputs, outputs, stream):
        handle = ctypes.c_void_p()
        assert runtime.tw_load(str(files / f"{name}.twa").encode(), ctypes.byref(handle)) == 0, runtime.tw_last_error()

        def addresses(arrays):
            return (ctypes.c_void_p * len(arrays))(*(array.address for array in arrays))

        shapes = [(ctypes.c_int64 * each.array.ndim)(*each.array.shape) for each in inputs]
        pointers = (ctypes.c_void_p * len(shapes))(*map(ctypes.addressof, shapes))
        room = (ctypes.c_size_t * len(outputs))(*(array.array.nbytes for array in outputs))
        status = runtime.tw_run_on_gpu(
            handle, addresses(inputs), pointers, addresses(outputs), room, ctypes.c_void_p(stream)
        )
        text, rows = runtime.tw_last_error().decode(), (ctypes.c_int64 * 2)()
        if status == 0:
            assert runtime.tw_result_shape(0, rows) == 0
        wait_for(stream)
        runtime.tw_free(handle)
        return status, text, tuple(rows)

    stream = new_stream()
    a, b = (random.standard_normal((5, 8)).astype(np.float32) for _ in "ab")
    out = Memory(np.zeros((5, 8), np.float32))
    assert run("sum", [Memory(a), Memory(b)], [out], stream)[::2] == (0, (5, 8))
    close(out.read(), np.tanh(a + b))
    data = random.integers(0, 2, (4, 5)).astype(np.float32)
    places = np.stack(np.nonzero(data))
    room = Memory(np.full((2, 20), -1))
    assert run("rows", [Memory(data)], [room], stream)[::2] == (0, places.shape)
    np.testing.assert_array_equal(room.read().ravel()[: places.size], places.ravel())
    status, text, _ = run("rows", [Memory(data)], [Memory(np.zeros(1, np.int64))], stream)
    assert status == 1101 and f"takes {places.nbytes} bytes, there is room for 8" in text
    status, text, _ = run("cpu", [Memory(x)], [Memory(np.zeros((1, 10), np.float32))], stream)
    assert status == 1101 and "input 'x' lies in the memory of a GPU" in text


def case_each_gpu_has_its_arrays_and_executables():
    if IS_EMULATED:
        os.environ["CUDA_EMULATOR_CAPABILITY"] = "90,90"
    elif len(machine.cuda()["devices"]) < 2:
        skip("there is one GPU")
    first, second = executable(), tw.load_executable(files / "net.twa", gpu=1)
    assert (first.gpu, second.gpu) == (0, 1)
    expected = first(x)[0]
    results = {}

    def run(name, net):
        results[name] = [net.run({"x": x})["y"] for _ in range(10)]

    threads = [threading.Thread(target=run, args=pair) for pair in ((0, first), (1, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in (*results[0], *results[1]):
        np.testing.assert_array_equal(result, expected)

    there = tw.to_device(x, gpu=1)
    assert there.gpu == 1 and there.__dlpack_device__() == (2, 1) and "on GPU 1" in repr(there)
    out = tw.to_device(np.zeros((1, 10), np.float32), gpu=1)
    for _ in range(3):
        second.run({"x": there}, out={"y": out})
        np.testing.assert_array_equal(out.numpy(), expected)
    result = second.run({"x": Speaker(there)}, outputs="device")["y"]
    assert result.gpu == 1 and result.__dlpack_device__() == (2, 1)
    np.testing.assert_array_equal(result.numpy(), expected)
    kernels = second.profile({"x": there}, 2).kernels
    assert kernels and all(kernel.seconds > 0 for kernel in kernels)

    for net, given, text in ((first, there, "GPU 1, and runs are on GPU 0"), (second, result, "is f32[1,10]")):
        refused("TW1101", text, net.run, {"x": given})
    refused("TW1101", "GPU 0, and runs are on GPU 1", second.run, {"x": tw.to_device(x)})
    refused("TW1101", "GPU 0, and runs are on GPU 1", second.run, {"x": x}, out={"y": tw.to_device(expected)})
    moved = first.clone()
    moved.gpu = 1
    np.testing.assert_array_equal(moved.run({"x": there})["y"], expected)
    moved.gpu = 0
    refused("TW1101", "GPU 1, and runs are on GPU 0", moved.run, {"x": there})
    count = len(machine.cuda()["devices"])
    refused("TW1501", f"there is no GPU {count}: the driver has {count}", tw.to_device, x, count)
    moved.gpu = count
    refused("TW1501", f"there is no GPU {count}", moved.run, {"x": x})
    for wrong in (-1, True, "1", 1.0):
        refused("TW1101", "is no GPU", setattr, moved, "gpu", wrong)
    refused("TW1101", "a GPU is chosen for a model that was compiled for", tw.load_executable, files / "cpu.twa", gpu=1)


def case_what_does_not_fit_is_refused():
    net, y = executable(), np.zeros((1, 10), np.float32)
    elsewhere = executable("cpu")

    def refuses(text, given, run=net.run, **options):
        refused("TW1101", text, run, {"x": given}, **options)

    there = tw.to_device(x)
    for given in (there, Interface(x), Speaker(there)):
        refuses("input 'x' lies in the memory of a GPU, and the model was compiled for", given, elsewhere.run)
        refuses("output 'y' lies in the memory of a GPU", x, elsewhere.run, out={"y": tw.to_device(y)})
    refuses("streams and outputs on the device are for GPUs", x, elsewhere.run, stream=1)
    refuses("streams and outputs on the device are for GPUs", x, elsewhere.run, outputs="device")

    refuses("input 'x' is f64[1,3,16,16], the model has f32[1,3,16,16]", tw.to_device(x.astype(np.float64)))
    refuses("input 'x' is f32[3,16,16], the model has f32[1,3,16,16]", Interface(x[0]))
    refuses("output 'y' is f32[10], the model has f32[1,10]", there, out={"y": tw.to_device(y[0])})
    refuses("which no model takes", Interface(x, typestr="<c8"))
    refuses("strides (3072, 1024, 4, 64)", Interface(x, strides=(3072, 1024, 4, 64)))
    net.run({"x": Interface(x, strides=(99, 1024, 64, 4))})  # of one step, which nobody takes
    refuses("has a mask", Interface(x, mask=there))
    refuses("version before 3", Interface(x, version=2))
    refuses("has no typestr", type("Odd", (), {"__cuda_array_interface__": {"shape": (), "data": (0, False)}})())
    read_only = Interface(y, data=(Interface(y).address, True))
    refuses("out['y'] may only be read", there, out={"y": read_only})
    read_only = Interface(x)
    read_only.facts["data"] = (read_only.address, True)
    net.run({"x": read_only})
    refuses("shares memory with input 'x'", there, out={"y": Interface(y, data=(address_of(there), False))})
    refuses("no writable, C-contiguous", there, out={"y": [1.0]})

    class Shy(Speaker):
        def __dlpack__(self, **options):
            raise BufferError("tensors that require gradient are not")

    refuses("tensors that require gradient are not", Shy(there))
    captured, graph = new_stream(), ctypes.c_void_p()
    driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(captured), 1)
    refuses("the stream is being captured", there, out={"y": tw.to_device(y)}, stream=captured)
    driver.call("cuStreamEndCapture", ctypes.c_void_p(captured), ctypes.byref(graph))
    driver.call("cuGraphDestroy", graph)
    for stream in (-1, True, 1.5, "0", 2**70, Stream("a")):
        refuses("is no stream", there, stream=stream)
    refuses("outputs='gpu' is no place", there, outputs="gpu")
    refuses("out= says where outputs are", there, outputs="device", out={"y": tw.to_device(y)})
    if IS_EMULATED:  # a GPU's driver does not say that the address is no stream's
        refused("TW1501", "cannot", net.run, {"x": there}, out={"y": tw.to_device(y)}, stream=12345)

    host = Interface(x, data=(x.ctypes.data, False))
    refuses("no memory of the GPU: it was freed, or it is the host's", host)
    refuses("no memory of the GPU", Interface(x, data=(Interface(x[:, 1:]).address, False)))  # too short
    freed = Interface(x)
    freed.free()
    refuses("no memory of the GPU: it was freed", freed)
    freed = Interface(y)
    freed.free()
    refuses("output 'y' takes 40 bytes that are no memory of the GPU", there, out={"y": freed})
    if IS_EMULATED:
        far = Interface(x)
        library.cuda_emulator_move(ctypes.c_uint64(far.address), 1)
        refuses("input 'x' lies in the memory of GPU 1, and runs are on GPU 0", far)
        refused("TW1501", "there is no GPU 1", _core.view_on_gpu(far, "it", None, False).numpy)
    np.testing.assert_array_equal(net(there)[0], net(x)[0])  # none of it has broken anything


def address_of(array):
    return array.__cuda_array_interface__["data"][0]


if __name__ == "__main__":
    globals()[sys.argv[2]]()
