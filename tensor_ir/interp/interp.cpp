// The oracle's memory, threads and races, and interpret().
//
// Races.  Every iteration of a parallel loop, every thread block and every thread between two barriers is a node
// ("tag") in a tree; two accesses may happen at the same time when their paths to the root part at siblings of one
// loop.  Each element remembers its last writer and two readers.  Back in serial code everything before is ordered: a
// new era.
#include "tensor_ir/interp/interp.h"

#include <algorithm>
#include <numeric>

#include "runtime/rounding.h"
#include "tensor_ir/interp/machine.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw {
namespace interp {

void trap(const std::string& message, const std::string& help) {
  throw Error(ErrorCode::verify, message + "\n  help: " + help);
}

uint32_t Machine::new_tag(uint32_t parent, uint32_t instance) {
  tags_.push_back({parent, instance, tags_[parent].depth + 1});
  return static_cast<uint32_t>(tags_.size()) - 1;
}

bool Machine::are_concurrent(uint32_t a, uint32_t b) const {
  while (tags_[a].depth > tags_[b].depth) a = tags_[a].parent;
  while (tags_[b].depth > tags_[a].depth) b = tags_[b].parent;
  if (a == b) return false;
  while (tags_[a].parent != tags_[b].parent) a = tags_[a].parent, b = tags_[b].parent;
  return tags_[a].instance == tags_[b].instance;
}

void Machine::conflict(const Storage& storage, int64_t element, const char* what) const {
  trap("race on `" + storage.name + "` at element " + std::to_string(element) + ": " + what,
       "separate the iterations' data, or the threads by a barrier");
}

namespace {
Access& access_of(Storage& storage, int64_t element, uint32_t era) {
  if (storage.accesses.empty()) storage.accesses.resize(static_cast<size_t>(storage.count));
  Access& access = storage.accesses[static_cast<size_t>(element)];
  if (access.era != era) access = {era, 0, 0, 0};
  return access;
}
}  // namespace

void Machine::note_read(Storage& storage, int64_t element, uint32_t tag) {
  Access& access = access_of(storage, element, era_);
  if (access.writer != 0 && access.writer != tag && are_concurrent(access.writer, tag)) {
    conflict(storage, element, "one iteration writes what another reads");
  }
  if (access.reader == tag || access.other_reader == tag) return;
  if (access.reader == 0 || !are_concurrent(access.reader, tag))
    access.reader = tag;
  else if (access.other_reader == 0 || !are_concurrent(access.other_reader, tag))
    access.other_reader = tag;
}

void Machine::note_write(Storage& storage, int64_t element, uint32_t tag) {
  Access& access = access_of(storage, element, era_);
  if (access.writer != 0 && access.writer != tag && are_concurrent(access.writer, tag)) {
    conflict(storage, element, "two iterations write it");
  }
  for (const uint32_t reader : {access.reader, access.other_reader}) {
    if (reader != 0 && reader != tag && are_concurrent(reader, tag)) {
      conflict(storage, element, "one iteration writes what another reads");
    }
  }
  access.writer = tag;
}

std::vector<int64_t> Machine::shuffled(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(std::max<int64_t>(0, count)));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options.check_races) std::shuffle(order.begin(), order.end(), random);
  return order;
}

namespace {

std::vector<int64_t> compact_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) strides[d] = stride, stride *= shape[d];
  return strides;
}

// Elements from the first to the last that the indices reach.
int64_t span_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] <= 0) return 0;
    last += (shape[d] - 1) * strides[d];
  }
  return last + 1;
}

}  // namespace

void Machine::allocate(Frame& frame, const AllocatePlan& plan) {
  const Scope scope = plan.buffer->scope;
  const bool is_shared_by_block = frame.block_storage && (scope == Scope::shared || scope == Scope::global);
  const bool is_shared_by_warp = frame.warp_storage && scope == Scope::fragment;
  std::unique_ptr<Storage>& place = is_shared_by_block  ? (*frame.block_storage)[plan.number]
                                    : is_shared_by_warp ? (*frame.warp_storage)[plan.number]
                                                        : frame.owned[static_cast<size_t>(plan.number)];
  if ((is_shared_by_block || is_shared_by_warp) && place) {  // another thread was here first
    frame.storage[static_cast<size_t>(plan.number)] = place.get();
    return;
  }
  if (!place) place = std::make_unique<Storage>();
  Storage& s = *place;
  s.name = plan.buffer->name;
  s.dtype = plan.buffer->dtype;
  s.shape.clear();
  for (const int32_t slot : plan.shape) s.shape.push_back(frame.slots[slot].i);
  if (plan.strides.empty()) {
    s.strides = compact_strides(s.shape);
  } else {
    s.strides.clear();
    for (const int32_t slot : plan.strides) s.strides.push_back(frame.slots[slot].i);
  }
  s.count = span_of(s.shape, s.strides);
  const int64_t bytes = s.count * s.dtype.bytes() * s.dtype.lanes;
  if (s.count < 0 || bytes > (int64_t{1} << 34)) {
    trap("allocation of `" + s.name + "` with " + std::to_string(s.count) + " elements is too large for the oracle",
         "test with smaller extents");
  }
  s.memory.assign(static_cast<size_t>(bytes), 0xcd);
  s.data = s.memory.data();
  s.defined.assign(static_cast<size_t>(std::max<int64_t>(s.count, 1)), 0);
  s.accesses.clear();
  s.owner = frame.tag;
  s.is_private = frame.block_storage && !is_shared_by_block;
  frame.storage[static_cast<size_t>(plan.number)] = &s;
}

