#include "tensor_ir/passes/values.h"

#include <algorithm>
#include <cstring>

#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

template <class T>
void add(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& item : from)
    if (std::find(to.begin(), to.end(), item) == to.end()) to.push_back(item);
}

bool is_integer_division(BinaryOp op) {
  return op == BinaryOp::div || op == BinaryOp::mod || op == BinaryOp::floor_div || op == BinaryOp::floor_mod;
}

bool may_trap_itself(const Expr& e) {
  if (e.kind() == NodeKind::Load) return true;
  if (const auto* cast = e.as<Cast>()) return cast->value.dtype().is_float() && !cast->dtype.is_float();
  const auto* b = e.as<Binary>();
  if (!b || b->dtype.is_float()) return false;
  const bool is_shift = b->op == BinaryOp::shift_left || b->op == BinaryOp::shift_right;
  const auto divisor = as_int(b->b);
  if (is_shift) return !divisor || *divisor < 0 || *divisor >= b->dtype.bits;
  return is_integer_division(b->op) && (!divisor || *divisor == 0 || *divisor == -1);
}

// What tells a node apart from others of its kind and type with the same children.
uint64_t own_part(const Expr& e) {
  switch (e.kind()) {
    case NodeKind::IntImm:
      return static_cast<uint64_t>(e.as<IntImm>()->value);
    case NodeKind::FloatImm: {
      uint64_t bits = 0;
      std::memcpy(&bits, &e.as<FloatImm>()->value, sizeof bits);  // 0 and -0 differ
      return bits;
    }
    case NodeKind::Var:
      return reinterpret_cast<uintptr_t>(e.get());
    case NodeKind::Unary:
      return static_cast<uint64_t>(e.as<Unary>()->op);
    case NodeKind::Binary:
      return static_cast<uint64_t>(e.as<Binary>()->op);
    case NodeKind::Call:
      return static_cast<uint64_t>(e.as<Call>()->intrinsic);
    case NodeKind::VectorReduce:
      return static_cast<uint64_t>(e.as<VectorReduce>()->op);
    case NodeKind::Load:
      return reinterpret_cast<uintptr_t>(e.as<Load>()->buffer.get());
    default:
      return 0;
  }
}

}  // namespace

int Values::number(const Expr& e) {
  const auto found = memo_.find(e.get());
  if (found != memo_.end()) return found->second;
  const int number = intern(e);
  memo_.emplace(e.get(), number);
  return number;
}

int Values::intern(const Expr& e) {
  const DType dtype = e.dtype();
  std::vector<uint64_t> key = {static_cast<uint64_t>(e.kind()), static_cast<uint64_t>(dtype.kind),
                               static_cast<uint64_t>(dtype.bits), static_cast<uint64_t>(dtype.lanes), own_part(e)};
  Facts facts;
  facts.may_trap = may_trap_itself(e);
  if (const auto* load = e.as<Load>()) {
    facts.reads.push_back(load->buffer);
    key.push_back(load->predicate.is_defined());
  }
  if (e.kind() == NodeKind::Var) facts.vars.push_back(Var::of(e));
  for_each_child(e, [&](const Expr& child) {
    const int number = this->number(child);
    const Facts& part = facts_[static_cast<size_t>(number)];
    key.push_back(static_cast<uint64_t>(number));
    add(facts.reads, part.reads);
    add(facts.vars, part.vars);
    facts.may_trap |= part.may_trap;
  });
  const int next = static_cast<int>(facts_.size());
  if (const auto* let = e.as<Let>()) {
    auto& equals = known_lets_[structural_hash(e)];
    for (const auto& [other, number] : equals)
      if (structural_equal(other, e)) return number;
    equals.emplace_back(e, next);
    std::erase(facts.vars, let->var);
  } else {
    const auto [entry, is_new] = known_.emplace(std::move(key), next);
    if (!is_new) return entry->second;
  }
  facts_.push_back(std::move(facts));
  return next;
}

bool is_worth_naming(const Expr& e) {
  const DType dtype = e.dtype();
  switch (e.kind()) {
    case NodeKind::Load:
      return e.as<Load>()->buffer->scope != Scope::register_;
    case NodeKind::Broadcast:
      return is_worth_naming(e.as<Broadcast>()->value);
    case NodeKind::Let:
    case NodeKind::Call:
    case NodeKind::VectorReduce:
      return true;
    case NodeKind::Unary:
    case NodeKind::Binary:
    case NodeKind::Cast:
    case NodeKind::Select:
      break;
    default:
      return false;
  }
  if (dtype.is_float()) return true;
  if (dtype.is_vector()) return dtype.element() != i64;
  const auto* b = e.as<Binary>();
  if (!b || dtype.is_bool()) return e.kind() == NodeKind::Select;
  const bool is_linear =
      b->op == BinaryOp::add || b->op == BinaryOp::sub || (b->op == BinaryOp::mul && (as_int(b->a) || as_int(b->b)));
  return !is_linear;
}

}  // namespace tw
