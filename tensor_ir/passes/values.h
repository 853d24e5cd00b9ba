// What passes that give values names have to know of expressions.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

// Numbers expressions so that equal ones have equal numbers, and remembers of each what decides where it may be
// computed.  Of lowered form; expressions have to live as long as this.
class Values {
 public:
  struct Facts {
    std::vector<Buffer> reads;  // each once
    std::vector<Var> vars;      // free, each once
    // Computing it where it was not computed before may be an error: a load out of range, a division by zero.
    bool may_trap = false;
  };
  int number(const Expr& e);
  const Facts& facts(const Expr& e) { return facts_[static_cast<size_t>(number(e))]; }
  bool varies(const Expr& e) { return !facts(e).vars.empty() || !facts(e).reads.empty(); }

 private:
  int intern(const Expr& e);

  std::unordered_map<const ExprNode*, int> memo_;
  std::map<std::vector<uint64_t>, int> known_;
  std::unordered_map<uint64_t, std::vector<std::pair<Expr, int>>> known_lets_;  // equal up to the names that they bind
  std::vector<Facts> facts_;
};

// Expressions that cost something to compute again.  Sums and multiples of indices do not count: code generation takes
// them apart into addresses, where their constants are free; nor does what is constant or lives in registers anyway.
bool is_worth_naming(const Expr& e);

}  // namespace tw
