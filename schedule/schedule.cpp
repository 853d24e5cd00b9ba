#include "schedule/schedule.h"

#include <algorithm>

#include "schedule/edit.h"
#include "tensor_ir/diagnostic.h"
#include "tensor_ir/passes/pipeline.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw {

std::string quoted(const std::string& name) {
  return "`" + name + "`";
}

std::string first_line(const Stmt& s) {
  const std::string text = to_text(s);
  const size_t start = text.find_first_not_of(" \n");
  if (start == std::string::npos) return "";
  return text.substr(start, text.find('\n', start) - start);
}

void refuse(std::string_view primitive, const std::string& message, const Stmt& where, const std::string& help) {
  Diagnostic diagnostic;
  diagnostic.topic = primitive;
  diagnostic.message = message;
  if (where.is_defined()) diagnostic.message += "\n  at " + first_line(where);
  diagnostic.help = help;
  throw Error(ErrorCode::schedule, render(diagnostic, "", ""));
}

// ---------------------------------------------------------------------------------------------------------------
// Looking up

Schedule::Schedule(Func func, Decisions decisions) : func_(std::move(func)), decisions_(std::move(decisions)) {
  std::function<void(const Stmt&, std::vector<const For*>&)> walk = [&](const Stmt& s, std::vector<const For*>& loops) {
    if (const auto* block = s.as<Block>()) {
      if (!covers_domain(*block, loops)) irregular_blocks_.insert(block->name);
      return;
    }
    const auto* loop = s.as<For>();
    if (loop) loops.push_back(loop);
    for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { walk(child, loops); });
    if (loop) loops.pop_back();
  };
  std::vector<const For*> loops;
  walk(func_.body, loops);
}

namespace {
[[noreturn]] void no_such_block(const Func& f, const std::string& name) {
  std::string known;
  for (const Block* block : blocks_in(f.body)) known += (known.empty() ? "" : ", ") + block->name;
  refuse("schedule", "there is no block " + quoted(name), Stmt(), "the blocks are: " + known);
}
}  // namespace

BlockRef Schedule::block(const std::string& name) const {
  if (path_to_block(func_.body, name).empty()) no_such_block(func_, name);
  return {name};
}

std::vector<BlockRef> Schedule::blocks() const {
  std::vector<BlockRef> result;
  for (const Block* block : blocks_in(func_.body)) result.push_back({block->name});
  return result;
}

std::vector<LoopRef> Schedule::loops(const BlockRef& block) const {
  const Path path = path_to_block(func_.body, block.name);
  if (path.empty()) no_such_block(func_, block.name);
  std::vector<LoopRef> result;
  for (const For* loop : loops_of(path)) result.push_back({loop->var});
  return result;
}

std::vector<IndexMap> Schedule::layout_changes(const std::string& buffer) const {
  const auto found = layout_changes_.find(buffer);
  return found == layout_changes_.end() ? std::vector<IndexMap>() : found->second;
}

const Block& Schedule::node(const BlockRef& block) const {
  const Path path = path_to_block(func_.body, block.name);
  if (path.empty()) no_such_block(func_, block.name);
  return *path.back().as<Block>();
}

const For& Schedule::node(const LoopRef& loop) const {
  const Path path = path_to_loop(func_.body, loop.var);
  if (path.empty()) {
    refuse("schedule", "loop " + quoted(loop.var.is_defined() ? loop.name() : "") + " is not in the Func any more",
           Stmt(), "split, fuse and moves of blocks replace loops: use the loops that they return, or loops(block)");
  }
  return *path.back().as<For>();
}

// ---------------------------------------------------------------------------------------------------------------
// Editing

Path ScheduleEdit::path(const LoopRef& ref) const {
  schedule.node(ref);
  return path_to_loop(func.body, ref.var);
}

Path ScheduleEdit::path(const BlockRef& ref) const {
  schedule.node(ref);
  return path_to_block(func.body, ref.name);
}