void Machine::start(Frame& frame) {
  frame.machine = this;
  frame.code = program.code.data();
  const size_t constants = program.constants.size();
  frame.memory.resize(constants + static_cast<size_t>(program.slots) + 1);
  // A vector constant was appended lane by lane, so its first lane has the highest k: −1 − k runs downwards.
  std::copy(program.constants.rbegin(), program.constants.rend(), frame.memory.begin());
  frame.slots = frame.memory.data() + constants;
  frame.storage.resize(static_cast<size_t>(program.buffers));
  frame.owned.resize(static_cast<size_t>(program.buffers));
}

void Machine::execute(Frame& frame, const Instr* in) {
  try {
    while (in) in = in->run(in, frame);
  } catch (const Error& error) {
    std::string text = error.what();
    if (text.starts_with(error.code_text() + " ")) text.erase(0, error.code_text().size() + 1);
    if (text.find("\n  in func ") != std::string::npos) throw;
    const StmtNode* statement = program.statements[static_cast<size_t>(in - frame.code)];
    std::string where = "func " + program.name;
    if (statement && (statement->kind == NodeKind::Store || statement->kind == NodeKind::Evaluate)) {
      where += ": " + to_text(Stmt(std::shared_ptr<const StmtNode>(std::shared_ptr<void>(), statement)));
      while (!where.empty() && where.back() == '\n') where.pop_back();
    }
    const size_t help = text.find("\n  help:");
    throw Error(error.code(),
                text.substr(0, help) + "\n  in " + where + (help == std::string::npos ? "" : text.substr(help)));
  }
}

// Whether all threads of a warp wait for each other alone; then they run to where they wait next.
bool Machine::go_on(std::vector<Frame>& frames, int64_t begin, int64_t end) {
  const Instr* at = frames[static_cast<size_t>(begin)].resume;
  for (int64_t t = begin; t < end; ++t) {
    const Frame& thread = frames[static_cast<size_t>(t)];
    if (!thread.resume || !thread.waits_for_warp || thread.resume != at) return false;
  }
  for (const int64_t i : shuffled(end - begin)) {
    Frame& thread = frames[static_cast<size_t>(begin + i)];
    thread.waits_for_warp = false;
    execute(thread, thread.resume);
  }
  return true;
}

void Machine::launch(Frame& frame, const LaunchPlan& plan, const Instr* body) {
  int64_t extents[7] = {1, 1, 1, 1, 1, 1, 1};
  for (const auto& axis : plan.axes) {
    int64_t largest = 0;
    for (const int32_t slot : axis.extents) largest = std::max(largest, frame.slots[slot].i);
    extents[static_cast<size_t>(axis.axis)] = largest;
  }
  const int64_t *block_extents = extents + static_cast<int>(ThreadAxis::block_x),
                *thread_extents = extents + static_cast<int>(ThreadAxis::thread_x);
  const int64_t blocks = block_extents[0] * block_extents[1] * block_extents[2];
  const int64_t threads = thread_extents[0] * thread_extents[1] * thread_extents[2];
  if (threads > 1024) trap("a thread block has " + std::to_string(threads) + " threads", "at most 1024 fit");
  const uint32_t outer_tag = frame.tag, grid = new_instance();
  std::vector<Frame> frames(static_cast<size_t>(threads));
  for (Frame& thread : frames) start(thread);
  const int64_t warps = divide_up(threads, warp);
  for (const int64_t b : shuffled(blocks)) {
    std::unordered_map<int, std::unique_ptr<Storage>> block_storage;
    std::vector<std::unordered_map<int, std::unique_ptr<Storage>>> warp_storage(static_cast<size_t>(warps));
    const uint32_t block_tag = options.check_races ? new_tag(outer_tag, grid) : outer_tag;
    for (int64_t t = 0; t < threads; ++t) {
      Frame& thread = frames[static_cast<size_t>(t)];
      std::copy(frame.memory.begin(), frame.memory.end(), thread.memory.begin());
      thread.storage = frame.storage;
      thread.block_storage = &block_storage;
      thread.warp_storage = &warp_storage[static_cast<size_t>(t / warp)];
      thread.resume = body;
      thread.is_copying = false;
      thread.group.clear();
      thread.copies.clear();
      thread.products.clear();
      int64_t *block_place = thread.axes + static_cast<int>(ThreadAxis::block_x),
              *thread_place = thread.axes + static_cast<int>(ThreadAxis::thread_x);
      block_place[0] = b % block_extents[0];
      block_place[1] = b / block_extents[0] % block_extents[1];
      block_place[2] = b / (block_extents[0] * block_extents[1]);
      thread_place[0] = t % thread_extents[0];
      thread_place[1] = t / thread_extents[0] % thread_extents[1];
      thread_place[2] = t / (thread_extents[0] * thread_extents[1]);
    }
    for (bool is_running = threads > 0; is_running;) {  // from barrier to barrier
      const uint32_t phase = new_instance();
      for (const int64_t t : shuffled(threads)) {
        Frame& thread = frames[static_cast<size_t>(t)];
        thread.tag = options.check_races ? new_tag(block_tag, phase) : outer_tag;
        execute(thread, thread.resume);
      }
      for (const int64_t w : shuffled(warps))
        while (go_on(frames, w * warp, std::min(threads, (w + 1) * warp))) {
        }
      const Instr* at = frames[0].resume;
      for (const Frame& thread : frames) {
        if (thread.resume == at) continue;
        trap("not all threads of a block reach the same barrier: " +
                 std::string(at && thread.resume ? "they wait at two different ones" : "some have ended"),
             "move the barrier out of conditions and loops that threads pass differently");
      }
      is_running = at != nullptr;
    }
  }
  if (outer_tag == 0) back_to_serial();
}

}  // namespace interp

