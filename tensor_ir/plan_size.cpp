#include "tensor_ir/plan_size.h"

#include <algorithm>
#include <limits>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

constexpr std::pair<BinaryOp, Size::Op> operators[] = {
    {BinaryOp::add, Size::Op::add},
    {BinaryOp::sub, Size::Op::subtract},
    {BinaryOp::mul, Size::Op::multiply},
    {BinaryOp::floor_div, Size::Op::floor_div},
    {BinaryOp::floor_mod, Size::Op::floor_mod},
    {BinaryOp::min, Size::Op::min},
    {BinaryOp::max, Size::Op::max},
};

// Whether `e` is made of these operators.
bool append(const Expr& e, const std::vector<Var>& symbols, const Counters& counters, Size::Program& program) {
  if (const auto value = as_int(e)) {
    program.push_back({Size::Op::number, *value});
    return true;
  }
  if (e.kind() == NodeKind::Var) {
    if (const auto counter = counters.find(Var::of(e)); counter != counters.end()) {
      program.push_back({Size::Op::counter, counter->second});
      return true;
    }
    const auto symbol = std::find(symbols.begin(), symbols.end(), Var::of(e));
    program.push_back({Size::Op::symbol, symbol - symbols.begin()});
    return true;
  }
  if (const auto* negated = e.as<Unary>(); negated && negated->op == UnaryOp::negate) {
    program.push_back({Size::Op::number, 0});
    if (!append(negated->a, symbols, counters, program)) return false;
    program.push_back({Size::Op::subtract});
    return true;
  }
  const auto* binary = e.as<Binary>();
  if (!binary || !append(binary->a, symbols, counters, program) || !append(binary->b, symbols, counters, program))
    return false;
  const auto row = std::ranges::find(operators, binary->op, &std::pair<BinaryOp, Size::Op>::first);
  if (row == std::end(operators)) return false;
  program.push_back({row->second});
  return true;
}

}  // namespace

std::optional<Size> as_size(const Expr& e, const std::vector<Var>& symbols, const Counters& counters) {
  const Expr simple = simplify(e);
  if (const auto value = as_int(simple)) return *value;
  Size::Program program;
  const bool is_known = append(simple, symbols, counters, program);
  const Size size(std::move(program));
  return is_known && size.is_well_formed(symbols.size(), std::numeric_limits<int64_t>::max()) ? std::optional(size)
                                                                                              : std::nullopt;
}

Size plan_size(const Expr& e, const std::vector<Var>& symbols, const Counters& counters) {
  const auto size = as_size(e, symbols, counters);
  if (!size) internal_error("plan_size: `" + to_text(e) + "` is no size");
  return *size;
}

}  // namespace tw
