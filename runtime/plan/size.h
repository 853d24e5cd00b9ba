// An integer of a plan: a number, computed from the sizes of open dimensions when a run begins, or from counters of
// loops within the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/error.h"

namespace tw {

class Size {
 public:
  // Postfix: operators take their operands from a stack and leave their result there.  Divisions round down.
  enum class Op : uint8_t { number, symbol, add, subtract, multiply, floor_div, floor_mod, min, max, counter };
  struct Instruction {
    Op op = Op::number;
    int64_t value = 0;  // the number, or the position in Plan::symbols or Plan::counters
  };
  using Program = std::vector<Instruction>;

  Size(int64_t value = 0) : value_(value) {}  // NOLINT: a number is a size
  explicit Size(Program program);

  bool is_known() const { return program_.empty(); }
  operator int64_t() const {  // NOLINT: of a known one
    check(is_known(), "Size: a size that depends on open dimensions or counters is computed by at()");
    return value_;
  }
  const Program& program() const { return program_; }
  Size plus(const Size& other) const;

  // With these sizes of the open dimensions, and counters.  Error(limit): the result does not fit.
  int64_t at(std::span<const int64_t> symbols, std::span<const int64_t> counters = {}) const;
  // The same where counters are not known yet: what is left depends on them alone.
  Size fixed(std::span<const int64_t> symbols) const;
  // Of one that depends on counters alone: the least and the most that it is while each is 0 … most, as far as
  // interval arithmetic tells.  Error(limit).
  struct Range {
    int64_t low = 0, high = 0;
  };
  Range range(std::span<const int64_t> most) const;
  // Whether at() can compute it: every operator has its operands, few wait for theirs, and every symbol and counter
  // exists.
  bool is_well_formed(size_t symbols, size_t counters = 0) const;
  std::string text(std::span<const std::string> symbols) const;  // "batch * 49"

 private:
  // So many times the counter, or floor_mod, min or max of it and a number.
  struct Term {
    int64_t factor = 0;
    size_t counter = 0;
    Op op = Op::counter;
    int64_t number = 0;
  };
  struct Sum {
    int64_t constant = 0;
    std::vector<Term> terms;
  };
  static std::optional<Sum> sum_of(const Program& program);

  int64_t value_ = 0;
  Program program_;  // empty: the value
  // The program as value_ and these: rows that a loop walks over, and places by turns, which each of its steps
  // computes.
  std::vector<Term> terms_;  // empty: it is no such sum
};

}  // namespace tw