Buffer ScheduleEdit::buffer(const std::string& name) const {
  const Buffer found = find_buffer(func, name);
  if (found.is_defined()) return found;
  std::string known;
  for (const Buffer& b : all_buffers(func)) known += (known.empty() ? "" : ", ") + b->name;
  refuse("there is no buffer " + quoted(name), Stmt(), "the buffers are: " + known);
}

Buffer ScheduleEdit::allocated_buffer(const std::string& name) const {
  const Buffer found = buffer(name);
  if (func.is_parameter(found)) {
    refuse("buffer " + quoted(name) + " is a parameter: its memory is the caller's", Stmt(),
           "make a copy with cache_read or cache_write and work on that");
  }
  return found;
}

void ScheduleEdit::require_serial(const For& loop) const {
  if (loop.attributes.count(pipeline_attribute)) {
    refuse("loop " + quoted(loop.var.name()) + " is pipelined", path(LoopRef{loop.var}).back(),
           "apply pipeline after " + primitive);
  }
  if (loop.loop_kind == LoopKind::serial) return;
  refuse("loop " + quoted(loop.var.name()) + " is not serial any more", path(LoopRef{loop.var}).back(),
         primitive + " the loop first, then make the resulting loops parallel, vectorized, unrolled or thread-bound");
}

void ScheduleEdit::require_regular(const BlockRef& ref) const {
  if (!schedule.irregular_blocks_.count(ref.name)) return;
  refuse("the loops around block " + quoted(ref.name) + " do not cover its iterations plainly", path(ref).back(),
         "begin from the unscheduled Func, where every iteration variable has a loop of its own, and end loops last");
}

const Schedule::PaddedLayout* ScheduleEdit::padded_layout(const Buffer& buffer) const {
  return buffer->is_constant ? nullptr : layout_with_padding(buffer);
}

const Schedule::PaddedLayout* ScheduleEdit::layout_with_padding(const Buffer& buffer) const {
  const auto found = schedule.padded_layouts_.find(buffer->name);
  return found == schedule.padded_layouts_.end() ? nullptr : &found->second;
}

void ScheduleEdit::set_padded_layout(const Buffer& buffer, std::vector<Expr> logical, IndexMap map) {
  schedule.padded_layouts_[buffer->name] = {std::move(logical), std::move(map)};
}

void ScheduleEdit::check_concurrent_loop(const Stmt& body, const For& loop, bool are_threads) const {
  const Path path = path_to_loop(body, loop.var);
  for (const Block* block : blocks_in(loop.body)) {
    if (!is_reduce_loop(*block, loop.var)) continue;
    refuse("loop " + quoted(loop.var.name()) + " is a reduction loop of block " + quoted(block->name) +
               ": its iterations add to the same element",
           path.back(), "rfactor(" + loop.var.name() + ", axis) makes partial results that are independent");
  }
  const auto conflict = carried_conflict(body, loop, are_threads);
  if (!conflict) return;
  auto describe = [](const Access& access) {
    return std::string(access.is_write ? "writes " : "reads ") + access.buffer->name +
           (access.block ? " in block " + quoted(access.block->name) : "");
  };
  refuse("the iterations of loop " + quoted(loop.var.name()) + " are not independent: one " +
             describe(conflict->first) + ", another " + describe(conflict->second) + " at what may be the same element",
         path.back(), "choose a loop over different output elements, or compute the shared buffer inside this loop");
}

std::string ScheduleEdit::bind_name(const std::string& wanted) {
  std::string name = wanted;
  for (int n = 1; !schedule.used_names_.insert(name).second; ++n) name = wanted + "_" + std::to_string(n);
  return name;
}

