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
      if (b <= 0)
        throw Error(ErrorCode::input, "with these sizes of the open dimensions something is split into no parts");
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
    case Size::Op::counter:
      break;
  }
  if (!fits) refuse_overflow();
  return result;
}

constexpr size_t deepest = 64;  // of operands that wait for their operator

bool is_operand(Size::Op op) {
  return op == Size::Op::number || op == Size::Op::symbol || op == Size::Op::counter;
}

// No run has one below 1.
Size::Range divisor(Size::Range b) {
  return {std::max<int64_t>(b.low, 1), std::max<int64_t>(b.high, 1)};
}

Size::Range apply(Size::Op op, Size::Range a, Size::Range b) {
  switch (op) {
    case Size::Op::subtract:
      return {apply(op, a.low, b.high), apply(op, a.high, b.low)};
    case Size::Op::multiply: {
      const auto [low, high] = std::minmax(
          {apply(op, a.low, b.low), apply(op, a.low, b.high), apply(op, a.high, b.low), apply(op, a.high, b.high)});
      return {low, high};
    }
    case Size::Op::floor_mod:
      b = divisor(b);
      return a.low >= 0 && a.high < b.low ? a : Size::Range{0, b.high - 1};
    case Size::Op::floor_div: {
      b = divisor(b);
      const auto [low, high] = std::minmax(
          {apply(op, a.low, b.low), apply(op, a.low, b.high), apply(op, a.high, b.low), apply(op, a.high, b.high)});
      return {low, high};
    }
    default:
      return {apply(op, a.low, b.low), apply(op, a.high, b.high)};
  }
}

// Runs the postfix program on a stack of T; `operand` makes one of an instruction.
template <class T, class F>
T run(const Size::Program& program, F&& operand) {
  std::array<T, deepest> stack;
  size_t depth = 0;
  for (const auto& instruction : program) {
    if (is_operand(instruction.op)) {
      stack[depth++] = operand(instruction);
    } else {
      --depth;
      stack[depth - 1] = apply(instruction.op, stack[depth - 1], stack[depth]);
    }
  }
  return stack[0];
}

}  // namespace

Size::Size(Program program) : program_(std::move(program)) {
  if (auto sum = sum_of(program_)) value_ = sum->constant, terms_ = std::move(sum->terms);
}

// Nothing where the program is none of counters alone, or is not well formed.
std::optional<Size::Sum> Size::sum_of(const Program& program) {
  constexpr size_t most_terms = 4;
  std::vector<Sum> stack;
  for (const auto& [op, value] : program) {
    if (op == Op::number) {
      stack.push_back({value, {}});
    } else if (op == Op::counter) {
      stack.push_back({0, {{1, static_cast<size_t>(value)}}});
    } else if (op == Op::symbol || stack.size() < 2) {
      return std::nullopt;
    } else {
      Sum b = std::move(stack.back());
      stack.pop_back();
      Sum& a = stack.back();
      if (op == Op::multiply && a.terms.empty()) std::swap(a, b);
      const bool has_number = b.terms.empty();
      const bool is_sum = (op == Op::add || op == Op::subtract) && a.terms.size() + b.terms.size() <= most_terms;
      const bool is_counter = a.terms.size() == 1 && a.terms[0].op == Op::counter;
      const int64_t factor = is_counter ? a.terms[0].factor : 0;
      bool fits = true;
      if (op == Op::floor_mod && has_number && b.constant > 0 && factor == 1 && a.constant == 0) {
        a.terms[0].op = op, a.terms[0].number = b.constant;
      } else if ((op == Op::min || op == Op::max) && has_number && factor == 1) {
        // min(x + c, k) = min(x, k - c) + c
        a.terms[0].op = op;
        fits = !__builtin_sub_overflow(b.constant, a.constant, &a.terms[0].number);
      } else if ((op == Op::min || op == Op::max) && has_number && factor == -1) {
        // min(c - x, k) = c - max(x, c - k)
        a.terms[0].op = op == Op::min ? Op::max : Op::min;
        fits = !__builtin_sub_overflow(a.constant, b.constant, &a.terms[0].number);
      } else if (op == Op::multiply && has_number) {
        fits = !__builtin_mul_overflow(a.constant, b.constant, &a.constant);
        for (Term& term : a.terms) fits = fits && !__builtin_mul_overflow(term.factor, b.constant, &term.factor);
      } else if (is_sum && op == Op::add) {
        fits = !__builtin_add_overflow(a.constant, b.constant, &a.constant);
        a.terms.insert(a.terms.end(), b.terms.begin(), b.terms.end());
      } else if (is_sum) {
        fits = !__builtin_sub_overflow(a.constant, b.constant, &a.constant);
        for (Term& term : b.terms) fits = fits && !__builtin_sub_overflow(0, term.factor, &term.factor);
        a.terms.insert(a.terms.end(), b.terms.begin(), b.terms.end());
      } else {
        fits = false;
      }
      if (!fits) return std::nullopt;
    }
  }
  return stack.size() == 1 ? std::optional(std::move(stack[0])) : std::nullopt;
}

