// Random well-typed Funcs that use every node, for round trips of the text form and for the verifier.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tensor_ir/ir.h"
#include "tensor_ir/type_rules.h"

namespace tw::testing {

class RandomFunc {
 public:
  explicit RandomFunc(uint64_t seed) : random_(seed) {}

  Func make() {
    Func f;
    f.name = pick(2) ? "f" : "a func/with:odd`name\n";
    for (int i = 0, n = pick(3); i < n; ++i) {
      Var v(pick(2) ? "n" : "i");
      f.parameters.push_back(v);
      scope_vars_.push_back(v);
    }
    int inputs = 1 + pick(3), outputs = 1 + pick(2);
    for (int i = 0; i < inputs + outputs; ++i) f.buffers.push_back(buffer(Scope::global, true));
    f.output_count = outputs;
    buffers_ = f.buffers;
    writable_.assign(f.buffers.end() - outputs, f.buffers.end());
    f.attributes = attributes();
    f.body = statement(4);
    return f;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % n); }

  std::string name() {
    static const char* names[] = {"i",       "j",  "A",       "x",   "i_1", "C.local", "block",      "conv1/w:0",
                                  "inf_f32", "in", "strides", "f32", "exp", "",        "\x01`\\\"\n"};
    return names[pick(static_cast<int>(std::size(names)))];
  }
  DType scalar() {
    static const DType types[] = {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean};
    return types[pick(static_cast<int>(std::size(types)))];
  }
  DType number() {
    DType dtype = scalar();
    return dtype.is_bool() ? f32 : dtype;
  }

  Buffer buffer(Scope scope, bool is_parameter = false) {
    BufferNode node;
    node.name = name();
    node.dtype = scalar();
    for (int i = 0, n = pick(4); i < n; ++i)
      node.shape.push_back(scope == Scope::register_ ? Expr(1 + pick(9)) : expr(i64, 1));
    if (pick(4) == 0) {
      for (size_t i = 0; i < node.shape.size(); ++i) node.strides.push_back(Expr(pick(100)));
    }
    node.scope = scope;
    if (pick(3) == 0) node.alignment = 1 << pick(8);
    node.is_constant = is_parameter && pick(3) == 0, node.is_streamed = is_parameter && pick(3) == 0;
    node.is_cached = node.is_constant && pick(3) == 0;
    return Buffer(std::move(node));
  }

  Attributes attributes() {
    Attributes result;
    if (pick(3)) return result;
    result["unroll"] = int64_t{-3};
    if (pick(2)) result["bytes"] = BufferBytes{{"A", 64}, {"a b", -1}};
    if (pick(2)) result["none"] = BufferBytes{};
    if (pick(2)) result["a b"] = 0.1;
    if (pick(2)) result["note"] = std::string("say \"no\"\\\n\x7f");
    if (pick(2)) result["inf"] = -std::numeric_limits<double>::infinity();
    if (pick(2)) result["in"] = 1.0;
    return result;
  }

  Expr constant(DType dtype) {
    if (dtype.is_bool()) return bool_imm(pick(2));
    if (dtype.is_float()) {
      static const double values[] = {0.0, -0.0, 1, -1, 0.1, 1e30, -3.5, 1e-40, INFINITY, -INFINITY, NAN};
      return float_imm(dtype, values[pick(static_cast<int>(std::size(values)))]);
    }
    static const int64_t values[] = {0, 1, -1, 7, 100, INT64_MAX, INT64_MIN, 255};
    return int_imm(dtype, values[pick(static_cast<int>(std::size(values)))]);
  }

  // Made with make_expr, so that nothing folds.
  Expr expr(DType dtype, int depth) {
    if (dtype.lanes > 1) return vector(dtype, depth);
    if (depth == 0 || pick(6) == 0) {
      if (pick(2)) {
        std::vector<Var> fitting;
        for (const Var& v : scope_vars_) {
          if (v.dtype() == dtype) fitting.push_back(v);
        }
        if (!fitting.empty()) return fitting[pick(static_cast<int>(fitting.size()))];
      }
      return constant(dtype);
    }
    switch (pick(9)) {
      case 0:
        return make_expr<Select>(dtype, expr(boolean, depth - 1), expr(dtype, depth - 1), expr(dtype, depth - 1));
      case 1:
        return make_expr<Cast>(dtype, expr(scalar(), depth - 1));
      case 2:
        return let(dtype, depth);
      case 3:
        return load(dtype, depth);
      case 4:
        return dtype.is_bool() ? binary(dtype, depth)
                               : make_expr<VectorReduce>(dtype, pick(2) ? BinaryOp::add : BinaryOp::max,
                                                         expr(dtype.with_lanes(4), depth - 1));
      case 5:
        return call(dtype, depth);
      case 6:
        return unary(dtype, depth);
      default:
        return binary(dtype, depth);
    }
  }

