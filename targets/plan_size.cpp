#include "targets/plan_size.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

Size::Op op_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return Size::Op::add;
    case BinaryOp::sub:
      return Size::Op::subtract;
    case BinaryOp::mul:
      return Size::Op::multiply;
    case BinaryOp::floor_div:
      return Size::Op::floor_div;
    case BinaryOp::floor_mod:
      return Size::Op::floor_mod;
    case BinaryOp::min:
      return Size::Op::min;
    case BinaryOp::max:
      return Size::Op::max;
    default:
      internal_error("plan_size: an operator of sizes");
  }
}

void append(const Expr& e, const std::vector<Var>& symbols, Size::Program& program) {
  if (const auto value = as_int(e)) {
    program.push_back({Size::Op::number, *value});
  } else if (e.kind() == NodeKind::Var) {
    const auto found = std::find(symbols.begin(), symbols.end(), Var::of(e));
    if (found == symbols.end()) internal_error("plan_size: `" + to_text(e) + "` is no symbol");
    program.push_back({Size::Op::symbol, found - symbols.begin()});
  } else if (const auto* binary = e.as<Binary>()) {
    append(binary->a, symbols, program);
    append(binary->b, symbols, program);
    program.push_back({op_of(binary->op)});
  } else {
    internal_error("plan_size: `" + to_text(e) + "` is no size");
  }
}

}  // namespace

Size plan_size(const Expr& e, const std::vector<Var>& symbols) {
  const Expr simple = simplify(e);
  if (const auto value = as_int(simple)) return *value;
  Size::Program program;
  append(simple, symbols, program);
  return Size(std::move(program));
}

}  // namespace tw
