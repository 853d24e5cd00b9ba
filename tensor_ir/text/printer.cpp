// Printing keeps one table of the names in scope.  A name that is taken where it is declared gets a suffix; free
// variables and buffers claim theirs first, so that nothing bound can be mistaken for them.
#include "tensor_ir/text/printer.h"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "tensor_ir/node_dispatch.h"
#include "tensor_ir/text/syntax.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

using namespace syntax;

// The free variables and buffers of a piece of text, in order of first use.
class FreeNames {
 public:
  std::vector<std::pair<const void*, std::string>> found;

  void declare(const void* identity) { ++bound_[identity]; }
  void declare(const Buffer& buffer) {
    field(buffer->shape);
    field(buffer->strides);
    declare(buffer.get());
  }
  template <class Handle>
  void walk(const Handle& h) {
    if (!h.is_defined()) return;
    if constexpr (std::is_same_v<Handle, Expr>) {
      if (auto* var = h.template as<VarNode>()) return use(var, var->name);
    }
    size_t outer = declared_.size();
    bool is_allocation = h.kind() == NodeKind::Allocate;
    detail::with_node(h, [&](const auto& node) {
      std::apply([&](const auto&... fields) { (one(fields, is_allocation), ...); }, node.fields());
    });
    for (; declared_.size() > outer; declared_.pop_back()) --bound_[declared_.back()];
  }

 private:
  template <class T>
  void one(const T& value, bool is_allocation) {
    if constexpr (std::is_same_v<T, Buffer>) {
      if (!is_allocation) return use(value.get(), value->name);
      declare(value);
      declared_.push_back(value.get());
    } else {
      field(value);
    }
  }
  void field(const Var& var) {
    declare(var.get());
    declared_.push_back(var.get());
  }
  void field(const Expr& e) { walk(e); }
  void field(const Stmt& s) { walk(s); }
  template <class T>
  void field(const std::vector<T>& values) {
    for (const T& value : values) field(value);
  }
  void field(const IterVar& iter) { field(iter.extent), field(iter.binding), field(iter.var); }
  template <class T>
  void field(const T&) {}  // operators, constants, names, attributes

  void use(const void* identity, const std::string& name) {
    if (bound_[identity] == 0 && seen_.insert(identity).second) found.emplace_back(identity, name);
  }
  std::vector<const void*> declared_;
  std::unordered_map<const void*, int> bound_;
  std::unordered_set<const void*> seen_;
};

class Printer {
 public:
  std::string out;

  explicit Printer(const FreeNames& names) {
    for (const auto& [identity, name] : names.found) declare(identity, name);
  }

  void print(const Func& f) {
    out += "func " + quote_name(f.name);
    if (!f.parameters.empty()) {
      out += "[";
      for (size_t i = 0; i < f.parameters.size(); ++i) {
        out += i ? ", " : "";
        out += declare(f.parameters[i].get(), f.parameters[i].name());
        if (f.parameters[i].dtype() != i64) out += ": " + to_string(f.parameters[i].dtype());
        out += bounds_text(dimension_bounds(f.parameters[i]));
      }
      out += "]";
    }
    size_t inputs = f.buffers.size() - f.output_count;
    out += "(";
    for (size_t i = 0; i < inputs; ++i) out += i ? ", " : "", declaration(f.buffers[i]);
    out += ") -> (";
    for (size_t i = inputs; i < f.buffers.size(); ++i) out += i > inputs ? ", " : "", declaration(f.buffers[i]);
    out += ")";
    attributes(f.attributes);
    braces(f.body);
    out += "\n";
  }

  void print(const Stmt& s) { list(s); }

