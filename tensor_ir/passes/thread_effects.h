// What stretches of a program do to memory that the threads of a block share: whether one has to wait for another
// (lower_threads).
#pragma once

#include <algorithm>
#include <vector>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/ir.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw {

inline bool is_thread_axis(ThreadAxis axis) {
  return axis >= ThreadAxis::thread_x;
}
inline bool is_shared(const Buffer& buffer) {
  return buffer->scope == Scope::shared || buffer->scope == Scope::global;
}

// A term of an index of memory that threads share, of which each thread has elements of its own.
struct OwnTerm {
  size_t dimension;
  ThreadAxis axis;
  int64_t coefficient, extent;
  bool operator==(const OwnTerm&) const = default;
};

// Elements of a buffer: those whose leading index has this value; not defined: any.  `own`: each thread's is another
// one, found by these terms; empty: that is not known.
struct Part {
  Buffer buffer;
  Expr leading;
  std::vector<OwnTerm> own = {};

  // In the versions of a pipelined buffer, (k + 1) % 3 and k % 3 are never the same.
  bool meets(const Part& other) const {
    if (buffer != other.buffer) return false;
    if (!own.empty() && own == other.own) return false;  // a thread has no need to wait for itself
    if (!leading.is_defined() || !other.leading.is_defined()) return true;
    const auto *a = leading.as<Binary>(), *b = other.leading.as<Binary>();
    if (a && b && a->op == BinaryOp::floor_mod && b->op == BinaryOp::floor_mod && as_int(a->b) == as_int(b->b)) {
      const auto modulus = as_int(a->b), difference = as_int(simplify(a->a - b->a));
      return !modulus || !difference || *difference % *modulus == 0;
    }
    const auto difference = as_int(simplify(leading - other.leading));
    return !difference || *difference == 0;
  }
  bool operator==(const Part& other) const {
    return buffer == other.buffer && own == other.own && leading.is_defined() == other.leading.is_defined() &&
           (!leading.is_defined() || structural_equal(leading, other.leading));
  }
};

using Parts = std::vector<Part>;

inline void add(Parts& parts, const Part& part) {
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
}

// What a stretch of the program does to memory that threads share.
struct Effects {
  Parts reads, writes;
  std::vector<Parts> products;  // that are still being made, the oldest first: what they read

  bool meets(const Effects& earlier) const {
    return overlap(reads, earlier.writes) || overlap(writes, earlier.writes) || overlap(writes, earlier.reads) ||
           meets_products(earlier);
  }
  bool meets_products(const Effects& earlier) const {
    return std::any_of(earlier.products.begin(), earlier.products.end(),
                       [&](const Parts& product) { return overlap(writes, product); });
  }
  void add(const Effects& other) {
    for (const Part& part : other.reads) tw::add(reads, part);
    for (const Part& part : other.writes) tw::add(writes, part);
    products.insert(products.end(), other.products.begin(), other.products.end());
  }
  // Of two ways to the same place, either of which may have been taken: their last products are together the last.
  void join(const Effects& other) {
    const size_t most = std::max(products.size(), other.products.size()), skipped = most - other.products.size();
    products.insert(products.begin(), most - products.size(), Parts());
    for (size_t i = 0; i < other.products.size(); ++i)
      for (const Part& part : other.products[i]) tw::add(products[skipped + i], part);
    for (const Part& part : other.reads) tw::add(reads, part);
    for (const Part& part : other.writes) tw::add(writes, part);
  }
  // All products but the last ones have ended: their operands are read.
  void end_products(size_t left) {
    while (products.size() > left) {
      for (const Part& part : products.front()) tw::add(reads, part);
      products.erase(products.begin());
    }
  }
  void pass_barrier() { reads.clear(), writes.clear(); }
  bool holds(const Effects& other) const {
    const auto contains = [](const Parts& all, const Parts& some) {
      return std::all_of(some.begin(), some.end(),
                         [&](const Part& part) { return std::find(all.begin(), all.end(), part) != all.end(); });
    };
    return contains(reads, other.reads) && contains(writes, other.writes) && products.size() == other.products.size() &&
           std::equal(products.begin(), products.end(), other.products.begin(), contains);
  }

  // Seen from where a variable has another value: `value` in terms of it there, or not defined where it is unknown.
  Effects with(const Var& var, const Expr& value) const {
    auto renamed = [&](const Parts& parts) {
      Parts result;
      for (Part part : parts) {
        if (part.leading.is_defined() && uses_var(part.leading, var))
          part.leading = value.is_defined() ? simplify(substitute(part.leading, {{var, value}})) : Expr();
        tw::add(result, part);
      }
      return result;
    };
    Effects result = {renamed(reads), renamed(writes), {}};
    for (const Parts& product : products) result.products.push_back(renamed(product));
    return result;
  }

 private:
  static bool overlap(const Parts& a, const Parts& b) {
    return std::any_of(a.begin(), a.end(), [&](const Part& part) {
      return std::any_of(b.begin(), b.end(), [&](const Part& other) { return part.meets(other); });
    });
  }
};

Effects effects_of(const Expr& e);
Effects effects_of(const Stmt& s);

}  // namespace tw