TraceValue ScheduleEdit::encode(const LoopRef& loop) {
  const For& node = schedule.node(loop);
  if (const auto known = schedule.loop_names_.find(loop.var); known != schedule.loop_names_.end()) {
    return {TraceName{known->second}};
  }
  if (const auto known = new_names_.find(loop.var); known != new_names_.end()) return {TraceName{known->second}};
  const auto blocks = blocks_in(node.body);
  if (blocks.empty()) {
    refuse("loop " + quoted(loop.name()) + " has no block inside", path(loop).back(),
           "schedules move blocks: there is nothing to do here");
  }
  Instruction lookup{"loops", {TraceValue{blocks[0]->name}}, {}};
  for (const LoopRef& around : schedule.loops({blocks[0]->name})) {
    auto known = schedule.loop_names_.find(around.var);
    std::string name = known != schedule.loop_names_.end() ? known->second : "";
    if (name.empty() && new_names_.count(around.var)) name = new_names_[around.var];
    if (name.empty()) {
      std::set<std::string> taken = schedule.used_names_;
      for (const auto& entry : new_names_) taken.insert(entry.second);
      name = around.name();
      for (int n = 1; taken.count(name); ++n) name = around.name() + "_" + std::to_string(n);
      new_names_[around.var] = name;
    }
    lookup.results.push_back(name);
  }
  lookups_.push_back(std::move(lookup));
  return {TraceName{new_names_.at(loop.var)}};
}

TraceValue ScheduleEdit::encode(const BlockRef& block) {
  schedule.node(block);
  const auto known = schedule.block_names_.find(block.name);
  if (known != schedule.block_names_.end()) return {TraceName{known->second}};
  return {block.name};
}

TraceValue ScheduleEdit::encode(const BufferBytes& bytes) {
  TraceList pairs;
  for (const auto& [name, number] : bytes) pairs.push_back({TraceList{{name}, {number}}});
  return {std::move(pairs)};
}
TraceValue ScheduleEdit::encode(const AttributeValue& value) {
  return std::visit([this](const auto& v) { return encode(v); }, value);
}
TraceValue ScheduleEdit::encode(Scope scope) {
  return {TraceName{to_text(scope)}};
}
TraceValue ScheduleEdit::encode(ThreadAxis axis) {
  return {TraceName{syntax::word(axis)}};
}
TraceValue ScheduleEdit::encode(const IndexMap& map) {
  return {to_text(map)};
}

void ScheduleEdit::record() {
  for (Instruction& lookup : lookups_) schedule.trace_.instructions.push_back(std::move(lookup));
  for (const auto& [var, name] : new_names_) schedule.used_names_.insert(name), schedule.loop_names_[var] = name;
}

void ScheduleEdit::check_pipelines(const Stmt& body) const {
  visit(
      body, [&](const Block&) { return Walk::skip; },
      [&](const For& loop) {
        if (!loop.attributes.count(pipeline_attribute)) return;
        const PipelineParts parts = pipeline_parts(loop);
        if (!parts.problem.empty()) {
          refuse("loop " + quoted(loop.var.name()) + " is pipelined, and could not be any more: " + parts.problem,
                 path_to_loop(body, loop.var).back(), "apply pipeline last");
        }
      });
}

void ScheduleEdit::commit(Stmt body, const std::vector<LoopRef>& results) {
  check_pipelines(body);
  func.body = std::move(body);
  record();
  for (const LoopRef& result : results) {
    const std::string name = bind_name(result.name());
    schedule.loop_names_[result.var] = name;
    instruction.results.push_back(name);
  }
  schedule.trace_.instructions.push_back(std::move(instruction));
  schedule.func_ = std::move(func);
}

void ScheduleEdit::commit(Stmt body, const BlockRef& result) {
  check_pipelines(body);
  func.body = std::move(body);
  record();
  const std::string name = bind_name(result.name);
  schedule.block_names_[result.name] = name;
  instruction.results.push_back(name);
  schedule.trace_.instructions.push_back(std::move(instruction));
  schedule.func_ = std::move(func);
}

}  // namespace tw
