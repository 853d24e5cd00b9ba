// Equality walks both trees by fields() at once, with the bound identities of one mapped to those of the other.  The
// hash writes the same walk as bytes (little-endian, enumerators by name, so that a new row of a table changes no old
// hash) and takes XXH3 of them.
#include "tensor_ir/structural.h"

#include <bit>
#include <cmath>
#include <unordered_map>

#include "tensor_ir/digest.h"
#include "tensor_ir/node_dispatch.h"
#include "tensor_ir/text/syntax.h"

namespace tw {
namespace {

// The Func's attributes, with the facts of parameters by their positions: databases keep digests of this form.
Attributes attributes_with_facts(const Func& f) {
  Attributes result = f.attributes;
  for (size_t i = 0; i < f.buffers.size(); ++i) {
    const std::string position = "#" + std::to_string(i);
    if (f.buffers[i]->is_constant) result["constant:" + position] = int64_t{1};
    if (f.buffers[i]->is_cached) result["cached:" + position] = int64_t{1};
    if (f.buffers[i]->is_streamed) result["streaming:" + position] = int64_t{1};
  }
  return result;
}

// One bit pattern for every NaN; -0 and 0 differ.
uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(std::isnan(value) ? std::nan("") : value);
}

class Equality {
 public:
  bool equal(const Expr& a, const Expr& b) { return handles(a, b); }
  bool equal(const Stmt& a, const Stmt& b) { return handles(a, b); }

  bool equal(const Func& a, const Func& b) {
    if (a.buffers.size() != b.buffers.size() || a.parameters.size() != b.parameters.size() ||
        a.output_count != b.output_count)
      return false;
    for (size_t i = 0; i < a.parameters.size(); ++i) {
      if (!bind(a.parameters[i], b.parameters[i])) return false;
    }
    for (size_t i = 0; i < a.buffers.size(); ++i) {
      if (!bind(a.buffers[i], b.buffers[i])) return false;
    }
    return field(attributes_with_facts(a), attributes_with_facts(b)) && handles(a.body, b.body);
  }

 private:
  template <class Handle>
  bool handles(const Handle& a, const Handle& b) {
    if (!a.is_defined() || !b.is_defined()) return a.is_defined() == b.is_defined();
    if (a.kind() != b.kind()) return false;
    if constexpr (std::is_same_v<Handle, Expr>) {
      if (a.dtype() != b.dtype()) return false;
      if (a.kind() == NodeKind::Var) return same(a.get(), b.get());
    }
    return detail::with_node(a, [&]<class Node>(const Node& left) {
      const Node& right = *b.template as<Node>();
      return fields<Node>(left.fields(), right.fields());
    });
  }

  template <class Node, class Fields>
  bool fields(const Fields& a, const Fields& b) {
    return std::apply(
        [&](const auto&... left) {
          return std::apply([&](const auto&... right) { return (one<Node>(left, right) && ...); }, b);
        },
        a);
  }

  template <class Node, class T>
  bool one(const T& a, const T& b) {
    if constexpr (std::is_same_v<Node, Allocate> && std::is_same_v<T, Buffer>)
      return bind(a, b);
    else
      return field(a, b);
  }

  bool field(const Expr& a, const Expr& b) { return handles(a, b); }
  bool field(const Stmt& a, const Stmt& b) { return handles(a, b); }
  bool field(const Var& a, const Var& b) { return bind(a, b); }
  bool field(const Buffer& a, const Buffer& b) { return same(a.get(), b.get()); }
  bool field(double a, double b) { return bits_of(a) == bits_of(b); }
  bool field(const IterVar& a, const IterVar& b) {
    return a.kind == b.kind && field(a.extent, b.extent) && field(a.binding, b.binding) && bind(a.var, b.var);
  }
  bool field(const AttributeValue& a, const AttributeValue& b) {
    if (a.index() != b.index()) return false;
    const double* number = std::get_if<double>(&a);
    return number ? field(*number, std::get<double>(b)) : a == b;
  }
  bool field(const Attributes& a, const Attributes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const auto& x, const auto& y) { return x.first == y.first && field(x.second, y.second); });
  }
  template <class T>
  bool field(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!field(a[i], b[i])) return false;
    }
    return true;
  }
  template <class T>
  bool field(const T& a, const T& b) {
    return a == b;
  }

  bool bind(const Var& a, const Var& b) {
    if (a.is_defined() != b.is_defined()) return false;
    if (!a.is_defined()) return true;
    if (a.dtype() != b.dtype() || !(dimension_bounds(a) == dimension_bounds(b))) return false;
    return pair(a.get(), b.get());
  }
  bool bind(const Buffer& a, const Buffer& b) {
    return a->dtype == b->dtype && a->scope == b->scope && a->alignment == b->alignment && field(a->shape, b->shape) &&
           field(a->strides, b->strides) && pair(a.get(), b.get());
  }
  // Sound without unbinding: what is bound again simply gets its new partner.
  bool pair(const void* a, const void* b) {
    to_right_[a] = b;
    to_left_[b] = a;
    return true;
  }
  bool same(const void* a, const void* b) const {
    auto right = to_right_.find(a);
    auto left = to_left_.find(b);
    if (right == to_right_.end() && left == to_left_.end()) return a == b;
    return right != to_right_.end() && left != to_left_.end() && right->second == b && left->second == a;
  }

  std::unordered_map<const void*, const void*> to_right_, to_left_;
};