  void print(const Expr& e, int context = 0) {
    if (!e.is_defined()) {
      out += "<missing>";
      return;
    }
    switch (e.kind()) {
      case NodeKind::IntImm:
        return integer(*e.as<IntImm>());
      case NodeKind::FloatImm:
        return floating(*e.as<FloatImm>());
      case NodeKind::Var:
        out += name_of(e.get(), e.as<VarNode>()->name);
        return;
      case NodeKind::Unary: {
        auto& n = *e.as<Unary>();
        out += unary_table[static_cast<size_t>(n.op)].symbol;
        // -(7) is a negation, -7 a constant.
        bool is_literal = n.op == UnaryOp::negate && n.a.is_defined() && (n.a.as<IntImm>() || n.a.as<FloatImm>());
        if (is_literal) out += "(";
        print(n.a, unary_precedence);
        if (is_literal) out += ")";
        return;
      }
      case NodeKind::Binary:
        return binary(*e.as<Binary>(), context);
      case NodeKind::Cast:
        return call(to_string(e.dtype()), {e.as<Cast>()->value});
      case NodeKind::Select: {
        auto& n = *e.as<Select>();
        return call("select", {n.condition, n.then_value, n.else_value});
      }
      case NodeKind::Call: {
        auto& n = *e.as<Call>();
        bool is_implied = call_dtype(n.intrinsic, n.arguments) == n.dtype;
        return call(word(n.intrinsic) + (is_implied ? "" : ":" + to_string(n.dtype)), n.arguments);
      }
      case NodeKind::Load: {
        auto& n = *e.as<Load>();
        access(n.buffer, n.indices, n.predicate,
               access_dtype(n.buffer, n.indices, n.predicate) == n.dtype ? "" : ":" + to_string(n.dtype));
        return;
      }
      case NodeKind::Ramp: {
        auto& n = *e.as<Ramp>();
        return call("ramp", {n.base, n.stride, Expr(n.dtype.lanes)});
      }
      case NodeKind::Broadcast:
        return call("broadcast", {e.as<Broadcast>()->value, Expr(e.dtype().lanes)});
      case NodeKind::VectorReduce: {
        auto& n = *e.as<VectorReduce>();
        return call(std::string("reduce_") + word(n.op), {n.value});
      }
      case NodeKind::Let: {
        auto& n = *e.as<Let>();
        if (context > 0) out += "(";
        std::string value = captured([&] { print(n.value); });
        out += "let " + declare(n.var.get(), n.var.name()) + " = " + value + " in ";
        print(n.body);
        forget(n.var.get());
        if (context > 0) out += ")";
        return;
      }
      default:
        internal_error("print: an expression handle holds a statement");
    }
  }

 private:
  // ---- names
  std::string declare(const void* identity, const std::string& name) {
    std::string unique = name;
    for (int suffix = 1; !used_.insert(unique).second; ++suffix) unique = name + "_" + std::to_string(suffix);
    names_[identity].push_back(unique);
    return quote_name(unique);
  }
  void forget(const void* identity) {
    std::vector<std::string>& stack = names_[identity];
    used_.erase(stack.back());
    stack.pop_back();
  }
  std::string name_of(const void* identity, const std::string& name) const {
    auto it = names_.find(identity);
    return quote_name(it != names_.end() && !it->second.empty() ? it->second.back() : name);
  }

  // ---- expressions
  template <class F>
  std::string captured(F&& f) {
    std::string outer = std::move(out);
    out.clear();
    f();
    std::swap(out, outer);
    return outer;
  }

  void integer(const IntImm& n) {
    if (n.dtype.is_bool() && (n.value == 0 || n.value == 1)) {
      out += n.value ? "true" : "false";
      return;
    }
    out += n.dtype == u64 ? std::to_string(static_cast<uint64_t>(n.value)) : std::to_string(n.value);
    if (n.dtype != i64) out += to_string(n.dtype);
  }

  void floating(const FloatImm& n) {
    out += float_text(n.dtype, n.value);
    if (std::isfinite(n.value)) out += n.dtype == f32 ? "f" : to_string(n.dtype);
  }

  void binary(const Binary& n, int context) {
    const BinarySyntax& row = syntax_of(n.op, n.a.is_defined() ? n.a.dtype() : n.dtype);
    if (!row.symbol) return call(row.word, {n.a, n.b});
    bool has_parentheses = row.precedence < context;
    int left = row.precedence == comparison_precedence ? row.precedence + 1 : row.precedence;
    if (has_parentheses) out += "(";
    print(n.a, left);
    out += " ";
    out += row.symbol;
    out += " ";
    print(n.b, row.precedence + 1);
    if (has_parentheses) out += ")";
  }

  void arguments(const std::vector<Expr>& es) {
    for (size_t i = 0; i < es.size(); ++i) out += i ? ", " : "", print(es[i]);
  }

  void call(const std::string& name, const std::vector<Expr>& es) {
    out += name;
    out += "(";
    arguments(es);
    out += ")";
  }

