// The value of one expression, by walking it: for tests and for constants.  Whole Funcs run in interp.cpp.
#include <algorithm>
#include <cstring>

#include "tensor_ir/interp/interp.h"
#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

struct Element {
  int64_t integer = 0;
  double real = 0;
};
using Lanes = std::vector<Element>;

class Evaluator {
 public:
  explicit Evaluator(std::function<Element(const VarNode&)> variable) : variable_(std::move(variable)) {}

  Lanes run(const Expr& e) {
    const DType dtype = e.dtype();
    switch (e.kind()) {
      case NodeKind::IntImm:
        return {{e.as<IntImm>()->value, 0}};
      case NodeKind::FloatImm:
        return {{0, e.as<FloatImm>()->value}};
      case NodeKind::Var: {
        const auto* var = e.as<VarNode>();
        for (auto bound = lets_.rbegin(); bound != lets_.rend(); ++bound) {
          if (bound->first == var) return bound->second;
        }
        return {variable_(*var)};
      }
      case NodeKind::Unary: {
        Lanes a = run(e.as<Unary>()->a);
        for (Element& x : a) {
          if (dtype.is_float())
            x.real = -x.real;
          else
            x.integer = meaning::apply(e.as<Unary>()->op, dtype.element(), x.integer);
        }
        return a;
      }
      case NodeKind::Binary:
        return binary(*e.as<Binary>());
      case NodeKind::Cast: {
        const DType from = e.as<Cast>()->value.dtype();
        Lanes a = run(e.as<Cast>()->value);
        for (Element& x : a) x = convert(from, dtype, x);
        return a;
      }
      case NodeKind::Select: {
        const auto* node = e.as<Select>();
        const Lanes condition = run(node->condition);
        Lanes a = run(node->then_value), b = run(node->else_value);
        for (size_t i = 0; i < a.size(); ++i) {
          if (!condition[condition.size() == 1 ? 0 : i].integer) a[i] = b[i];
        }
        return a;
      }
      case NodeKind::Ramp: {
        const Lanes base = run(e.as<Ramp>()->base), stride = run(e.as<Ramp>()->stride);
        Lanes result;
        const int steps = dtype.lanes / static_cast<int>(base.size());
        for (int step = 0; step < steps; ++step) {
          for (size_t i = 0; i < base.size(); ++i) {
            const int64_t offset = meaning::apply(BinaryOp::mul, dtype.element(), stride[i].integer, int64_t{step});
            result.push_back({meaning::apply(BinaryOp::add, dtype.element(), base[i].integer, offset), 0});
          }
        }
        return result;
      }
      case NodeKind::Broadcast: {
        const Lanes value = run(e.as<Broadcast>()->value);
        Lanes result;
        while (result.size() < dtype.lanes) result.insert(result.end(), value.begin(), value.end());
        return result;
      }
      case NodeKind::VectorReduce: {
        const auto* node = e.as<VectorReduce>();
        const Lanes value = run(node->value);
        Lanes result(1, value[0]);
        for (size_t i = 1; i < value.size(); ++i) result[0] = combine(node->op, dtype.element(), result[0], value[i]);
        return result;
      }
      case NodeKind::Let: {
        const auto* node = e.as<Let>();
        lets_.emplace_back(node->var.get(), run(node->value));
        Lanes result = run(node->body);
        lets_.pop_back();
        return result;
      }
      case NodeKind::Call:
        return call(*e.as<Call>());
      default:
        throw Error(ErrorCode::verify,
                    "evaluate: an expression with loads has no value of its own\n  help: use interpret()");
    }
  }

 private:
  static Element convert(DType from, DType to, Element x) {
    if (from.is_float()) {
      if (to.is_float()) return {0, meaning::round_to(to, x.real)};
      return {meaning::float_to_int(to, x.real), 0};
    }
    if (to.is_float()) return {0, meaning::int_to_float(from, to, x.integer)};
    return {meaning::wrap(to, x.integer), 0};
  }

  static Element combine(BinaryOp op, DType dtype, Element a, Element b) {
    if (!dtype.is_float()) return {meaning::apply(op, dtype, a.integer, b.integer), 0};
    if (is_comparison(op)) return {meaning::compare(op, a.real, b.real), 0};
    return {0, meaning::apply(op, dtype, a.real, b.real)};
  }

  Lanes binary(const Binary& node) {
    Lanes a = run(node.a);
    const Lanes b = run(node.b);
    for (size_t i = 0; i < a.size(); ++i) a[i] = combine(node.op, node.a.dtype().element(), a[i], b[i]);
    return a;
  }