  Expr vector(DType dtype, int depth) {
    DType element = dtype.element();
    if (depth == 0 || pick(5) == 0) return make_expr<Broadcast>(dtype, expr(element, std::max(0, depth - 1)));
    switch (pick(7)) {
      case 0:
        return element.is_integer() ? make_expr<Ramp>(dtype, expr(element, depth - 1), expr(element, depth - 1))
                                    : binary(dtype, depth);
      case 1:
        return make_expr<Select>(dtype, expr(boolean.with_lanes(dtype.lanes), depth - 1), expr(dtype, depth - 1),
                                 expr(dtype, depth - 1));
      case 2:
        return make_expr<Call>(dtype, Intrinsic::lane_concat,
                               std::vector<Expr>{expr(dtype.with_lanes(dtype.lanes / 2), depth - 1),
                                                 expr(dtype.with_lanes(dtype.lanes / 2), depth - 1)});
      case 3:
        return make_expr<Call>(
            dtype, Intrinsic::lane_slice,
            std::vector<Expr>{expr(dtype.with_lanes(dtype.lanes * 2), depth - 1), Expr(pick(dtype.lanes))});
      case 4:
        return load(dtype, depth);
      case 5:
        return make_expr<Cast>(dtype, expr(scalar().with_lanes(dtype.lanes), depth - 1));
      default:
        return binary(dtype, depth);
    }
  }

  Expr let(DType dtype, int depth) {
    Var var(name(), scalar());
    Expr value = expr(var.dtype(), depth - 1);
    scope_vars_.push_back(var);
    Expr body = expr(dtype, depth - 1);
    scope_vars_.pop_back();
    return make_expr<Let>(dtype, var, value, body);
  }

  std::vector<Expr> indices(const Buffer& b, int lanes, int depth) {
    std::vector<Expr> result;
    for (int i = 0; i < b.rank(); ++i) result.push_back(expr(i64, depth));
    if (lanes > 1 && result.empty()) result.push_back(expr(i64.with_lanes(lanes), depth));
    if (lanes > 1) result.back() = expr(i64.with_lanes(lanes), depth);
    return result;
  }

  Expr load(DType dtype, int depth) {
    for (const Buffer& b : buffers_) {
      if (b->dtype != dtype.element() || pick(2)) continue;
      Expr predicate = pick(3) ? Expr() : expr(boolean.with_lanes(dtype.lanes), depth - 1);
      return make_expr<Load>(dtype, b, indices(b, dtype.lanes, depth - 1), predicate);
    }
    return expr(dtype, depth - 1);
  }

  Expr unary(DType dtype, int depth) {
    UnaryOp op = dtype.is_bool()                 ? UnaryOp::logical_not
                 : dtype.is_integer() && pick(2) ? UnaryOp::bit_not
                                                 : UnaryOp::negate;
    return make_expr<Unary>(dtype, op, expr(dtype, depth - 1));
  }

  Expr call(DType dtype, int depth) {
    if (dtype.is_bool())
      return make_expr<Call>(dtype, pick(2) ? Intrinsic::is_nan : Intrinsic::is_inf,
                             std::vector<Expr>{expr(f32, depth - 1)});
    if (dtype.is_integer())
      return make_expr<Call>(dtype, pick(2) ? Intrinsic::popcount : Intrinsic::abs,
                             std::vector<Expr>{expr(dtype, depth - 1)});
    if (dtype == f32 && pick(3) == 0)
      return make_expr<Call>(dtype, Intrinsic::reinterpret, std::vector<Expr>{expr(i32, depth - 1)});
    auto intrinsic = static_cast<Intrinsic>(pick(static_cast<int>(Intrinsic::maximum) + 1));
    if (intrinsic == Intrinsic::round_tf32 && dtype != f32) intrinsic = Intrinsic::abs;
    std::vector<Expr> arguments;
    for (int i = 0; i < arity_of(intrinsic); ++i) arguments.push_back(expr(dtype, depth - 1));
    return make_expr<Call>(dtype, intrinsic, std::move(arguments));
  }

