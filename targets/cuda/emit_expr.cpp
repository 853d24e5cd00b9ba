#include "targets/cuda/emit_expr.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "targets/cuda/requantise.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw::cuda {
namespace {

bool is_half(DType dtype) {
  return dtype.is_float() && dtype.bits == 16;
}

std::string half_name(DType dtype) {
  return dtype.kind == DTypeKind::brain_floating ? "bf16" : "f16";
}

std::string from_memory(const std::string& element, DType dtype) {
  if (is_half(dtype)) return "tw_from_" + half_name(dtype) + "(" + element + ")";
  return dtype.is_bool() ? "(" + element + " != 0)" : element;
}

std::string to_memory(const std::string& value, DType dtype) {
  if (is_half(dtype)) return "tw_to_" + half_name(dtype) + "(" + value + ")";
  return dtype.is_bool() ? "(u8)(" + value + ")" : value;
}

std::string rounded(const std::string& value, DType dtype) {
  return is_half(dtype) ? "tw_round_" + half_name(dtype) + "(" + value + ")" : value;
}

std::string integer_constant(DType dtype, int64_t value) {
  if (dtype.is_bool()) return value ? "true" : "false";
  if (dtype == u64) return std::to_string(static_cast<uint64_t>(value)) + "ull";
  if (value == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807ll - 1)";
  std::string digits = std::to_string(value);
  if (dtype == i64)
    digits += "ll";
  else
    digits = "(" + value_type(dtype) + ")" + digits;
  if (dtype == u32) digits += "u";
  return value < 0 || dtype != i64 ? "(" + digits + ")" : digits;
}

std::string float_constant(DType dtype, double value) {
  bool is_double = dtype.bits == 64;
  if (std::isnan(value))
    return is_double ? "__longlong_as_double(0x7ff8000000000000ll)" : "__uint_as_float(0x7fc00000u)";
  if (std::isinf(value)) {
    std::string infinity = is_double ? "__longlong_as_double(0x7ff0000000000000ll)" : "__uint_as_float(0x7f800000u)";
    return value < 0 ? "(-" + infinity + ")" : infinity;
  }
  std::string digits = syntax::float_digits(is_double ? f64 : f32, value) + (is_double ? "" : "f");
  return std::signbit(value) ? "(" + digits + ")" : digits;
}

bool fits_i32(const Interval& range) {
  using limits = std::numeric_limits<int32_t>;
  return range.low && range.high && *range.low >= limits::min() && *range.high <= limits::max();
}

bool is_arithmetic(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::min:
    case BinaryOp::max:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string value_type(DType dtype) {
  if (dtype.is_bool()) return "bool";
  if (dtype.is_float()) return dtype.bits == 64 ? "double" : "float";
  return (dtype.is_unsigned_integer() ? "u" : "i") + std::to_string(dtype.bits);
}

std::string memory_type(DType dtype) {
  if (dtype.is_bool()) return "u8";
  return is_half(dtype) ? "u16" : value_type(dtype);
}

void ExprEmitter::fail(const std::string& what, const std::string& help) const {
  throw Error(ErrorCode::lower, "kernel " + kernel_name_ + " " + what + (help.empty() ? "" : "\n  help: " + help));
}

void ExprEmitter::line(const std::string& text) {
  out_.append(text.starts_with("#") ? 0 : 2 * depth_, ' ');
  out_ += text + "\n";
}

// The number at the end keeps a name apart from every word of CUDA C++.
std::string ExprEmitter::fresh(const std::string& name) {
  std::string safe;
  for (char c : name.substr(0, 40)) safe += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (safe.empty() || !std::isalpha(static_cast<unsigned char>(safe[0]))) safe = "x" + safe;
  return safe + "_" + std::to_string(counts_[safe]++);
}

std::string ExprEmitter::declare(const Var& var) {
  return names_[var.get()] = fresh(var.name());
}
std::string ExprEmitter::declare(const Buffer& buffer) {
  return names_[buffer.get()] = fresh(buffer->name);
}

std::string ExprEmitter::declare_counter(const Var& var, const Expr& extent) {
  const Interval count = bounds_of(extent, ranges_);
  ranges_.bind_range(var, extent);
  if (count.high && !as_int(extent)) ranges_.bind(var, {0, std::max<int64_t>(*count.high, 1) - 1});
  if (var.dtype() == i64 && fits_i32(count)) narrow_.insert(var.get());
  return declare(var);
}

std::string ExprEmitter::counter_type(const Var& var) const {
  return narrow_.contains(var.get()) ? "i32" : value_type(var.dtype());
}

void ExprEmitter::assume_size(const Var& var) {
  const Interval bounds = bounds_of(var);
  if (!ranges_.find(var)) ranges_.bind(var, {std::max<int64_t>(bounds.low.value_or(0), 0), bounds.high});
}

void ExprEmitter::narrow_parameter(const Var& var) {
  if (var.dtype() != i64 || !fits_i32(bounds_of(var, ranges_))) return;
  const std::string wide = names_.at(var.get());
  narrow_.insert(var.get());
  line("const i32 " + declare(var) + " = (i32)" + wide + ";");
}

bool ExprEmitter::is_narrow(const Expr& e) const {
  const auto has_room = [&] { return fits_i32(bounds_of(e, ranges_)); };
  switch (e.kind()) {
    case NodeKind::IntImm:
      return has_room();
    case NodeKind::Var:
      return narrow_.contains(e.get());
    case NodeKind::Binary: {
      const auto& n = *e.as<Binary>();
      return !n.dtype.is_bool() && is_arithmetic(n.op) && is_narrow(n.a) && is_narrow(n.b) && has_room();
    }
    case NodeKind::Select:
      return is_narrow(e.as<Select>()->then_value) && is_narrow(e.as<Select>()->else_value);
    case NodeKind::Broadcast:
      return is_narrow(e.as<Broadcast>()->value);
    case NodeKind::Ramp: {
      const auto& n = *e.as<Ramp>();
      const Expr last = n.base + n.stride * Expr(int64_t{n.dtype.lanes} - 1);
      return is_narrow(n.base) && is_narrow(n.stride) && fits_i32(bounds_of(last, ranges_));
    }
    case NodeKind::Cast: {
      const DType from = e.as<Cast>()->value.dtype();
      return from.is_integer() && (from.bits < 32 || from.element() == i32);
    }
    default:
      return false;
  }
}

std::string ExprEmitter::narrow(const Expr& e, const std::string& l) {
  if (const auto* n = e.as<IntImm>())
    return n->value < 0 ? "(" + std::to_string(n->value) + ")" : std::to_string(n->value);
  if (const auto* n = e.as<Select>())
    return "(" + lane(n->condition, l) + " ? " + narrow(n->then_value, l) + " : " + narrow(n->else_value, l) + ")";
  if (const auto* n = e.as<Broadcast>()) return narrow(n->value, "0");
  if (const auto* n = e.as<Ramp>())
    return "(" + narrow(n->base, "0") + " + " + narrow(n->stride, "0") + " * " + l + ")";
  if (const auto* n = e.as<Cast>()) return "((i32)" + lane(n->value, l) + ")";
  const auto* n = e.as<Binary>();
  if (!n) return names_.at(e.get());
  const std::string a = narrow(n->a, l), b = narrow(n->b, l);
  const syntax::BinarySyntax& written = syntax::syntax_of(n->op, i64);
  const auto divided = [&](const char* symbol) { return "(i32)((u32)" + a + " " + symbol + " (u32)" + b + ")"; };
  switch (n->op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
      return "(" + a + " " + written.symbol + " " + b + ")";
    case BinaryOp::div:
    case BinaryOp::floor_div:
    case BinaryOp::mod:
    case BinaryOp::floor_mod: {
      const bool is_quotient = n->op == BinaryOp::div || n->op == BinaryOp::floor_div;
      if (is_non_negative(n->a) && is_non_negative(n->b)) return "(" + divided(is_quotient ? "/" : "%") + ")";
      if (n->op == BinaryOp::div) return "(" + a + " / " + b + ")";
      if (n->op == BinaryOp::mod) return "(" + a + " % " + b + ")";
      [[fallthrough]];
    }
    default:
      return std::string("tw_") + written.word + "<i32>(" + a + ", " + b + ")";
  }
}

std::string ExprEmitter::lane(const Expr& e, const std::string& l, bool is_index) {
  if (e.dtype().element() == i64 && is_narrow(e)) return narrow(e, l);
  switch (e.kind()) {
    case NodeKind::IntImm:
      return integer_constant(e.dtype(), e.as<IntImm>()->value);
    case NodeKind::FloatImm:
      return float_constant(e.dtype(), e.as<FloatImm>()->value);
    case NodeKind::Var: {
      auto it = names_.find(e.get());
      if (it == names_.end()) fail("uses `" + e.as<VarNode>()->name + "`, which is not bound");
      if (narrow_.contains(e.get())) return "((i64)" + it->second + ")";
      return vectors_.contains(e.get()) ? it->second + "[" + l + "]" : it->second;
    }
    case NodeKind::Unary: {
      auto& n = *e.as<Unary>();
      std::string a = lane(n.a, l, is_index);
      if (n.op == UnaryOp::logical_not) return "(!" + a + ")";
      std::string type = value_type(n.dtype);
      if (n.op == UnaryOp::bit_not) return "((" + type + ")~" + a + ")";
      return n.dtype.is_float() ? "(-" + a + ")" : "((" + type + ")(0 - (u64)" + a + "))";
    }
    case NodeKind::Binary:
      return binary(*e.as<Binary>(), l, is_index);
    case NodeKind::Cast:
      return conversion(*e.as<Cast>(), l);
    case NodeKind::Select: {
      auto& n = *e.as<Select>();
      return "(" + lane(n.condition, l) + " ? " + lane(n.then_value, l, is_index) + " : " +
             lane(n.else_value, l, is_index) + ")";
    }
    case NodeKind::Call:
      return call(*e.as<Call>(), l);
    case NodeKind::Load:
      return load(*e.as<Load>(), l);
    case NodeKind::Ramp: {
      auto& n = *e.as<Ramp>();
      std::string type = value_type(n.dtype);
      return "((" + type + ")(" + lane(n.base, "0", is_index) + " + " + lane(n.stride, "0", is_index) + " * (" + type +
             ")" + l + "))";
    }
    case NodeKind::Broadcast:
      return lane(e.as<Broadcast>()->value, "0", is_index);
    case NodeKind::VectorReduce:
      return reduce(*e.as<VectorReduce>());
    case NodeKind::Let: {
      auto& n = *e.as<Let>();
      bind(n.var, n.value);
      return lane(n.body, l, is_index);
    }
    default:
      fail("holds an expression of unknown kind");
  }
}

std::string ExprEmitter::binary(const Binary& n, const std::string& l, bool is_index) {
  const std::string a = lane(n.a, l, is_index), b = lane(n.b, l, is_index);
  const DType dtype = n.a.dtype();
  const std::string type = value_type(dtype);
  const auto infix = [&](const char* symbol) { return "(" + a + " " + symbol + " " + b + ")"; };
  const auto converted = [&](const std::string& value) { return "((" + type + ")" + value + ")"; };
  // Of integers with the type, for C++ would take small ones as int.
  const auto function = [&](const std::string& name) {
    return rounded(name + (dtype.is_float() ? "" : "<" + type + ">") + "(" + a + ", " + b + ")", dtype);
  };
  // As tensor_ir writes them, but for division.
  const syntax::BinarySyntax& written = syntax::syntax_of(n.op, dtype);
  switch (n.op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul: {
      if (dtype.is_float()) return rounded(infix(written.symbol), dtype);
      if (is_index && dtype.element() == i64)  // of operands in i32 the result has no room there
        return is_narrow(n.a) && is_narrow(n.b) ? "((i64)" + a + " " + written.symbol + " " + b + ")"
                                                : infix(written.symbol);
      // Data wrap; C++ leaves that undefined for signed types, so it is done in unsigned ones.
      const std::string wide = dtype.bits == 64 ? "u64" : "u32";
      return converted("((" + wide + ")" + a + " " + written.symbol + " (" + wide + ")" + b + ")");
    }
    case BinaryOp::div:
      return dtype.is_float() ? rounded(infix("/"), dtype) : converted(infix("/"));
    case BinaryOp::mod:
      return rounded("tw_mod(" + a + ", " + b + ")", dtype);
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      if (dtype.is_unsigned_integer() || (!dtype.is_float() && is_non_negative(n.a) && is_non_negative(n.b)))
        return converted(infix(n.op == BinaryOp::floor_div ? "/" : "%"));
      [[fallthrough]];
    case BinaryOp::min:
    case BinaryOp::max:
      return function(std::string("tw_") + written.word);
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      return infix(written.symbol);
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shift_right:
      return converted(infix(written.symbol));
    case BinaryOp::shift_left:
      return converted("((u64)" + a + " << " + b + ")");
  }
  fail("holds an unknown operator");
}

std::string ExprEmitter::conversion(const Cast& n, const std::string& l) {
  const auto number = [](double value) { return std::to_string(static_cast<int>(value)); };
  if (const auto byte = match_requantised(n)) {
    return "tw_requantise<" + value_type(n.dtype) + ">(" + lane(byte->sum, l) + ", " + lane(byte->factor, l) + ", " +
           number(byte->to.zero_point) + ", " + number(byte->to.low) + ", " + number(byte->to.high) + ")";
  }
  if (const auto byte = match_quantised(n)) {
    return "tw_quantise<" + value_type(n.dtype) + ">(" + lane(byte->value, l) + ", " + number(byte->to.zero_point) +
           ", " + number(byte->to.low) + ", " + number(byte->to.high) + ")";
  }
  DType from = n.value.dtype(), to = n.dtype;
  bool is_index = from.element() == i64 && to.element() == i64;
  std::string value = lane(n.value, l, is_index);
  if (to.is_bool()) return "(" + value + " != 0)";
  if (from.is_float() && !to.is_float()) return "tw_to_integer<" + value_type(to) + ">(" + value + ")";
  std::string converted = "((" + value_type(to) + ")" + value + ")";
  return is_half(to) && from.element() != to.element() ? rounded(converted, to) : converted;
}

std::string ExprEmitter::call(const Call& n, const std::string& l) {
  DType dtype = n.dtype;
  switch (n.intrinsic) {
    case Intrinsic::lane_slice:
      return lane(n.arguments[0], "(" + l + " + " + std::to_string(as_int(n.arguments[1]).value_or(0)) + ")");
    case Intrinsic::lane_concat: {
      std::string text;
      int first = 0;
      for (size_t i = 0; i < n.arguments.size(); ++i) {
        int lanes = n.arguments[i].dtype().lanes;
        std::string part = lane(n.arguments[i], lanes == 1 ? "0" : "(" + l + " - " + std::to_string(first) + ")");
        first += lanes;
        text += i + 1 == n.arguments.size() ? part : "(" + l + " < " + std::to_string(first) + ") ? " + part + " : ";
      }
      return "(" + text + ")";
    }
    case Intrinsic::reinterpret: {
      DType from = n.arguments[0].dtype();
      if (from.lanes != dtype.lanes)
        fail("reinterprets lanes of one width as lanes of another: " + to_string(from) + " as " + to_string(dtype));
      // What is read keeps its bits, those of a NaN, too.
      if (const auto* load = n.arguments[0].as<Load>(); load && is_half(from) && !load->predicate.is_defined()) {
        const std::string bits = element_address(load->buffer, load->indices, l);
        return is_half(dtype) ? from_memory(bits, dtype) : "((" + value_type(dtype) + ")" + bits + ")";
      }
      std::string value = lane(n.arguments[0], l);
      if (from.is_float() == dtype.is_float() && from.kind == dtype.kind) return value;
      std::string bits = is_half(from)                        ? to_memory(value, from)
                         : from == f32.with_lanes(from.lanes) ? "__float_as_uint(" + value + ")"
                         : from.is_float()                    ? "__double_as_longlong(" + value + ")"
                                                              : value;
      if (is_half(dtype)) return from_memory("(u16)" + bits, dtype);
      if (!dtype.is_float()) return "((" + value_type(dtype) + ")" + bits + ")";
      return (dtype.bits == 32 ? "__uint_as_float((u32)" : "__longlong_as_double((i64)") + bits + ")";
    }
    case Intrinsic::barrier:
    case Intrinsic::warp_barrier:
    case Intrinsic::begin_copies:
    case Intrinsic::commit_copies:
    case Intrinsic::wait_copies:
    case Intrinsic::wait_products:
    case Intrinsic::prefetch:
      fail("uses " + to_text(n.intrinsic) + " as a value");
    default:
      break;
  }
  std::string arguments;
  for (const Expr& argument : n.arguments) {
    // With the type, for functions that know it by their argument.
    const bool is_counted = argument.dtype().element() == i64 && is_narrow(argument);
    arguments += (arguments.empty() ? "" : ", ") + std::string(is_counted ? "(i64)" : "") + lane(argument, l);
  }
  return rounded("tw_" + to_text(n.intrinsic) + "(" + arguments + ")", dtype);
}

std::string ExprEmitter::load(const Load& n, const std::string& l, bool in_memory) {
  const auto taken = [&](const std::string& element) { return in_memory ? element : from_memory(element, n.dtype); };
  const auto guard = n.predicate.is_defined() ? condition_of_all_lanes(n.predicate) : std::nullopt;
  if (n.dtype.lanes > 1 && (guard || !n.predicate.is_defined())) {
    if (std::optional<std::string> wide = wide_address(n.buffer, n.indices, n.dtype.lanes)) {
      std::string name = fresh("wide");
      line("__align__(16) " + memory_type(n.dtype) + " " + name + "[" + std::to_string(n.dtype.lanes) + "]" +
           (guard ? " = {};" : ";"));
      if (guard) line("if (" + scalar(*guard) + ") {");
      copy_wide(name, "(" + *wide + ")", int64_t{n.dtype.lanes} * n.dtype.bytes());
      if (guard) line("}");
      if (n.dtype.element() == bf16 && !in_memory) return "tw_from_bf16(" + name + ", " + l + ")";
      return taken(name + "[" + l + "]");
    }
  }
  const bool has_words =
      n.buffer->scope == Scope::local && n.buffer->dtype == bf16 && as_int(n.buffer->shape[0]).value_or(1) % 2 == 0;
  std::string value = has_words && !in_memory
                          ? "tw_from_bf16(" + name_of(n.buffer) + ", " + element_index(n.buffer, n.indices[0], l) + ")"
                          : taken(element_address(n.buffer, n.indices, l));
  if (!n.predicate.is_defined()) return value;
  const std::string type = in_memory ? memory_type(n.dtype) : value_type(n.dtype);
  return "(" + lane(n.predicate, l) + " ? " + value + " : (" + type + ")0)";
}

std::string ExprEmitter::lane_in_memory(const Expr& e, const std::string& l) {
  const DType dtype = e.dtype();
  if (is_half(dtype)) {  // bits that are only moved stay as they are, and what is rounded is so once
    if (const auto* n = e.as<Load>()) return load(*n, l, true);
    if (const auto* n = e.as<Cast>(); n && n->value.dtype().is_float() && !is_half(n->value.dtype()))
      return to_memory("(float)" + lane(n->value, l), dtype);
    if (const auto* n = e.as<Select>())
      return "(" + lane(n->condition, l) + " ? " + lane_in_memory(n->then_value, l) + " : " +
             lane_in_memory(n->else_value, l) + ")";
  }
  return to_memory(lane(e, l), dtype);
}

std::string ExprEmitter::reduce(const VectorReduce& n) {
  std::string array = materialise(n.value), name = fresh("sum"), type = value_type(n.dtype);
  line(type + " " + name + " = " + array + "[0];");
  // As a Binary of two variables, so that wrapping and rounding are those of the operator.
  Var left(name, n.dtype), right(name, n.dtype);
  names_[left.get()] = name;
  names_[right.get()] = array + "[l]";
  std::string step = lane(make_expr<Binary>(n.dtype, n.op, left, right), "0");
  names_.erase(left.get());
  names_.erase(right.get());
  each_lane(1, n.value.dtype().lanes, name + " = " + step + ";");
  return name;
}

std::string ExprEmitter::materialise(const Expr& e, bool in_memory) {
  DType dtype = e.dtype();
  std::string value = in_memory ? lane_in_memory(e, "l") : lane(e, "l");
  std::string name = fresh("lanes");
  line("__align__(16) " + (in_memory ? memory_type(dtype) : value_type(dtype)) + " " + name + "[" +
       std::to_string(dtype.lanes) + "];");
  each_lane(0, dtype.lanes, name + "[l] = " + value + ";");
  return name;
}

void ExprEmitter::each_lane(int first, int lanes, const std::string& statement) {
  line("#pragma unroll");
  line("for (int l = " + std::to_string(first) + "; l < " + std::to_string(lanes) + "; ++l) " + statement);
}

void ExprEmitter::bind(const Var& var, const Expr& value) {
  if (var.dtype().lanes > 1) {
    names_[var.get()] = materialise(value);
    vectors_.insert(var.get());
    return;
  }
  std::string text = scalar(value, var.dtype() == i64);
  if (var.dtype().is_integer()) ranges_.bind(var, bounds_of(value, ranges_));
  if (var.dtype() == i64 && is_narrow(value)) narrow_.insert(var.get());
  multiples_[var.get()] = multiple_of(value);
  std::string name = declare(var);
  line("const " + counter_type(var) + " " + name + " = " + text + ";");
}

std::string ExprEmitter::element_index(const Buffer&, const Expr& index, const std::string& l) {
  return lane(index, l, true);
}

bool ExprEmitter::is_scattered(const Buffer&, int64_t) const {
  return false;
}

std::string ExprEmitter::element_address(const Buffer& buffer, const std::vector<Expr>& indices, const std::string& l) {
  check(indices.size() == 1, "emit_cuda: buffers are flat");
  auto it = names_.find(buffer.get());
  if (it == names_.end()) fail("uses `" + buffer->name + "`, which it neither takes nor allocates");
  std::string index = element_index(buffer, indices[0], l.empty() ? "0" : l);
  if (buffer->dtype.lanes > 1)
    index = "(" + index + ") * " + std::to_string(buffer->dtype.lanes) + " + " + (l.empty() ? "0" : l);
  return it->second + "[" + index + "]";
}

std::optional<std::string> ExprEmitter::wide_address(const Buffer& buffer, const std::vector<Expr>& indices,
                                                     int lanes) {
  int64_t bytes = int64_t{lanes} * buffer->dtype.bytes();
  bool is_size = bytes == 2 || bytes == 4 || bytes == 8 || bytes % 16 == 0;
  if (!is_size || lanes == 1 || is_scattered(buffer, bytes)) return std::nullopt;
  int64_t access = std::min<int64_t>(bytes, 16);
  bool is_aligned_base = buffer->alignment >= access;
  auto it = names_.find(buffer.get());
  if (!is_aligned_base || it == names_.end() || buffer->dtype.lanes > 1) return std::nullopt;
  const auto* ramp = indices[0].as<Ramp>();
  if (!ramp || !is_const_int(ramp->stride, 1)) return std::nullopt;
  if (multiple_of(ramp->base) * buffer->dtype.bytes() % access != 0) return std::nullopt;
  return "&" + it->second + "[" + element_index(buffer, ramp->base, "0") + "]";
}

std::optional<Expr> ExprEmitter::condition_of_all_lanes(const Expr& condition) const {
  if (condition.dtype().lanes == 1) return condition;
  if (const auto* same = condition.as<Broadcast>()) return same->value;
  const auto* n = condition.as<Binary>();
  if (n && n->op == BinaryOp::logical_and) {
    const auto a = condition_of_all_lanes(n->a), b = condition_of_all_lanes(n->b);
    return a && b ? std::optional(*a && *b) : std::nullopt;
  }
  // Whole vectors lie below the limit, or above it.
  const auto* lanes = n && n->op == BinaryOp::lt ? n->a.as<Ramp>() : nullptr;
  const auto* limit = n ? n->b.as<Broadcast>() : nullptr;
  if (!lanes || !limit || !is_const_int(lanes->stride, 1)) return std::nullopt;
  if (multiple_of(limit->value - lanes->base) % lanes->dtype.lanes != 0) return std::nullopt;
  return lanes->base < limit->value;
}

void ExprEmitter::copy_wide(const std::string& to, const std::string& from, int64_t bytes) {
  const std::string type = bytes == 2 ? "u16" : bytes == 4 ? "u32" : bytes == 8 ? "uint2" : "uint4";
  for (int64_t i = 0; i < (bytes + 15) / 16; ++i) {
    const std::string index = "[" + std::to_string(i) + "]";
    line("((" + type + "*)" + to + ")" + index + " = ((const " + type + "*)" + from + ")" + index + ";");
  }
}

bool ExprEmitter::is_non_negative(const Expr& e) const {
  const Interval range = bounds_of(e, ranges_);
  return range.low && *range.low >= 0;
}

int64_t ExprEmitter::multiple_of(const Expr& e) const {
  constexpr int64_t enough = 1 << 20;
  if (const auto* n = e.as<IntImm>()) return n->value == 0 ? 0 : std::gcd(n->value, enough);
  if (const auto* n = e.as<Broadcast>()) return multiple_of(n->value);
  if (e.as<VarNode>()) {
    auto it = multiples_.find(e.get());
    return it == multiples_.end() ? 1 : it->second;
  }
  const auto* n = e.as<Binary>();
  if (!n) return 1;
  switch (n->op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::min:
    case BinaryOp::max:
      return std::gcd(multiple_of(n->a), multiple_of(n->b));
    case BinaryOp::mul:
      return std::gcd(multiple_of(n->a) * multiple_of(n->b), enough);
    default:
      return 1;
  }
}

}  // namespace tw::cuda
