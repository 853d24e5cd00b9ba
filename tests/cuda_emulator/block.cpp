#include "tests/cuda_emulator/block.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

namespace tw::cuda_emulator {
namespace {

// On its way to shared memory.
struct Copy {
  void* to;
  std::vector<char> bytes;
};

struct Product {
  Services::Make make;
  float* sums;
  unsigned long long a, b;
  bool is_committed;
};

// The threads of a block, one of which runs.
struct Thread {
  ucontext_t context;
  Index index;
  bool is_done;
  bool waits_for_block;
  std::deque<std::vector<Copy>> copies;  // by group; the last is not committed yet
  std::vector<Product> products;         // in order
  bool has_begun_products, has_published;
};
constexpr size_t warp = 32;
constexpr size_t stack_bytes = 64 << 10;
ucontext_t scheduler;
Thread* running;
const KernelEntry* kernel;
void** kernel_arguments;
bool has_failed;
std::vector<char> published;  // what products see of shared memory…
char* shared_begin;           // …from here on

void wait_for_others() {
  running->waits_for_block = true;
  swapcontext(&running->context, &scheduler);
}
void wait_for_warp() {
  swapcontext(&running->context, &scheduler);
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
// Of threads that have not begun products, or of memory that nobody has published, a GPU makes anything.
void multiply(Services::Make function, float* sums, unsigned long long a, unsigned long long b) {
  static std::mt19937 random(4);
  if (!running->has_begun_products || published.empty()) {
    has_failed = true;
    return;
  }
  running->products.push_back({function, sums, a, b, false});
  if (random() % 2 == 0) make(running->products.size());
}
void commit_products() {
  for (Product& product : running->products) product.is_committed = true;
  running->has_begun_products = false;
}
void wait_products() {
  const auto& all = running->products;
  make(static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const Product& p) { return p.is_committed; })));
}
void publish_shared(char* begin, size_t bytes) {
  if (published.empty()) published.assign(bytes, static_cast<char>(poison));
  shared_begin = begin;
  running->has_published = true;
}
}  // namespace

const Services services_of_block = {wait_for_others, wait_for_warp,  copy,     commit_copies,
                                    wait_copies,     begin_products, multiply, commit_products,
                                    wait_products,   publish_shared};

namespace {
void run_thread() {
  kernel->call(kernel_arguments);
  running->is_done = true;
}

}  // namespace

bool run_block(Module& module, const Index& shape, const KernelEntry& entry, void** arguments) {
  kernel = &entry, kernel_arguments = arguments;
  has_failed = false;
  published.clear();
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
    swapcontext(&scheduler, &running->context);
    return running->is_done;
  };
  for (size_t t = 0; t < count; ++t) {
    Thread& thread = threads[t];
    thread.index = {static_cast<unsigned>(t % shape.x), static_cast<unsigned>(t / shape.x % shape.y),
                    static_cast<unsigned>(t / shape.x / shape.y)};
    thread.is_done = thread.waits_for_block = false;
    thread.copies.assign(1, {});
    thread.products.clear();
    thread.has_begun_products = thread.has_published = false;
    getcontext(&thread.context);
    thread.context.uc_stack = {stacks + t * stack_bytes, 0, stack_bytes};
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, run_thread, 0);
  }
  // All threads in any order up to where they wait; then each warp by itself, as long as it waits for nobody else.
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
    std::shuffle(warp_order.begin(), warp_order.end(), random);
    for (const size_t w : warp_order) {
      std::vector<size_t>& mine = order_of[w];
      const auto waits = [&](size_t t) { return !threads[t].is_done && !threads[t].waits_for_block; };
      while (std::any_of(mine.begin(), mine.end(), waits)) {
        if (!std::all_of(mine.begin(), mine.end(), waits)) return false;  // some have gone another way
        std::shuffle(mine.begin(), mine.end(), random);
        for (const size_t t : mine) done += run(t);
      }
    }
    if (done != 0 && done != count) return false;  // some wait for those that have ended
  }
  return !has_failed;
}

}  // namespace tw::cuda_emulator
