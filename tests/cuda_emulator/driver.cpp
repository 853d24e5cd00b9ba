// A libcuda.so.1 for machines without a GPU.  It runs the kernels that the emulator's NVRTC (nvrtc.cpp) has compiled
// for the host, block after block (block.h).  What is put into a stream waits there until somebody waits for it; then
// the others go on by turns, or wait on.
//
// It refuses what a driver refuses: calls without a context, unknown addresses, launches that no GPU holds.  It finds
// what a GPU would do wrong in silence or only sometimes: memory begins poisoned, device and shared alike, and has
// pages around it that trap; a barrier that not all threads of a block reach fails the launch.
// Which GPUs there are, devices.h says.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/images.h"

namespace {

using namespace tw::cuda_emulator;

int objects;
std::map<std::string, int> calls;  // by function
std::string fails;                 // what is to fail next
Result failed_with;                // a kernel's failure stays, as a GPU's does

// Between pages that trap; the bytes up to the next multiple of 256, at which it ends, hold a pattern.
struct Memory {
  char *pages, *begin;
  size_t page_bytes, bytes, slack;
  int ordinal = 0;  // of the GPU that has it
};
std::map<uint64_t, Memory> memory;
constexpr unsigned char pattern = 0xa5;

const Memory* memory_at(uint64_t address) {
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return nullptr;
  const auto& [begin, block] = *--after;
  return address < begin + block.bytes ? &block : nullptr;
}

bool is_memory(uint64_t address, size_t bytes) {
  const Memory* block = memory_at(address);
  return block && block->ordinal == own_gpu() &&
         reinterpret_cast<char*>(address) + bytes <= block->begin + block->bytes;
}

bool is_intact(const Memory& block) {
  const char* end = block.begin + block.bytes;
  return std::all_of(end, end + block.slack, [](char c) { return static_cast<unsigned char>(c) == pattern; });
}

struct Function {
  KernelEntry* entry;
  Module* module;
  int gpu;
  unsigned shared_bytes = 48 << 10;  // that a launch may ask for
};
std::vector<std::unique_ptr<Function>> functions;

struct Stream;
struct Event {
  std::shared_ptr<Stream> stream;
  size_t after = 0;                // so much of its work
  std::shared_ptr<uint64_t> time;  // when it has passed
  bool has_passed() const;
};
struct Action {
  std::function<void()> run;
  Event waits_for;
};
struct Launch {
  Function* function;
  Index grid, block;
  std::vector<uint64_t> arguments;
  std::vector<TensorMap> maps;
};
struct Stream {
  int gpu = own_gpu();
  std::vector<Launch>* recorded = nullptr;  // while it is captured
  std::deque<Action> work;
  size_t queued = 0, done = 0;
  bool is_ready() const { return !work.empty() && work.front().waits_for.has_passed(); }
};
bool Event::has_passed() const {
  return !stream || stream->done >= after;
}
std::map<const void*, std::shared_ptr<Stream>> streams;
std::map<std::pair<int, uintptr_t>, std::shared_ptr<Stream>> default_streams;

// Null: there is none.  The default streams, 1 and 2 of each GPU, are there from the start, and wait for no others.
std::shared_ptr<Stream> find_stream(const void* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number == 1 || number == 2) {
    if (own_gpu() < 0) return nullptr;
    std::shared_ptr<Stream>& stream = default_streams[{own_gpu(), number}];
    if (!stream) stream = std::make_shared<Stream>();
    return stream;
  }
  const auto found = streams.find(handle);
  return found == streams.end() ? nullptr : found->second;
}
// Of the GPU whose context is current; others take no work.
std::shared_ptr<Stream> own_stream(const void* handle) {
  const std::shared_ptr<Stream> found = find_stream(handle);
  return found && found->gpu == own_gpu() ? found : nullptr;
}
void put(void* handle, Action action) {
  const std::shared_ptr<Stream> stream = find_stream(handle);
  stream->work.push_back(std::move(action));
  ++stream->queued;
}
std::vector<std::shared_ptr<Stream>> all_streams() {
  std::vector<std::shared_ptr<Stream>> all;
  for (const auto& [handle, stream] : streams) all.push_back(stream);
  for (const auto& [handle, stream] : default_streams) all.push_back(stream);
  return all;
}
std::mt19937 turns(3);
void work_off(Stream& stream, size_t until, bool by_turns = turns() % 2 == 0) {
  while (stream.done < until) {
    if (!stream.is_ready()) {
      const Event needed = stream.work.front().waits_for;
      work_off(*needed.stream, needed.after, by_turns);
      continue;
    }
    std::vector<std::shared_ptr<Stream>> others;
    for (const std::shared_ptr<Stream>& other : all_streams())
      if (by_turns && other->is_ready() && other.get() != &stream) others.push_back(other);
    Stream& next = others.empty() || turns() % 2 == 0 ? stream : *others[turns() % others.size()];
    const Action action = std::move(next.work.front());
    next.work.pop_front();
    if (action.run) action.run();
    ++next.done;
  }
}
void work_off_all() {
  for (const std::shared_ptr<Stream>& stream : all_streams()) work_off(*stream, stream->queued);
}

