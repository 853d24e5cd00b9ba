#include "tests/cuda_emulator/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <unordered_map>
#include <vector>

namespace tw::cuda_emulator {
namespace {
// Boost's fibers would unwind the stacks of threads that never end, through code without exceptions; and the C
// library's contexts ask the kernel for masks of signals at each change.
using boost::context::detail::fcontext_t, boost::context::detail::jump_fcontext, boost::context::detail::make_fcontext,
    boost::context::detail::transfer_t;

// On its way to shared memory.
struct Copy {
  void* to;
  std::vector<char> bytes;
};

// Of arrivals and of the bytes of boxes, in shared memory.
struct Counter {
  int arrivals = 0;           // of a phase
  bool has_ended_odd = true;  // the phase that ended last: the one before the first counts as odd
  int arrived = 0;
  int64_t missing = 0;  // bytes that are expected and have not come
  std::vector<Copy> boxes = {};
};

struct Product {
  Services::Make make;
  void* sums;
  unsigned long long a, b;
  unsigned group;  // by number of its commit
};

// The threads of a block, one of which runs.
struct Thread {
  fcontext_t context;
  Index index;
  bool is_done;
  bool waits_for_block;
  std::deque<std::vector<Copy>> copies;  // by group; the last is not committed yet
  std::vector<Product> products;         // in order
  unsigned groups_of_products;           // that are committed
  bool has_begun_products, has_published;
  const void* counter;  // that it waits for, null: none; for the phase of that parity
  unsigned parity;
};
constexpr size_t warp = 32;
constexpr size_t stack_bytes = 64 << 10;
fcontext_t scheduler;
Thread* running;
const KernelEntry* kernel;
void** kernel_arguments;
bool has_failed;
std::vector<char> published;  // what products see of shared memory…
char* shared_begin;           // …from here on
std::unordered_map<const void*, Counter> counters;

// Until the scheduler runs the thread again.
void wait() {
  scheduler = jump_fcontext(scheduler, nullptr).fctx;
}
void wait_for_others() {
  running->waits_for_block = true;
  wait();
}
void copy(void* to, const void* from, unsigned bytes, bool is_there) {
  static std::mt19937 random(2);
  Copy copy{to, std::vector<char>(bytes)};
  running->has_published = false;
  if (is_there) std::memcpy(copy.bytes.data(), from, bytes);
  if (random() % 2 == 0)
    std::memcpy(to, copy.bytes.data(), bytes);
  else
    running->copies.back().push_back(std::move(copy));
}
void commit_copies() {
  running->copies.emplace_back();
}
void wait_copies(unsigned left) {
  running->has_published = false;
  for (auto& groups = running->copies; groups.size() > left + 1; groups.pop_front())
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
}

void make(size_t count) {
  for (size_t p = 0; p < count; ++p) {
    const Product& product = running->products[p];
    product.make(product.sums, product.a, product.b, published.data() - shared_begin);
  }
  running->products.erase(running->products.begin(), running->products.begin() + static_cast<long>(count));
}
void begin_products() {
  running->has_begun_products = true;
}
// Of threads that have not begun products a GPU makes anything.
void multiply(Services::Make function, void* sums, unsigned long long a, unsigned long long b) {
  static std::mt19937 random(4);
  if (!running->has_begun_products) {
    has_failed = true;
    return;
  }
  running->products.push_back({function, sums, a, b, running->groups_of_products});
  if (random() % 2 == 0) make(running->products.size());
}
void commit_products() {
  ++running->groups_of_products;
  running->has_begun_products = false;
}
void wait_products(unsigned left) {
  wait();
  const auto& all = running->products;
  make(static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [&](const Product& p) { return p.group + left < running->groups_of_products; })));
}
void publish_shared() {
  running->has_published = true;
}

