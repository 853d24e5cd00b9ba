#include "targets/lower.h"

#include <algorithm>
#include <set>

#include "targets/allocations.h"
#include "targets/backend.h"
#include "tensor_ir/match.h"
#include "tensor_ir/pass.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

// ---------------------------------------------------------------------------------------------------------------
// From one lowered Func to kernels

struct Section {  // what becomes one kernel
  std::vector<Stmt> statements;
  bool is_shared_out = false;  // over workers, or bound to threads
};

bool has_thread_loop(const Stmt& s) {
  bool found = false;
  visit(s, [&](const For& loop) { found |= loop.loop_kind == LoopKind::thread; });
  return found;
}

bool is_parallel_loop(const Stmt& s) {
  const auto* loop = s.as<For>();
  return loop && loop->loop_kind == LoopKind::parallel;
}

// Allocations around everything come off; what is left is statements in order.
void open_top_level(const Stmt& s, std::vector<Buffer>& allocated, std::vector<Stmt>& statements) {
  if (const auto* allocate = s.as<Allocate>()) {
    allocated.push_back(allocate->buffer);
    open_top_level(allocate->body, allocated, statements);
  } else if (const auto* list = s.as<Seq>()) {
    for (const Stmt& child : list->statements) open_top_level(child, allocated, statements);
  } else {
    statements.push_back(s);
  }
}

// A parallel loop is a kernel; serial statements beside each other are one together.
std::vector<Section> cut(const std::vector<Stmt>& statements) {
  std::vector<Section> sections;
  for (const Stmt& s : statements) {
    const bool is_shared_out = is_parallel_loop(s) || has_thread_loop(s);
    if (is_shared_out || sections.empty() || sections.back().is_shared_out) sections.push_back({{}, is_shared_out});
    sections.back().statements.push_back(s);
  }
  return sections;
}

std::set<Buffer> buffers_used(const Stmt& s) {
  std::set<Buffer> used;
  for (const Buffer& buffer : buffers_read(s)) used.insert(buffer);
  for (const Buffer& buffer : buffers_written(s)) used.insert(buffer);
  return used;
}

// Iterations of a parallel loop share nothing, so memory that only one such loop uses is each iteration's own.
Stmt allocate_within(const Buffer& buffer, const Stmt& body) {
  if (!is_parallel_loop(body)) return make_stmt<Allocate>(buffer, body);
  const For& loop = *body.as<For>();
  return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, make_stmt<Allocate>(buffer, loop.body), loop.thread,
                        loop.attributes, loop.span);
}

Kernel make_kernel(const Func& whole, const Stmt& body, const std::vector<Buffer>& temporaries,
                   const std::string& symbol) {
  const std::set<Buffer> used = buffers_used(body);
  Kernel kernel;
  kernel.symbol = symbol;
  kernel.func = whole;
  kernel.func.name = symbol;
  kernel.func.body = body;
  kernel.func.buffers.clear();
  kernel.func.output_count = 0;
  auto add = [&](const Buffer& buffer, bool is_output) {
    if (!used.count(buffer)) return;
    kernel.func.buffers.push_back(buffer);
    kernel.func.output_count += is_output;
  };
  for (const Buffer& buffer : whole.buffers) add(buffer, whole.is_output(buffer));
  for (const Buffer& buffer : temporaries) add(buffer, true);
  // A GPU's threads and blocks have their own memories.
  if (!has_thread_loop(body)) kernel.workspace_bytes = plan_allocations(kernel.func).workspace_bytes;
  if (kernel.has_workspace()) {
    kernel.func.buffers.emplace_back("workspace", u8, std::vector<Expr>{kernel.workspace_bytes});
    ++kernel.func.output_count;
  }
  kernel.tasks = is_parallel_loop(body) ? body.as<For>()->extent : Expr(1);
  return kernel;
}

LoweredFunc split_into_kernels(const Func& f, const std::string& symbol) {
  std::vector<Buffer> allocated;
  std::vector<Stmt> statements;
  open_top_level(f.body, allocated, statements);
  std::vector<Section> sections = cut(statements);
  std::vector<Stmt> bodies;
  for (Section& section : sections) bodies.push_back(seq(std::move(section.statements)));

  // Worker-local memory stays within its kernel; what several kernels use, and whatever is global, lives between them.
  LoweredFunc lowered;
  for (Buffer buffer : allocated) {
    std::vector<Stmt*> users;
    for (Stmt& body : bodies)
      if (buffers_used(body).count(buffer)) users.push_back(&body);
    if (users.empty()) continue;
    if (users.size() == 1 && buffer->scope != Scope::global) {
      *users[0] = allocate_within(buffer, *users[0]);
      continue;
    }
    if (buffer->scope != Scope::global) {
      BufferNode shared = *buffer.get();
      shared.scope = Scope::global;
      const Buffer replacement{std::move(shared)};
      for (Stmt* user : users) *user = replace_buffer(*user, buffer, replacement);
      buffer = replacement;
    }
    lowered.temporaries.push_back(buffer);
  }
  for (size_t i = 0; i < bodies.size(); ++i) {
    const std::string name = bodies.size() == 1 ? symbol : symbol + "_" + std::to_string(i);
    lowered.kernels.push_back(make_kernel(f, bodies[i], lowered.temporaries, name));
  }
  return lowered;
}

// Names of buffers.
std::set<std::string> allocated_in(Scope scope, const Func& f) {
  std::set<std::string> names;
  visit(f.body, [&](const Allocate& a) {
    if (a.buffer->scope == scope) names.insert(a.buffer->name);
  });
  return names;
}

}  // namespace

LoweredFunc lower(const Func& scheduled, const Target& target, const std::string& symbol) {
  Func f = scheduled;
  f.name = symbol;
  if (target.backend->has_vectors) f.attributes["vector_bits"] = int64_t{target.vector_bits};
  f.attributes["has_fma"] = int64_t{target.has_fma};
  f.attributes["has_power_scaling"] = int64_t{target.has_power_scaling};
  for (const std::string_view name : target.backend->lowering) f = run_pass(name, f, find_pass(name));
  LoweredFunc lowered = split_into_kernels(f, symbol);
  const auto registers = allocated_in(Scope::register_, scheduled), stack = allocated_in(Scope::stack, f);
  std::set_intersection(registers.begin(), registers.end(), stack.begin(), stack.end(),
                        std::back_inserter(lowered.spilled));
  return lowered;
}

void name_by_content(LoweredFunc& lowered, const std::string& prefix) {
  for (Kernel& kernel : lowered.kernels)
    kernel.symbol = kernel.func.name = prefix + "_" + structural_digest(kernel.func).substr(0, 16);
}

}  // namespace tw
