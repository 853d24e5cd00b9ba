// How a primitive changes a Schedule: look up, check, build the new body, then commit it together with its instruction.
// Nothing is changed when a primitive throws.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/dependence.h"
#include "schedule/schedule.h"
#include "schedule/tree.h"

namespace tw {

// Error(schedule): the message, the first line of the text of `where` (not defined: none), and what to do.
[[noreturn]] void refuse(std::string_view primitive, const std::string& message, const Stmt& where,
                         const std::string& help);
std::string first_line(const Stmt& s);
std::string quoted(const std::string& name);  // `name`

struct ScheduleEdit {
  template <class... Arguments>
  ScheduleEdit(Schedule& schedule, std::string primitive, const Arguments&... arguments)
      : schedule(schedule), primitive(std::move(primitive)), func(schedule.func_) {
    (instruction.arguments.push_back(encode(arguments)), ...);
    instruction.primitive = this->primitive;
  }

  Schedule& schedule;
  const std::string primitive;
  Func func;  // a copy to change
  Instruction instruction;

  // Found or refused.
  const For& loop(const LoopRef& ref) const { return *path(ref).back().as<For>(); }
  const Block& block(const BlockRef& ref) const { return *path(ref).back().as<Block>(); }
  Path path(const LoopRef& ref) const;
  Path path(const BlockRef& ref) const;
  Buffer buffer(const std::string& name) const;
  Buffer allocated_buffer(const std::string& name) const;  // refuses parameters
  [[noreturn]] void refuse(const std::string& message, const Stmt& where, const std::string& help) const {
    tw::refuse(primitive, message, where, help);
  }

  void require_serial(const For& loop) const;
  // The block's instances are all of its iteration domain, each once (up to recomputation by outer loops).
  void require_regular(const BlockRef& ref) const;
  // Where a layout has padding, copies of the buffer go over its logical elements.  Null: none.
  const Schedule::PaddedLayout* padded_layout(const Buffer& buffer) const;
  // The same also of a constant, whose padding is zeros: it is copied whole.
  const Schedule::PaddedLayout* layout_with_padding(const Buffer& buffer) const;
  void set_padded_layout(const Buffer& buffer, std::vector<Expr> logical, IndexMap map);

  // The iterations of a loop in `body` may run at the same time; for threads of one block, statements may meet in
  // shared memory.
  void check_concurrent_loop(const Stmt& body, const For& loop, bool are_threads = false) const;

  // The new body becomes the schedule's; `results` get names in the trace.
  void commit(Stmt body) { commit(std::move(body), std::vector<LoopRef>{}); }
  void commit(Stmt body, const std::vector<LoopRef>& results);
  void commit(Stmt body, const BlockRef& result);

 private:
  void check_pipelines(const Stmt& body) const;  // pipelined loops stay such that they can be
  TraceValue encode(const LoopRef& loop);
  TraceValue encode(const BlockRef& block);
  TraceValue encode(const std::string& text) { return {text}; }
  TraceValue encode(int64_t value) { return {value}; }
  TraceValue encode(int value) { return {int64_t{value}}; }
  TraceValue encode(const std::optional<int64_t>& value) { return value ? TraceValue{*value} : TraceValue{}; }
  TraceValue encode(double value) { return {value}; }
  TraceValue encode(const BufferBytes& bytes);
  TraceValue encode(const AttributeValue& value);
  TraceValue encode(Scope scope);
  TraceValue encode(ThreadAxis axis);
  TraceValue encode(const IndexMap& map);
  template <class T>
  TraceValue encode(const std::vector<T>& list) {
    TraceList values;
    for (const T& item : list) values.push_back(encode(item));
    return {std::move(values)};
  }
  std::string bind_name(const std::string& wanted);
  void record();

  std::vector<Instruction> lookups_;  // loops(…) that give the arguments their names
  std::map<Var, std::string> new_names_;
};

}  // namespace tw