// Boxes land where products see them, too.
void land(Counter& counter, const Copy& box) {
  std::memcpy(box.to, box.bytes.data(), box.bytes.size());
  std::memcpy(published.data() + (static_cast<char*>(box.to) - shared_begin), box.bytes.data(), box.bytes.size());
  counter.missing -= static_cast<int64_t>(box.bytes.size());
}
// A phase ends with its last arrival and the last byte.
bool ends(const void* at, unsigned parity) {
  Counter& counter = counters.at(at);
  if (counter.has_ended_odd == (parity % 2 != 0)) return true;
  for (const Copy& box : counter.boxes) land(counter, box);
  counter.boxes.clear();
  if (counter.arrived < counter.arrivals || counter.missing != 0) return false;
  counter.has_ended_odd = !counter.has_ended_odd, counter.arrived = 0;
  return true;
}
void set_up_counter(void* at, int arrivals) {
  counters[at] = {.arrivals = arrivals};
}
// What a GPU does with memory that is no counter is anything.
Counter* counter_at(const void* at) {
  const auto found = counters.find(at);
  if (found == counters.end()) has_failed = true;
  return found == counters.end() ? nullptr : &found->second;
}
void expect(void* at, int bytes) {
  if (Counter* counter = counter_at(at)) counter->missing += bytes;
}
void arrive(void* at) {
  Counter* counter = counter_at(at);
  if (!counter) return;
  has_failed |= counter->arrived == counter->arrivals;  // more than are expected
  ++counter->arrived;
}
bool has_ended(void* at, unsigned parity) {
  if (!counter_at(at)) return true;
  if (!ends(at, parity)) {
    running->counter = at, running->parity = parity;
    wait();
    running->counter = nullptr;
  }
  return true;
}
// Element by element: the innermost coordinate runs first, and pieces are exchanged as the addresses of their lines say
// ("Swizzling modes" in the PTX ISA).
void copy_box(void* to, const TensorMap* map, void* at, const int* coordinates, unsigned count) {
  static std::mt19937 random(6);
  Counter* counter = counter_at(at);
  if (!counter || map->is_made != map_mark || count != map->rank || reinterpret_cast<uintptr_t>(to) % 128 != 0) {
    has_failed = true;
    return;
  }
  const size_t width = size_t{map->box[0]} * map->element_bytes;
  size_t lines = 1;
  for (unsigned d = 1; d < map->rank; ++d) lines *= map->box[d];
  const auto start = reinterpret_cast<uintptr_t>(to);
  for (size_t line = 0; line < lines; ++line) {
    size_t rest = line, from = 0;
    bool is_there = true;
    for (unsigned d = 1; d < map->rank; ++d) {
      const int64_t at_dimension = coordinates[d] + static_cast<int64_t>(rest % map->box[d]);
      rest /= map->box[d];
      is_there = is_there && at_dimension >= 0 && at_dimension < int64_t{map->extents[d]};
      from += static_cast<size_t>(at_dimension) * map->strides[d - 1];
    }
    for (size_t piece = 0; piece < width; piece += 16) {
      Copy box{nullptr, std::vector<char>(16)};
      for (size_t byte = 0; byte < 16; byte += map->element_bytes) {
        const int64_t x = coordinates[0] + static_cast<int64_t>((piece + byte) / map->element_bytes);
        if (is_there && x >= 0 && x < int64_t{map->extents[0]})
          std::memcpy(box.bytes.data() + byte,
                      reinterpret_cast<const char*>(map->begin) + from + static_cast<size_t>(x) * map->element_bytes,
                      map->element_bytes);
      }
      uintptr_t place = start + line * width + piece;
      place ^= (place >> 7 & (map->swizzle_bytes / 16 - 1)) << 4;
      box.to = reinterpret_cast<void*>(place);
      random() % 2 == 0 ? land(*counter, box) : counter->boxes.push_back(std::move(box));
    }
  }
}
}  // namespace

const Services services_of_block = {wait_for_others, wait,           copy,           commit_copies,
                                    wait_copies,     begin_products, multiply,       commit_products,
                                    wait_products,   publish_shared, set_up_counter, expect,
                                    arrive,          has_ended,      copy_box};

