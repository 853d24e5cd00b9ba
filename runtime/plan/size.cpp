#include "runtime/plan/size.h"

#include <algorithm>
#include <array>

namespace tw {
namespace {

[[noreturn]] void refuse_overflow() {
  throw Error(ErrorCode::limit,
              "with these sizes of the open dimensions an array is too large\n  help: run fewer or smaller inputs");
}

int64_t apply(Size::Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  switch (op) {
    case Size::Op::add:
      fits = !__builtin_add_overflow(a, b, &result);
      break;
    case Size::Op::subtract:
      fits = !__builtin_sub_overflow(a, b, &result);
      break;
    case Size::Op::multiply:
      fits = !__builtin_mul_overflow(a, b, &result);
      break;
    case Size::Op::floor_div:
    case Size::Op::floor_mod: {
      fits = b > 0;
      if (!fits) break;
      const int64_t remainder = (a % b + b) % b;
      result = op == Size::Op::floor_mod ? remainder : (a - remainder) / b;
      break;
    }
    case Size::Op::min:
      return std::min(a, b);
    case Size::Op::max:
      return std::max(a, b);
    case Size::Op::number:
    case Size::Op::symbol:
      break;
  }
  if (!fits) refuse_overflow();
  return result;
}

constexpr size_t deepest = 64;  // of operands that wait for their operator

bool is_operand(Size::Op op) {
  return op == Size::Op::number || op == Size::Op::symbol;
}

}  // namespace

int64_t Size::at(std::span<const int64_t> symbols) const {
  if (is_known()) return value_;
  std::array<int64_t, deepest> stack;
  size_t depth = 0;
  for (const auto& [op, value] : program_) {
    if (is_operand(op)) {
      stack[depth++] = op == Op::number ? value : symbols[static_cast<size_t>(value)];
    } else {
      --depth;
      stack[depth - 1] = apply(op, stack[depth - 1], stack[depth]);
    }
  }
  return stack[0];
}

bool Size::is_well_formed(size_t symbols) const {
  size_t depth = is_known() ? 1 : 0;
  for (const auto& [op, value] : program_) {
    if (op > Op::max) return false;
    if (op == Op::symbol && (value < 0 || static_cast<uint64_t>(value) >= symbols)) return false;
    if (is_operand(op) ? ++depth > deepest : depth-- < 2) return false;
  }
  return depth == 1;
}

std::string Size::text(std::span<const std::string> symbols) const {
  if (is_known()) return std::to_string(value_);
  struct Piece {
    std::string text;
    bool is_sum = false;
    std::string factor() const { return is_sum ? "(" + text + ")" : text; }
  };
  std::vector<Piece> stack;
  for (const auto& [op, value] : program_) {
    if (is_operand(op)) {
      stack.push_back({op == Op::number ? std::to_string(value) : symbols[static_cast<size_t>(value)]});
      continue;
    }
    const Piece b = std::move(stack.back());
    stack.pop_back();
    Piece& a = stack.back();
    static constexpr const char* signs[] = {"", "", " + ", " - ", " * ", " // ", " % "};
    if (op == Op::min || op == Op::max) {
      a = {(op == Op::min ? "min(" : "max(") + a.text + ", " + b.text + ")"};
    } else if (op == Op::add || op == Op::subtract) {
      a = {a.text + signs[static_cast<size_t>(op)] + (op == Op::subtract ? b.factor() : b.text), true};
    } else {
      const bool is_division = op != Op::multiply;
      a = {a.factor() + signs[static_cast<size_t>(op)] + b.factor(), is_division};
    }
  }
  return stack.back().text;
}

}  // namespace tw