int64_t Size::at(std::span<const int64_t> symbols, std::span<const int64_t> counters) const {
  if (is_known()) return value_;
  if (!terms_.empty()) {
    int64_t sum = value_;
    bool fits = true;
    for (const auto& [factor, counter, op, number] : terms_) {
      int64_t count = counters[counter], product = 0;
      if (op == Op::floor_mod && (number & (number - 1)) == 0) {  // places by turns: a division takes longer
        count &= number - 1;
      } else if (op != Op::counter) {
        count = apply(op, count, number);
      }
      fits &= !__builtin_mul_overflow(factor, count, &product) && !__builtin_add_overflow(sum, product, &sum);
    }
    if (!fits) refuse_overflow();
    return sum;
  }
  return run<int64_t>(program_, [&](const Instruction& operand) {
    if (operand.op == Op::number) return operand.value;
    return (operand.op == Op::symbol ? symbols : counters)[static_cast<size_t>(operand.value)];
  });
}

Size Size::plus(const Size& other) const {
  if (is_known() && other.is_known()) return apply(Op::add, value_, other.value_);
  if (other.is_known() && other.value_ == 0) return *this;
  Program sum;
  for (const Size* size : {this, &other}) {
    if (size->is_known()) sum.push_back({Op::number, size->value_});
    sum.insert(sum.end(), size->program_.begin(), size->program_.end());
  }
  sum.push_back({Op::add});
  return Size(std::move(sum));
}

Size Size::fixed(std::span<const int64_t> symbols) const {
  Program left;
  bool has_counter = false;
  for (const Instruction& instruction : program_) {
    left.push_back(instruction.op == Op::symbol
                       ? Instruction{Op::number, symbols[static_cast<size_t>(instruction.value)]}
                       : instruction);
    has_counter |= instruction.op == Op::counter;
    // Of two numbers the result.
    const size_t n = left.size();
    if (n >= 3 && !is_operand(instruction.op) && left[n - 2].op == Op::number && left[n - 3].op == Op::number) {
      const int64_t value = apply(instruction.op, left[n - 3].value, left[n - 2].value);
      left.resize(n - 2);
      left.back().value = value;
    }
  }
  return has_counter ? Size(std::move(left)) : Size(at(symbols));
}

Size::Range Size::range(std::span<const int64_t> most) const {
  if (is_known()) return {value_, value_};
  return run<Range>(program_, [&](const Instruction& operand) {
    return operand.op == Op::number ? Range{operand.value, operand.value}
                                    : Range{0, most[static_cast<size_t>(operand.value)]};
  });
}

bool Size::is_well_formed(size_t symbols, size_t counters) const {
  size_t depth = is_known() ? 1 : 0;
  for (const auto& [op, value] : program_) {
    if (op > Op::counter) return false;
    const size_t count = op == Op::symbol ? symbols : counters;
    if ((op == Op::symbol || op == Op::counter) && (value < 0 || static_cast<uint64_t>(value) >= count)) return false;
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
      stack.push_back({op == Op::number   ? std::to_string(value)
                       : op == Op::symbol ? symbols[static_cast<size_t>(value)]
                                          : "counter" + std::to_string(value)});
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
