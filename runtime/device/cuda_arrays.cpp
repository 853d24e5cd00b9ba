// Arrays in the GPU's memory, and streams beside those of runs.
#include <algorithm>

#include "runtime/device/cuda_context.h"

namespace tw {

using namespace gpu;

namespace {

// What the driver says of memory.
struct Allocation {
  bool is_of_gpu = false;
  int gpu = 0;
  uint64_t start = 0;
  size_t bytes = 0;
};

Allocation allocation_at(CudaDriver::Address address) {
  Allocation found;
  int attributes[] = {2, 9, 11, 12};  // kind of memory, ordinal, start and size of what was allocated
  int kind = 0;
  void* values[] = {&kind, &found.gpu, &found.start, &found.bytes};
  constexpr int of_device = 2;
  found.is_of_gpu =
      driver().pointer_attributes(std::size(attributes), attributes, values, address) == 0 && kind == of_device;
  return found;
}

}  // namespace

void gpu::require_reachable(const NDArray& array, const std::string& name, int gpu) {
  if (array.byte_size() == 0) return;
  const uint64_t address = address_of(array.data());
  const Allocation found = allocation_at(address);
  if (found.is_of_gpu && (found.gpu != gpu || array.gpu() != gpu))
    throw Error(ErrorCode::input, name + " lies in the memory of GPU " +
                                      std::to_string(found.gpu != gpu ? found.gpu : array.gpu()) +
                                      ", and runs are on GPU " + std::to_string(gpu) +
                                      "\n  help: copy it there, or load the executable on that GPU");
  const auto fits = [&] {
    return address >= found.start && array.byte_size() <= found.bytes &&
           address - found.start <= found.bytes - array.byte_size();
  };
  if (!found.is_of_gpu || (found.bytes > 0 && !fits()))  // 0: the driver does not say how much it is
    throw Error(ErrorCode::input,
                name + " takes " + std::to_string(array.byte_size()) +
                    " bytes that are no memory of the GPU: it was freed, or it is the host's\n  help: "
                    "keep arrays until the run has ended");
}

int gpu_with(const void* address) {
  if (!cuda_problem().empty()) return 0;
  const Allocation found = allocation_at(address_of(address));
  return found.is_of_gpu ? found.gpu : 0;
}

NDArray new_gpu_array(DType dtype, Shape shape, int gpu) {
  const auto context = std::make_shared<HeldContext>(gpu);
  CurrentContext current(context->get());
  const NDArray described(dtype, shape, nullptr, nullptr);  // whose size fits the address space
  CudaDriver::Address address = 0;
  require(driver().allocate(&address, std::max<size_t>(described.byte_size(), 1)), "allocate memory");
  const std::shared_ptr<void> memory(reinterpret_cast<void*>(address), [context](void* freed) {
    if (driver().context_push(context->get()) != 0) return;
    driver().free(address_of(freed));
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  });
  return {dtype, std::move(shape), memory.get(), memory, gpu};
}

void copy_gpu_array(const NDArray& from, NDArray& to, StreamHandle stream) {
  check(from.byte_size() == to.byte_size(), "copy_gpu_array: both are of one size");
  if (from.byte_size() == 0) return;
  const int gpu = to.is_on_gpu() ? to.gpu() : from.gpu();
  const HeldContext context(gpu);
  CurrentContext current(context.get());
  const CudaDriver::Stream in = stream_of(stream);
  for (const NDArray* array : {&from, static_cast<const NDArray*>(&to)})
    if (array->is_on_gpu()) require_reachable(*array, "the array", gpu);
  if (from.is_on_gpu() && to.is_on_gpu())
    require(driver().copy(address_of(to.data()), address_of(from.data()), from.byte_size(), in), "copy an array");
  else if (to.is_on_gpu())
    require(driver().copy_in(address_of(to.data()), from.data(), from.byte_size(), in), "take an array");
  else
    require(driver().copy_out(to.data(), address_of(from.data()), from.byte_size(), in), "give an array");
  require(driver().stream_synchronize(in), "copy an array");
}

void wait_for_stream(StreamHandle stream, StreamHandle other, int gpu) {
  if (stream_of(stream) == stream_of(other)) return;
  const HeldContext context(gpu);
  CurrentContext current(context.get());
  const CudaDriver::Event event = new_event(no_timing);
  CudaDriver::Result result = driver().event_record(event, stream_of(other));
  if (result == 0) result = driver().stream_wait(stream_of(stream), event, 0);
  driver().event_destroy(event);  // which is gone when it has passed
  require(result, "wait for another stream");
}

void finish_stream(StreamHandle stream, int gpu) {
  const HeldContext context(gpu);
  CurrentContext current(context.get());
  require(driver().stream_synchronize(stream_of(stream)), "finish what is in a stream");
}

}  // namespace tw