uint64_t blocks_run;  // the clock: one takes a microsecond, whatever it does, so times are the same each time

void run(const Launch& launch) {
  Module& module = *launch.function->module;
  std::vector<uint64_t> values = launch.arguments;
  std::vector<void*> arguments;
  for (uint64_t& value : values) arguments.push_back(&value);
  std::vector<TensorMap> maps = launch.maps;
  for (TensorMap& map : maps) arguments.push_back(&map);
  const KernelEntry& kernel = *launch.function->entry;
  const Index &grid = launch.grid, &shape = launch.block;
  blocks_run += uint64_t{grid.x} * grid.y * grid.z;
  Index& block = module.block;
  for (block.z = 0; block.z < grid.z; ++block.z)
    for (block.y = 0; block.y < grid.y; ++block.y)
      for (block.x = 0; block.x < grid.x; ++block.x) {
        if (module.shared_begin)
          std::memset(module.shared_begin, poison, static_cast<size_t>(module.shared_end - module.shared_begin));
        if (kernel.waits) {
          if (!run_block(module, shape, kernel, arguments.data())) failed_with = launch_failed;
          if (failed_with) return;
          continue;
        }
        Index& thread = module.thread;
        for (thread.z = 0; thread.z < shape.z; ++thread.z)
          for (thread.y = 0; thread.y < shape.y; ++thread.y)
            for (thread.x = 0; thread.x < shape.x; ++thread.x) kernel.call(arguments.data());
      }
}

}  // namespace