class Hasher {
 public:
  const std::string& bytes() const { return bytes_; }

  void add(const Func& f) {
    integer(f.buffers.size()), integer(f.parameters.size()), integer(f.output_count);
    for (const Var& var : f.parameters) {
      bind(var);
      const DimensionBounds bounds = dimension_bounds(var);
      if (!(bounds == DimensionBounds{})) field(bounds.low), field(bounds.high);
    }
    for (const Buffer& buffer : f.buffers) bind(buffer);
    field(attributes_with_facts(f));
    add(f.body);
  }
  template <class Handle>
  void add(const Handle& h) {
    if (!h.is_defined()) return text("none");
    text(syntax::word(h.kind()));
    if constexpr (std::is_same_v<Handle, Expr>) {
      dtype(h.dtype());
      if (auto* var = h.template as<VarNode>()) return identity(var, var->name);
    }
    bool is_allocation = h.kind() == NodeKind::Allocate;
    detail::with_node(h, [&](const auto& node) {
      std::apply([&](const auto&... fields) { (one(fields, is_allocation), ...); }, node.fields());
    });
  }

 private:
  template <class T>
  void one(const T& value, bool is_allocation) {
    if constexpr (std::is_same_v<T, Buffer>) {
      if (is_allocation) return bind(value);
    }
    field(value);
  }
  void field(const Expr& e) { add(e); }
  void field(const Stmt& s) { add(s); }
  void field(const Var& var) { bind(var); }
  void field(const Buffer& buffer) { identity(buffer.get(), buffer->name); }
  void field(const std::string& value) { text(value); }
  void field(int64_t value) { integer(static_cast<uint64_t>(value)); }
  void field(double value) { integer(bits_of(value)); }
  void field(UnaryOp op) { text(syntax::word(op)); }
  void field(BinaryOp op) { text(syntax::word(op)); }
  void field(Intrinsic intrinsic) { text(syntax::word(intrinsic)); }
  void field(LoopKind kind) { text(syntax::word(kind)); }
  void field(ThreadAxis axis) { text(syntax::word(axis)); }
  void field(const IterVar& iter) {
    text(iter.kind == IterKind::reduce ? "reduce" : "spatial");
    add(iter.extent);
    add(iter.binding);
    bind(iter.var);
  }
  void field(const BufferBytes& bytes) {
    integer(bytes.size());
    for (const auto& [name, value] : bytes) text(name), field(value);
  }
  void field(const Attributes& attributes) {
    integer(attributes.size());
    for (const auto& [key, value] : attributes) {
      text(key);
      integer(value.index());
      std::visit([&](const auto& v) { field(v); }, value);
    }
  }
  template <class T>
  void field(const std::vector<T>& values) {
    integer(values.size());
    for (const T& value : values) field(value);
  }

  void bind(const Var& var) {
    if (!var.is_defined()) return text("none");
    dtype(var.dtype());
    numbers_[var.get()] = next_number_++;
  }
  void bind(const Buffer& buffer) {
    dtype(buffer->dtype);
    text(syntax::word(buffer->scope));
    integer(buffer->alignment);
    field(buffer->shape);
    field(buffer->strides);
    numbers_[buffer.get()] = next_number_++;
  }
  // Free identities hash by name: equal ones are the same object, so they have the same.
  void identity(const void* identity, const std::string& name) {
    auto it = numbers_.find(identity);
    if (it != numbers_.end()) return integer(it->second);
    text("free");
    text(name);
  }
  void dtype(DType dtype) {
    integer((uint64_t{dtype.is_bool()} << 32) | (uint64_t{dtype.is_signed_integer()} << 33) |
            (uint64_t{dtype.is_unsigned_integer()} << 34) | (uint64_t{dtype.kind == DTypeKind::brain_floating} << 35) |
            (uint64_t{dtype.bits} << 16) | dtype.lanes);
  }
  void text(std::string_view value) {
    integer(value.size());
    bytes_.append(value);
  }
  void integer(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }

  std::string bytes_;
  uint64_t next_number_ = 0;
  std::unordered_map<const void*, uint64_t> numbers_;
};

template <class T>
std::string bytes_of(const T& value) {
  Hasher hasher;
  hasher.add(value);
  return hasher.bytes();
}

}  // namespace

bool structural_equal(const Expr& a, const Expr& b) {
  return Equality().equal(a, b);
}
bool structural_equal(const Stmt& a, const Stmt& b) {
  return Equality().equal(a, b);
}
bool structural_equal(const Func& a, const Func& b) {
  return Equality().equal(a, b);
}

uint64_t structural_hash(const Expr& e) {
  return hash_of(bytes_of(e));
}
uint64_t structural_hash(const Stmt& s) {
  return hash_of(bytes_of(s));
}
uint64_t structural_hash(const Func& f) {
  return hash_of(bytes_of(f));
}

std::string structural_digest(const Func& f) {
  return digest_of(bytes_of(f));
}

}  // namespace tw
