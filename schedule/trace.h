// A schedule as text, the form that databases store, tests replay and people paste:
//
//   i, j, k = loops("C")
//   i0, i1 = split(i, [None, 6])
//   reorder(i0, j, k, i1)
//   Cr = cache_write("C", "C", register)
//   parallel(i0)
//
// replay(parse(print(trace)), func) gives the identical Func.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

class Schedule;

// An argument or result of an instruction: a name bound earlier in the trace, or plain data.
struct TraceName {
  std::string name;
  bool operator==(const TraceName&) const = default;
};
struct TraceValue;
using TraceList = std::vector<TraceValue>;
struct TraceValue {
  // monostate prints as None
  std::variant<std::monostate, TraceName, int64_t, double, std::string, TraceList> value;
  bool operator==(const TraceValue&) const = default;
};

struct Instruction {
  std::string primitive;
  std::vector<TraceValue> arguments;
  std::vector<std::string> results;
  bool operator==(const Instruction&) const = default;
};

struct Trace {
  std::vector<Instruction> instructions;
  bool operator==(const Trace&) const = default;
};

std::string to_text(const Trace& trace);
Trace parse_trace(std::string_view text, const std::string& file = "<trace>");  // Error(text)
// Applies to a fresh Func.  Error(schedule) names the line that does not apply.
Schedule replay(const Trace& trace, const Func& func);

}  // namespace tw