extern "C" {

// For tests of the runtime.
int cuda_emulator_live_objects() {
  const Lock lock(mutex);
  return objects;
}
// Of all functions whose names begin so, those that were counted.
int cuda_emulator_calls(const char* begin) {
  const Lock lock(mutex);
  int sum = 0;
  for (const auto& [name, count] : calls) sum += name.starts_with(begin) ? count : 0;
  return sum;
}
// As if another GPU had the memory.
void cuda_emulator_move(uint64_t address, int ordinal) {
  const Lock lock(mutex);
  memory.at(address).ordinal = ordinal;
}
void cuda_emulator_fail(const char* what) {
  const Lock lock(mutex);
  fails = what ? what : "";
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  const Lock lock(mutex);
  if (own_gpu() < 0 || bytes == 0) return invalid_value;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), whole = (bytes + 255) / 256 * 256;
  const size_t page_bytes = (whole + page - 1) / page * page + 2 * page;
  void* pages = mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return out_of_memory;
  char* start = static_cast<char*>(pages);
  mprotect(start + page, page_bytes - 2 * page, PROT_READ | PROT_WRITE);
  const Memory block = {start, start + page_bytes - page - whole, page_bytes, bytes, whole - bytes, own_gpu()};
  std::memset(block.begin, poison, bytes);
  std::memset(block.begin + bytes, pattern, block.slack);
  *address = reinterpret_cast<uint64_t>(block.begin);
  memory[*address] = block;
  return ++objects, success;
}
int cuMemFree_v2(uint64_t address) {
  const Lock lock(mutex);
  work_off_all();  // the driver waits for what may use it
  const auto found = memory.find(address);
  if (found == memory.end()) return invalid_value;
  const bool was_intact = is_intact(found->second);
  munmap(found->second.pages, found->second.page_bytes);
  memory.erase(found);
  return --objects, was_intact ? success : illegal_address;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  const Lock lock(mutex);
  ++calls[__func__];
  if (!own_stream(stream) || !is_memory(to, bytes)) return invalid_value;
  const auto* begin = static_cast<const char*>(from);
  put(stream, {[to, staged = std::vector<char>(begin, begin + bytes)] {
                 std::memcpy(reinterpret_cast<void*>(to), staged.data(), staged.size());
               },
               {}});
  return success;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  const Lock lock(mutex);
  ++calls[__func__];
  if (!own_stream(stream) || !is_memory(from, bytes)) return invalid_value;
  put(stream, {[=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); }, {}});
  return success;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  const Lock lock(mutex);
  if (!own_stream(stream) || !is_memory(to, bytes)) return invalid_value;
  put(stream, {[=] { std::memset(reinterpret_cast<void*>(to), value, bytes); }, {}});
  return success;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  const Lock lock(mutex);
  ++calls[__func__];
  if (!own_stream(stream) || !is_memory(from, bytes) || !is_memory(to, bytes)) return invalid_value;
  put(stream, {[=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); }, {}});
  return success;
}
int cuPointerGetAttributes(unsigned count, const int* attributes, void** values, uint64_t address) {
  const Lock lock(mutex);
  constexpr int kind = 2, ordinal = 9, range_start = 11, range_bytes = 12, of_device = 2;
  const Memory* block = memory_at(address);
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] == kind)
      *static_cast<int*>(values[i]) = block ? of_device : 0;
    else if (attributes[i] == ordinal)
      *static_cast<int*>(values[i]) = block ? block->ordinal : 0;
    else if (attributes[i] == range_start)
      *static_cast<uint64_t*>(values[i]) = block ? reinterpret_cast<uint64_t>(block->begin) : 0;
    else if (attributes[i] == range_bytes)
      *static_cast<size_t*>(values[i]) = block ? block->bytes : 0;
    else
      return invalid_value;
  }
  return success;
}

int cuModuleLoadData(LoadedModule** module, const void* image) {
  const Lock lock(mutex);
  if (own_gpu() < 0) return invalid_context;
  LoadedModule loaded;
  if (const Result result = load(image, loaded); result != success) return result;
  loaded.module->services = &services_of_block;
  return ++objects, *module = new LoadedModule(loaded), success;
}
int cuModuleLoadDataEx(LoadedModule** module, const void* image, unsigned, int*, void**) {
  const Lock lock(mutex);
  return cuModuleLoadData(module, image);
}
int cuModuleUnload(LoadedModule* module) {
  const Lock lock(mutex);
  std::erase_if(functions, [&](const auto& function) { return function->module == module->module; });
  unload(*module);
  delete module;
  return --objects, success;
}
int cuModuleGetFunction(Function** function, LoadedModule* module, const char* name) {
  const Lock lock(mutex);
  void* entry = dlsym(module->library, (std::string("tw_kernel_") + name).c_str());
  if (!entry) return not_found;
  functions.push_back(
      std::make_unique<Function>(Function{static_cast<KernelEntry*>(entry), module->module, module->gpu}));
  return *function = functions.back().get(), success;
}