namespace {
void run_thread(transfer_t from) {
  scheduler = from.fctx;
  kernel->call(kernel_arguments);
  running->is_done = true;
  wait();
}

}  // namespace

bool run_block(Module& module, const Index& shape, const KernelEntry& entry, void** arguments) {
  kernel = &entry, kernel_arguments = arguments;
  has_failed = false;
  shared_begin = module.shared_begin;
  published.assign(static_cast<size_t>(module.shared_end - module.shared_begin), static_cast<char>(poison));
  counters.clear();
  static char* stacks = static_cast<char*>(
      mmap(nullptr, stack_bytes * max_threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  static std::vector<Thread> threads(max_threads);
  static std::mt19937 random(1);
  const size_t count = size_t{shape.x} * shape.y * shape.z;
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const size_t warps = (count + warp - 1) / warp;
  std::vector<std::vector<size_t>> order_of(warps);  // threads of each
  for (size_t t = 0; t < count; ++t) order_of[t / warp].push_back(t);
  const auto run = [&](size_t t) {
    running = &threads[t];
    module.thread = running->index;
    module.warp = static_cast<unsigned>(t / warp), module.lane = static_cast<unsigned>(t % warp);
    running->context = jump_fcontext(running->context, nullptr).fctx;
    return running->is_done;
  };
  for (size_t t = 0; t < count; ++t) {
    Thread& thread = threads[t];
    thread.index = {static_cast<unsigned>(t % shape.x), static_cast<unsigned>(t / shape.x % shape.y),
                    static_cast<unsigned>(t / shape.x / shape.y)};
    thread.is_done = thread.waits_for_block = false;
    thread.copies.assign(1, {});
    thread.products.clear();
    thread.groups_of_products = 0;
    thread.has_begun_products = thread.has_published = false;
    thread.counter = nullptr;
    thread.context = make_fcontext(stacks + (t + 1) * stack_bytes, stack_bytes, run_thread);
  }
  const auto has_its_bytes = [&](size_t t) {
    return threads[t].counter && ends(threads[t].counter, threads[t].parity);
  };
  // All threads in any order up to where they wait; then those for whom others have brought bytes, and warps in turn,
  // of which each goes on to where its threads wait next, as long as they wait for nobody else.
  for (size_t done = 0; done < count;) {
    std::shuffle(order.begin(), order.end(), random);
    // Products see shared memory as it is where all threads have published theirs and met.
    if (std::all_of(threads.begin(), threads.begin() + static_cast<long>(count),
                    [](const Thread& thread) { return thread.has_published && thread.waits_for_block; }))
      std::memcpy(published.data(), shared_begin, published.size());
    for (const size_t t : order) {
      threads[t].waits_for_block = threads[t].has_published = false;
      done += run(t);
    }
    std::vector<size_t> warp_order(warps);
    std::iota(warp_order.begin(), warp_order.end(), 0);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      std::shuffle(warp_order.begin(), warp_order.end(), random);
      for (const size_t w : warp_order) {
        std::vector<size_t>& mine = order_of[w];
        for (const size_t t : mine) {
          if (!has_its_bytes(t)) continue;
          done += run(t);
          goes_on = true;
        }
        const auto waits = [&](size_t t) {
          return !threads[t].is_done && !threads[t].waits_for_block && !threads[t].counter;
        };
        if (std::any_of(mine.begin(), mine.end(), waits)) {
          if (!std::all_of(mine.begin(), mine.end(), waits)) return false;  // some have gone another way
          std::shuffle(mine.begin(), mine.end(), random);
          for (const size_t t : mine) done += run(t);
          goes_on = true;
        }
      }
    }
    for (size_t t = 0; t < count; ++t)
      if (threads[t].counter) return false;        // for bytes that never come
    if (done != 0 && done != count) return false;  // some wait for those that have ended
  }
  return !has_failed;
}

}  // namespace tw::cuda_emulator