void interpret(const Func& f, const std::vector<NDArray>& buffers, const InterpretOptions& options) {
  using namespace interp;
  if (buffers.size() != f.buffers.size()) {
    throw Error(ErrorCode::input, "interpret: `" + f.name + "` takes " + std::to_string(f.buffers.size()) +
                                      " arrays, not " + std::to_string(buffers.size()) +
                                      "\n  help: give one for each buffer, in order");
  }
  const Program program = compile(f);
  Machine machine(program, options);
  Frame frame;
  machine.start(frame);
  for (size_t p = 0; p < f.parameters.size(); ++p) {
    const auto found = options.parameters.find(f.parameters[p].name());
    if (found == options.parameters.end()) {
      throw Error(ErrorCode::input, "interpret: no value for parameter `" + f.parameters[p].name() +
                                        "`\n  help: set InterpretOptions::parameters");
    }
    const DimensionBounds bounds = dimension_bounds(f.parameters[p]);
    if (found->second < bounds.low || found->second > bounds.high) {
      throw Error(ErrorCode::input, "interpret: parameter `" + found->first + "` is " + std::to_string(found->second) +
                                        ", outside of its bounds" + syntax::bounds_text(bounds).substr(1));
    }
    frame.slots[program.parameters[p]].i = found->second;
  }
  std::vector<Storage> storage(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = f.buffers[i];
    Storage& s = storage[i];
    NDArray array = buffers[i];
    s.name = buffer->name;
    s.dtype = buffer->dtype;
    const auto size = [&](const Expr& e) { return evaluate(e, options.parameters).get_int(0); };
    for (const Expr& extent : buffer->shape) s.shape.push_back(as_int(extent) ? *as_int(extent) : size(extent));
    s.strides = compact_strides(s.shape);
    if (!buffer->strides.empty()) {
      for (size_t d = 0; d < s.strides.size(); ++d) s.strides[d] = size(buffer->strides[d]);
    }
    s.count = span_of(s.shape, s.strides);
    if (array.dtype() != buffer->dtype.element() || array.size() < s.count * buffer->dtype.lanes) {
      throw Error(ErrorCode::input, "interpret: the array for `" + s.name + "` has type " + to_string(array.dtype()) +
                                        " and " + std::to_string(array.size()) + " elements, but the buffer is " +
                                        to_string(buffer->dtype) + " and needs " + std::to_string(s.count) +
                                        "\n  help: shape the arrays as the Func's buffers");
    }
    s.data = static_cast<uint8_t*>(array.data());
    const bool is_output = static_cast<int>(i) >= static_cast<int>(buffers.size()) - f.output_count;
    s.is_read_only = !is_output;
    if (is_output && options.poison_outputs) s.defined.assign(static_cast<size_t>(std::max<int64_t>(s.count, 1)), 0);
    frame.storage[i] = &s;
  }
  machine.execute(frame, frame.code);
}

// By a Func that stores it.
NDArray evaluate(const Expr& e, const std::map<std::string, int64_t>& variables) {
  check(!e.dtype().is_vector(), "evaluate: a scalar");
  const Buffer result("result", e.dtype(), {Expr(1)});
  Substitution values;
  for (const Var& var : free_vars(e)) {
    const auto found = variables.find(var.name());
    if (found == variables.end())
      throw Error(ErrorCode::verify,
                  "evaluate: no value for variable `" + var.name() + "`\n  help: add it to the map of variables");
    values[var] = var.dtype().is_bool() ? bool_imm(found->second != 0) : int_imm(var.dtype(), found->second);
  }
  Func func;
  func.name = "value";
  func.buffers = {result};
  func.output_count = 1;
  func.body = make_stmt<Store>(result, std::vector<Expr>{Expr(0)}, substitute(e, values));
  NDArray array(e.dtype(), {1});
  interpret(func, {array});
  return array;
}

}  // namespace tw