  Lanes call(const Call& node) {
    std::vector<Lanes> arguments;
    for (const Expr& argument : node.arguments) arguments.push_back(run(argument));
    const DType dtype = node.dtype.element();
    switch (node.intrinsic) {
      case Intrinsic::lane_slice: {
        const auto first = arguments[0].begin() + arguments[1][0].integer;
        return Lanes(first, first + node.dtype.lanes);
      }
      case Intrinsic::lane_concat: {
        Lanes result;
        for (const Lanes& part : arguments) result.insert(result.end(), part.begin(), part.end());
        return result;
      }
      case Intrinsic::reinterpret: {
        const DType from = node.arguments[0].dtype().element();
        std::vector<uint8_t> bytes(arguments[0].size() * static_cast<size_t>(from.bytes()));
        for (size_t i = 0; i < arguments[0].size(); ++i) {
          const Element& x = arguments[0][i];
          const uint64_t bits =
              from.is_float() ? meaning::bits_of_float(from, x.real) : static_cast<uint64_t>(x.integer);
          std::memcpy(&bytes[i * static_cast<size_t>(from.bytes())], &bits, static_cast<size_t>(from.bytes()));
        }
        Lanes result;
        for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(dtype.bytes())) {
          uint64_t bits = 0;
          std::memcpy(&bits, &bytes[at], static_cast<size_t>(dtype.bytes()));
          if (dtype.is_float())
            result.push_back({0, meaning::float_of_bits(dtype, bits)});
          else
            result.push_back({meaning::wrap(dtype, static_cast<int64_t>(bits)), 0});
        }
        return result;
      }
      default:
        break;
    }
    if (node.intrinsic == Intrinsic::tile_at) {
      Lanes places;
      for (int64_t row = 0; row < arguments[2][0].integer; ++row)
        for (int64_t column = 0; column < arguments[4][0].integer; ++column)
          places.push_back(
              {arguments[0][0].integer + row * arguments[1][0].integer + column * arguments[3][0].integer, 0});
      return places;
    }
    Lanes result = arguments[0];
    if (kind_of(node.intrinsic) == IntrinsicKind::tile) {
      const auto sizes = tile_sizes(node.dtype, node.arguments[1].dtype(), node.arguments[2].dtype());
      check(sizes.has_value(), "evaluate: tiles that fit");
      std::vector<uint32_t> a(static_cast<size_t>(sizes->k)), b(a.size());
      for (int i = 0; i < sizes->m * sizes->n; ++i) {
        for (int l = 0; l < sizes->k; ++l) {
          a[l] = static_cast<uint32_t>(arguments[1][i / sizes->n * sizes->k + l].integer);
          b[l] = static_cast<uint32_t>(arguments[2][l * sizes->n + i % sizes->n].integer);
        }
        if (dtype.is_float())
          result[i].real = meaning::tile_dot(node.intrinsic, result[i].real, sizes->k, a.data(), b.data());
        else
          result[i].integer = meaning::tile_dot(node.intrinsic, result[i].integer, sizes->k, a.data(), b.data());
      }
      return result;
    }
    if (kind_of(node.intrinsic) == IntrinsicKind::dot) {
      for (size_t i = 0; i < result.size(); ++i) {
        const auto a = static_cast<uint32_t>(arguments[1][i].integer),
                   b = static_cast<uint32_t>(arguments[2][i].integer);
        if (dtype.is_float())
          result[i].real = meaning::dot(node.intrinsic, result[i].real, a, b);
        else
          result[i].integer = meaning::dot(node.intrinsic, result[i].integer, a, b);
      }
      return result;
    }
    const DType from = node.arguments[0].dtype().element();
    for (size_t i = 0; i < result.size(); ++i) {
      double reals[3] = {};
      int64_t integers[3] = {};
      for (size_t k = 0; k < arguments.size() && k < 3; ++k) {
        reals[k] = arguments[k][i].real;
        integers[k] = arguments[k][i].integer;
      }
      if (node.dtype.is_bool() && from.is_float())
        result[i] = {meaning::test(node.intrinsic, reals[0]), 0};
      else if (from.is_float())
        result[i] = {0, meaning::apply(node.intrinsic, dtype, reals)};
      else
        result[i] = {meaning::apply(node.intrinsic, dtype, integers), 0};
    }
    return result;
  }

  std::function<Element(const VarNode&)> variable_;
  std::vector<std::pair<const ExprNode*, Lanes>> lets_;
};

template <class T>
T value_of(const std::map<std::string, T>& variables, const VarNode& var) {
  const auto found = variables.find(var.name);
  if (found != variables.end()) return found->second;
  throw Error(ErrorCode::verify,
              "evaluate: no value for variable `" + var.name + "`\n  help: add it to the map of variables");
}

}  // namespace

double evaluate_float(const Expr& e, const std::map<std::string, double>& variables) {
  check(!e.dtype().is_vector(), "evaluate_float: a scalar");
  Evaluator evaluator([&](const VarNode& var) -> Element {
    const double value = value_of(variables, var);
    return {meaning::wrap(var.dtype.is_float() ? i64 : var.dtype, meaning::float_to_int(i64, value)), value};
  });
  const Element result = evaluator.run(e)[0];
  return e.dtype().is_float() ? result.real : meaning::int_to_float(e.dtype(), f64, result.integer);
}

int64_t evaluate_int(const Expr& e, const std::map<std::string, int64_t>& variables) {
  check(!e.dtype().is_vector() && !e.dtype().is_float(), "evaluate_int: an integer or bool scalar");
  Evaluator evaluator([&](const VarNode& var) -> Element {
    const int64_t value = value_of(variables, var);
    return {meaning::wrap(var.dtype.is_float() ? i64 : var.dtype, value), static_cast<double>(value)};
  });
  return evaluator.run(e)[0].integer;
}

}  // namespace tw