  void access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate,
              const std::string& suffix = "") {
    out += name_of(buffer.get(), buffer->name);
    out += suffix;
    out += "[";
    arguments(indices);
    if (predicate.is_defined()) {
      out += indices.empty() ? "where " : " where ";
      print(predicate);
    }
    out += "]";
  }

  // ---- statements
  void new_line() {
    out += "\n";
    out.append(2 * depth_, ' ');
  }

  void attributes(const Attributes& attributes) {
    if (attributes.empty()) return;
    out += " attrs {";
    bool is_first = true;
    for (const auto& [key, value] : attributes) {
      if (!is_first) out += ", ";
      is_first = false;
      out += quote_key(key) + " = ";
      if (auto* i = std::get_if<int64_t>(&value))
        out += std::to_string(*i);
      else if (auto* s = std::get_if<std::string>(&value))
        out += quote_string(*s);
      else if (auto* bytes = std::get_if<BufferBytes>(&value))
        out += buffer_bytes(*bytes);
      else
        out += float_text(f64, std::get<double>(value));
    }
    out += "}";
  }

  static std::string buffer_bytes(const BufferBytes& bytes) {
    std::string text;
    for (const auto& [name, number] : bytes)
      text += (text.empty() ? "" : ", ") + quote_name(name) + ": " + std::to_string(number);
    return "{" + text + "}";
  }

  static std::string float_text(DType dtype, double value) {
    if (std::isnan(value)) return "nan_" + to_string(dtype);
    if (std::isinf(value)) return (value < 0 ? "-inf_" : "inf_") + to_string(dtype);
    return float_digits(dtype, value);
  }

  void declaration(const Buffer& buffer) {
    std::string type = captured([&] {
      out += ": " + to_string(buffer->dtype) + "[";
      arguments(buffer->shape);
      out += "]";
      if (!buffer->strides.empty()) {
        out += " strides [";
        arguments(buffer->strides);
        out += "]";
      }
      if (buffer->scope != Scope::global) out += std::string(" in ") + word(buffer->scope);
      if (buffer->alignment != 64) out += " align " + std::to_string(buffer->alignment);
      if (buffer->is_constant) out += " constant";
      if (buffer->is_cached) out += " cached";
      if (buffer->is_streamed) out += " streamed";
    });
    out += declare(buffer.get(), buffer->name) + type;
  }

  template <class F>
  void braces_around(F&& print_lines) {
    out += " {";
    ++depth_;
    size_t before = out.size();
    print_lines();
    --depth_;
    if (out.size() > before) new_line();
    out += "}";
  }

  void braces(const Stmt& body) {
    braces_around([&] { list(body, true); });
  }

  void line(bool starts_line) {
    if (starts_line)
      new_line();
    else if (!out.empty())
      out += "\n";
  }

  // The statements of a body.  let and alloc reach to the end of the list that they stand in.
  void list(const Stmt& body, bool starts_line = false) {
    std::vector<const void*> declared;
    Stmt rest = body;
    while (rest.is_defined()) {
      if (auto* n = rest.as<LetStmt>()) {
        line(starts_line);
        std::string value = captured([&] { print(n->value); });
        out += "let " + declare(n->var.get(), n->var.name()) + " = " + value;
        declared.push_back(n->var.get());
        rest = n->body;
      } else if (auto* n = rest.as<Allocate>()) {
        line(starts_line);
        out += "alloc ";
        declaration(n->buffer);
        declared.push_back(n->buffer.get());
        rest = n->body;
      } else if (auto* n = rest.as<Seq>(); n && n->statements.size() != 1) {
        // let and alloc at the end of a list need no braces: the list ends with them.
        Stmt last;
        for (size_t i = 0; i < n->statements.size(); ++i) {
          const Stmt& statement = n->statements[i];
          bool is_last = i + 1 == n->statements.size();
          if (is_last && (statement.as<LetStmt>() || statement.as<Allocate>())) {
            // A one-statement list is that statement, so only a list of several may end open.
            last = statement;
          } else {
            line(starts_line);
            single(statement);
          }
        }
        rest = last;
      } else {
        line(starts_line);
        single(rest);
        break;
      }
    }
    for (size_t i = declared.size(); i-- > 0;) forget(declared[i]);
  }

  // One statement that must not swallow those after it.
  void single(const Stmt& s) {
    if (!s.is_defined()) {
      out += "<missing>";
      return;
    }
    switch (s.kind()) {
      case NodeKind::For: {
        auto& n = *s.as<For>();
        std::string extent = captured([&] { print(n.extent); });
        out += "for " + declare(n.var.get(), n.var.name()) + " in 0.." + extent;
        if (n.loop_kind == LoopKind::thread)
          out += std::string(" ") + word(n.thread);
        else if (n.loop_kind != LoopKind::serial)
          out += std::string(" ") + word(n.loop_kind);
        attributes(n.attributes);
        braces(n.body);
        return forget(n.var.get());
      }
      case NodeKind::Block:
        return block(*s.as<Block>());
      case NodeKind::Store: {
        auto& n = *s.as<Store>();
        access(n.buffer, n.indices, n.predicate);
        out += " = ";
        return print(n.value);
      }
      case NodeKind::Seq:
        out += "seq";
        return seq_braces(*s.as<Seq>());
      case NodeKind::If: {
        auto* n = s.as<If>();
        out += "if ";
        print(n->condition);
        braces(n->then_body);
        while (n->else_body.is_defined()) {
          if (auto* next = n->else_body.as<If>()) {
            out += " else if ";
            print(next->condition);
            braces(next->then_body);
            n = next;
            continue;
          }
          out += " else";
          return braces(n->else_body);
        }
        return;
      }
      case NodeKind::LetStmt:
      case NodeKind::Allocate: {
        size_t at = out.size();
        braces(s);
        out.erase(at, 1);  // the space before the brace
        return;
      }
      case NodeKind::Evaluate: {
        auto& n = *s.as<Evaluate>();
        if (!n.call.is_defined() || !n.call.as<Call>()) out += "evaluate ";
        return print(n.call);
      }
      default:
        internal_error("print: a statement handle holds an expression");
    }
  }

  // A Seq that the braces around it would not make: of one statement, or inside another.
  void seq_braces(const Seq& n) {
    braces_around([&] {
      for (const Stmt& statement : n.statements) new_line(), single(statement);
    });
  }

  void block(const Block& n) {
    std::vector<std::string> ranges;
    for (const IterVar& iter : n.iters) {
      ranges.push_back(captured([&] {
        out += ": ";
        print(iter.extent);
        out += " = ";
        print(iter.binding);
      }));
    }
    std::string predicate = captured([&] {
      if (!n.predicate.is_defined()) return;
      out += " where ";
      print(n.predicate);
    });
    out += "block " + quote_name(n.name) + "(";
    for (size_t i = 0; i < n.iters.size(); ++i) {
      if (i) out += ", ";
      out += n.iters[i].kind == IterKind::reduce ? "reduce " : "spatial ";
      out += declare(n.iters[i].var.get(), n.iters[i].var.name()) + ranges[i];
    }
    out += ")" + predicate;
    attributes(n.attributes);
    if (n.init.is_defined()) {
      braces_around([&] {
        new_line();
        out += "init";
        braces(n.init);
        list(n.body, true);
      });
    } else {
      braces(n.body);
    }
    for (size_t i = n.iters.size(); i-- > 0;) forget(n.iters[i].var.get());
  }

  int depth_ = 0;
  std::unordered_map<const void*, std::vector<std::string>> names_;
  std::unordered_set<std::string> used_;
};

}  // namespace

std::string to_text(const Expr& e) {
  FreeNames names;
  names.walk(e);
  Printer printer(names);
  printer.print(e);
  return std::move(printer.out);
}

std::string to_text(const Stmt& s) {
  FreeNames names;
  names.walk(s);
  Printer printer(names);
  printer.print(s);
  if (!printer.out.empty()) printer.out += "\n";
  return std::move(printer.out);
}

std::string to_text(const Func& f) {
  FreeNames names;
  for (const Var& var : f.parameters) names.declare(var.get());
  for (const Buffer& buffer : f.buffers) names.declare(buffer);
  names.walk(f.body);
  Printer printer(names);
  printer.print(f);
  return std::move(printer.out);
}

std::string to_text(Intrinsic intrinsic) {
  return syntax::word(intrinsic);
}
std::string to_text(Scope scope) {
  return syntax::word(scope);
}

}  // namespace tw