int cuFuncSetAttribute(Function* function, int attribute, int value) {
  const Lock lock(mutex);
  constexpr int max_dynamic_shared_size_bytes = 8;
  if (attribute != max_dynamic_shared_size_bytes || value < 0 || value > 227 << 10) return invalid_value;
  return function->shared_bytes = static_cast<unsigned>(value), success;
}
int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  const Lock lock(mutex);
  ++calls[__func__];
  const bool is_grid = gx > 0 && gx < 1u << 31 && gy > 0 && gy < 1u << 16 && gz > 0 && gz < 1u << 16;
  const bool is_block = bx > 0 && by > 0 && bz > 0 && bz <= 64 && uint64_t{bx} * by * bz <= max_threads;
  const std::shared_ptr<Stream> in = own_stream(stream);
  if (!in || function->gpu != in->gpu || shared > function->shared_bytes || extra || !is_grid || !is_block)
    return invalid_value;
  if (failed_with) return failed_with;
  if (fails == "launch") return launch_failed;
  Launch launch{function, {gx, gy, gz}, {bx, by, bz}, {}, {}};
  const int numbers = function->entry->arguments;
  for (int i = 0; i < numbers; ++i) launch.arguments.push_back(*static_cast<uint64_t*>(arguments[i]));
  for (int i = 0; i < function->entry->maps; ++i) {
    const auto* map = static_cast<const TensorMap*>(arguments[numbers + i]);
    if (reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) != 0 || map->is_made != map_mark) return invalid_value;
    launch.maps.push_back(*map);
  }
  for (const uint64_t argument : launch.arguments)
    if (const Memory* block = memory_at(argument); block && block->ordinal != in->gpu) return illegal_address;
  if (in->recorded)
    in->recorded->push_back(std::move(launch));
  else
    put(stream, {[launch = std::move(launch)] { run(launch); }, {}});
  return success;
}

// Of what a driver refuses all that its documentation names.
int cuTensorMapEncodeTiled(TensorMap* map, int type, unsigned rank, uint64_t begin, const uint64_t* extents,
                           const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                           int swizzle, int, int fill) {
  const Lock lock(mutex);
  constexpr unsigned element_bytes[] = {1, 2, 4};  // of unsigned integers
  constexpr unsigned most_rank = 5, piece = 16;
  if (reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) != 0 || type < 0 || type > 2 || rank < 1 ||
      rank > most_rank || begin % piece != 0 || interleave != 0 || swizzle < 1 || swizzle > 3 || fill != 0)
    return invalid_value;
  *map = {begin, element_bytes[type], rank, 16u << swizzle, map_mark, {}, {}, {}};
  uint64_t line = uint64_t{map->element_bytes}, last = 0;
  for (unsigned d = 0; d < rank; ++d) {
    if (extents[d] < 1 || extents[d] > uint64_t{1} << 32 || box[d] < 1 || box[d] > 256 || steps[d] != 1)
      return invalid_value;
    map->box[d] = box[d], map->extents[d] = static_cast<unsigned>(extents[d]);
    if (d + 1 == rank) continue;
    if (strides[d] % piece != 0 || strides[d] >= uint64_t{1} << 40 || strides[d] < extents[d] * line ||
        (d > 0 && strides[d] % line != 0))
      return invalid_value;
    map->strides[d] = line = strides[d];
    last += (extents[d + 1] - 1) * strides[d];
  }
  const uint64_t width = uint64_t{box[0]} * map->element_bytes;
  if (width % piece != 0 || width > map->swizzle_bytes) return invalid_value;
  return is_memory(begin, last + extents[0] * map->element_bytes) ? success : invalid_value;
}