  Expr binary(DType dtype, int depth) {
    auto op = static_cast<BinaryOp>(pick(20));
    DType operand = dtype;
    if (is_comparison(op)) {
      if (!dtype.is_bool())
        op = BinaryOp::sub;
      else
        operand = scalar().with_lanes(dtype.lanes);
    }
    bool is_logical = op == BinaryOp::logical_and || op == BinaryOp::logical_or;
    bool is_bitwise = op == BinaryOp::bit_and || op == BinaryOp::bit_or || op == BinaryOp::bit_xor;
    bool is_shift = op == BinaryOp::shift_left || op == BinaryOp::shift_right;
    if (dtype.is_bool() && !is_comparison(op) && !is_bitwise) op = BinaryOp::logical_or;
    if (!dtype.is_bool() && is_logical) op = BinaryOp::floor_mod;
    if (dtype.is_float() && (is_bitwise || is_shift)) op = BinaryOp::div;
    return make_expr<Binary>(dtype, op, expr(operand, depth - 1), expr(operand, depth - 1));
  }

  // ---- statements
  Stmt statement(int depth) {
    if (depth == 0) return simple();
    switch (pick(8)) {
      case 0:
        return loop(depth);
      case 1:
        return block(depth);
      case 2:
        return make_stmt<If>(expr(boolean, 2), statement(depth - 1), pick(2) ? Stmt() : statement(depth - 1));
      case 3: {
        Var var(name(), scalar().with_lanes(pick(3) ? 1 : 4));
        Expr value = expr(var.dtype(), 2);
        scope_vars_.push_back(var);
        Stmt body = statement(depth - 1);
        scope_vars_.pop_back();
        return make_stmt<LetStmt>(var, value, body);
      }
      case 4: {
        Buffer b = buffer(static_cast<Scope>(pick(6)));
        buffers_.push_back(b), writable_.push_back(b);
        Stmt body = statement(depth - 1);
        buffers_.pop_back(), writable_.pop_back();
        return make_stmt<Allocate>(b, body);
      }
      case 5:
        return simple();
      default: {
        std::vector<Stmt> statements;
        for (int i = 0, n = pick(4); i < n; ++i) {
          Stmt s = statement(depth - 1);
          if (s.as<Seq>()) s = simple();
          statements.push_back(s);
        }
        return make_stmt<Seq>(std::move(statements));
      }
    }
  }

  Stmt loop(int depth) {
    auto kind = static_cast<LoopKind>(pick(5));
    ThreadAxis axis = kind == LoopKind::thread ? static_cast<ThreadAxis>(1 + pick(6)) : ThreadAxis::none;
    DType dtype = pick(4) ? i64 : i32;
    Expr extent = expr(dtype, 2);
    Var var(name(), dtype);
    scope_vars_.push_back(var);
    Stmt body = statement(depth - 1);
    scope_vars_.pop_back();
    return make_stmt<For>(var, extent, kind, body, axis, attributes());
  }

  Stmt block(int) {
    if (is_in_block_) return simple();
    std::vector<IterVar> iters;
    for (int i = 0, n = pick(4); i < n; ++i) {
      iters.push_back({Var(name()), expr(i64, 1), pick(2) ? IterKind::spatial : IterKind::reduce, expr(i64, 2)});
    }
    Expr predicate = pick(2) ? Expr() : expr(boolean, 2);
    std::vector<Var> outside;
    std::swap(outside, scope_vars_);
    for (const IterVar& iter : iters) scope_vars_.push_back(iter.var);
    is_in_block_ = true;
    Stmt init = pick(2) ? Stmt() : simple();
    Stmt body = pick(2) ? simple() : make_stmt<Seq>(std::vector<Stmt>{simple(), simple()});
    is_in_block_ = false;
    std::swap(outside, scope_vars_);
    std::string name = "block " + std::to_string(++blocks_);
    return make_stmt<Block>(name, std::move(iters), predicate, init, body, attributes());
  }

  Stmt simple() {
    if (pick(8) == 0) return make_stmt<Evaluate>(tw::call(Intrinsic::barrier, {}));
    const Buffer& b = writable_[pick(static_cast<int>(writable_.size()))];
    if (pick(8) == 0)
      return make_stmt<Evaluate>(tw::call(Intrinsic::prefetch, {tw::load(b, indices(b, 1, 1)), Expr(pick(4))}));
    int lanes = pick(3) ? 1 : 4;
    Expr predicate = pick(4) ? Expr() : expr(boolean.with_lanes(lanes), 2);
    return make_stmt<Store>(b, indices(b, lanes, 2), expr(b->dtype.with_lanes(lanes), 4), predicate);
  }

  std::mt19937_64 random_;
  std::vector<Var> scope_vars_;
  std::vector<Buffer> buffers_, writable_;
  bool is_in_block_ = false;
  int blocks_ = 0;
};

}  // namespace tw::testing