int cuStreamBeginCapture_v2(void* stream, int) {
  const Lock lock(mutex);
  constexpr uintptr_t legacy_default_stream = 1;
  const std::shared_ptr<Stream> in = own_stream(stream);
  if (!in || in->recorded || stream == reinterpret_cast<void*>(legacy_default_stream)) return invalid_value;
  return ++objects, in->recorded = new std::vector<Launch>, success;
}
int cuStreamIsCapturing(void* stream, int* status) {
  const Lock lock(mutex);
  const std::shared_ptr<Stream> in = find_stream(stream);
  if (!in) return invalid_value;
  return *status = in->recorded != nullptr, success;
}
int cuStreamEndCapture(void* stream, std::vector<Launch>** graph) {
  const Lock lock(mutex);
  const std::shared_ptr<Stream> in = find_stream(stream);
  if (!in || !in->recorded) return invalid_value;
  return *graph = std::exchange(in->recorded, nullptr), success;
}
int cuGraphInstantiateWithFlags(std::vector<Launch>** executable, const std::vector<Launch>* graph, uint64_t) {
  const Lock lock(mutex);
  return ++objects, *executable = new std::vector<Launch>(*graph), success;
}
int cuGraphLaunch(const std::vector<Launch>* executable, void* stream) {
  const Lock lock(mutex);
  ++calls[__func__];
  if (!own_stream(stream)) return invalid_value;
  if (failed_with) return failed_with;
  if (fails == "launch") return launch_failed;
  for (const Launch& each : *executable) put(stream, {[each] { run(each); }, {}});
  return success;
}
int cuGraphDestroy(std::vector<Launch>* graph) {
  const Lock lock(mutex);
  return --objects, delete graph, success;
}
int cuGraphExecDestroy(std::vector<Launch>* executable) {
  const Lock lock(mutex);
  return --objects, delete executable, success;
}

int cuStreamCreate(void** stream, unsigned) {
  const Lock lock(mutex);
  if (own_gpu() < 0) return invalid_context;
  const auto made = std::make_shared<Stream>();
  streams[made.get()] = made;
  return ++objects, *stream = made.get(), success;
}
int cuStreamDestroy_v2(void* stream) {
  const Lock lock(mutex);
  const std::shared_ptr<Stream> found = find_stream(stream);
  if (!found) return invalid_value;
  work_off(*found, found->queued);
  return --objects, streams.erase(stream), success;
}
int cuStreamSynchronize(void* stream) {
  const Lock lock(mutex);
  ++calls[__func__];
  const std::shared_ptr<Stream> found = find_stream(stream);
  if (!found) return invalid_value;
  work_off(*found, found->queued);
  if (fails == "synchronize") return launch_failed;
  const bool are_intact = std::all_of(memory.begin(), memory.end(), [](const auto& m) { return is_intact(m.second); });
  if (!failed_with && !are_intact) failed_with = illegal_address;
  return failed_with;
}
int cuStreamWaitEvent(void* stream, const Event* event, unsigned flags) {
  const Lock lock(mutex);
  if (!own_stream(stream) || !event || flags != 0) return invalid_value;
  return put(stream, {{}, *event}), success;
}
int cuEventCreate(Event** event, unsigned) {
  const Lock lock(mutex);
  return ++objects, *event = new Event, success;
}
int cuEventDestroy_v2(Event* event) {
  const Lock lock(mutex);
  return --objects, delete event, success;
}
int cuEventRecord(Event* event, void* stream) {
  const Lock lock(mutex);
  const std::shared_ptr<Stream> found = own_stream(stream);
  if (!event || !found) return invalid_value;
  *event = {found, found->queued + 1, std::make_shared<uint64_t>()};
  return put(stream, {[time = event->time] { *time = blocks_run; }, {}}), success;
}
int cuEventSynchronize(const Event* event) {
  const Lock lock(mutex);
  if (!event) return invalid_value;
  if (event->stream) work_off(*event->stream, event->after);
  return success;
}
int cuEventElapsedTime(float* milliseconds, const Event* start, const Event* end) {
  const Lock lock(mutex);
  if (!start || !end || !start->time || !end->time || !end->has_passed()) return invalid_value;
  return *milliseconds = 0.001f * static_cast<float>(1 + *end->time - *start->time), success;
}
}
