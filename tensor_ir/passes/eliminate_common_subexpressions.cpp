// Values that are needed again are computed once.
//
//   C[i] = exp(A[i]) * B[i // 4]             let x = exp(A[i])
//   D[i] = exp(A[i]) + B[i // 4]       ⇒     let y = B[i // 4]
//                                            C[i] = x * y
//                                            D[i] = x + y
//
// A value is named in front of the first statement that needs it and holds to the end of that list of statements, or
// until something may write what it was loaded from: a store, a loop or branch that stores, a barrier.  The statement
// needs it for certain, so nothing is computed that was not computed before; what stands behind a predicate, where it
// may not be computed, names nothing that could trap.
//
// Two walks in the same order: the first counts uses, the second rewrites.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/values.h"

namespace tw {
namespace {

constexpr size_t most_names_of_a_list = 256;  // beyond, the text form's limit of lets comes near

bool is_shared_out(const For& loop) {
  return loop.loop_kind == LoopKind::parallel ||
         (loop.loop_kind == LoopKind::thread && loop.thread < ThreadAxis::thread_x);
}

bool has_shared_out_loop(const Stmt& s) {
  bool found = false;
  visit(s, [&](const For& loop) { found |= is_shared_out(loop); });
  return found;
}

class Elimination {
 public:
  explicit Elimination(const Func& f) : has_aliases_(f.attributes.count("may_alias") > 0) {
    if (has_aliases_) parameters_.insert(f.buffers.begin(), f.buffers.end());
  }

  Stmt run(const Stmt& body) {
    list(body);
    is_rewriting_ = true;
    next_ = 0;
    clock_ = barrier_at_ = 0;
    written_at_.clear();
    return list(body);
  }

 private:
  struct Named {
    size_t order;  // of all that could be named
    int made_at;
    Var var;  // that stands in front of a statement; not defined: the list has names enough
  };

  // ---- statements

  Stmt list(const Stmt& s) {
    if (!s.is_defined()) return s;
    const std::vector<Stmt> statements = s.as<Seq>() ? s.as<Seq>()->statements : std::vector<Stmt>{s};
    const bool outer_may_name = may_name_;
    const size_t outer_names = names_;
    const auto outer_log = std::exchange(log_, {});
    const auto outer_lets = std::exchange(lets_, {});
    // Kernels are cut at loops that are shared out: no name reaches over them.
    may_name_ = std::none_of(statements.begin(), statements.end(), has_shared_out_loop);
    names_ = 0;
    std::vector<std::pair<std::vector<std::pair<Var, Expr>>, Stmt>> rewritten;
    for (const Stmt& child : statements) {
      Stmt result = statement(child);
      rewritten.emplace_back(std::exchange(lets_, {}), result);
    }
    for (auto entry = log_.rbegin(); entry != log_.rend(); ++entry) {
      if (entry->second)
        available_[entry->first] = *entry->second;
      else
        available_.erase(entry->first);
    }
    may_name_ = outer_may_name, names_ = outer_names, log_ = outer_log, lets_ = outer_lets;
    if (!is_rewriting_) return s;
    std::vector<Stmt> tail;  // in reverse
    for (size_t i = rewritten.size(); i-- > 0;) {
      tail.push_back(rewritten[i].second);
      const auto& lets = rewritten[i].first;
      if (lets.empty()) continue;
      Stmt rest = in_order(tail);
      for (size_t l = lets.size(); l-- > 0;) rest = make_stmt<LetStmt>(lets[l].first, lets[l].second, rest);
      tail = {rest};
    }
    return s.as<Seq>() && s.as<Seq>()->statements.empty() ? s : in_order(tail);
  }

  static Stmt in_order(std::vector<Stmt> reversed) {
    std::reverse(reversed.begin(), reversed.end());
    return seq(std::move(reversed));
  }

  Stmt statement(const Stmt& s) {
    switch (s.kind()) {
      case NodeKind::For: {
        const auto& loop = *s.as<For>();
        const Expr extent = value(loop.extent);
        write_all(loop.body);  // by the iteration before
        const Stmt body = list(loop.body);
        return is_rewriting_
                   ? make_stmt<For>(loop.var, extent, loop.loop_kind, body, loop.thread, loop.attributes, loop.span)
                   : s;
      }
      case NodeKind::If: {
        const auto& branch = *s.as<If>();
        const Expr condition = value(branch.condition);
        const Stmt then_body = list(branch.then_body), else_body = list(branch.else_body);
        return is_rewriting_ ? make_stmt<If>(condition, then_body, else_body) : s;
      }
      case NodeKind::LetStmt: {
        const auto& let = *s.as<LetStmt>();
        const Expr named = value(let.value);
        const Stmt body = list(let.body);
        return is_rewriting_ ? make_stmt<LetStmt>(let.var, named, body) : s;
      }
      case NodeKind::Allocate: {
        const auto& allocate = *s.as<Allocate>();
        const Stmt body = list(allocate.body);
        return is_rewriting_ ? make_stmt<Allocate>(allocate.buffer, body) : s;
      }
      case NodeKind::Store: {
        const auto& store = *s.as<Store>();
        const Expr predicate = value(store.predicate);
        const bool is_certain = std::exchange(is_certain_, is_certain_ && !store.predicate.is_defined());
        const Expr stored = value(store.value);
        const std::vector<Expr> indices = values(store.indices);
        is_certain_ = is_certain;
        write(store.buffer);
        return is_rewriting_ ? make_stmt<Store>(store.buffer, indices, stored, predicate, store.span) : s;
      }
      case NodeKind::Evaluate: {
        write_all(s);
        return s;
      }
      default:
        write_all(s);
        return s;
    }
  }

  // ---- memory

  Buffer alias_of(const Buffer& buffer) const { return parameters_.count(buffer) ? *parameters_.begin() : buffer; }
  void write(const Buffer& buffer) { written_at_[alias_of(buffer)] = ++clock_; }
  void write_all(const Stmt& s) {
    for (const Buffer& buffer : buffers_written(s)) write(buffer);
    visit(s, [&](const Call& call) {
      if (call.intrinsic == Intrinsic::barrier) barrier_at_ = ++clock_;  // what other threads wrote is seen now
    });
  }
  bool is_as_it_was(const Expr& e, const Named& named) {
    const auto& reads = values_.facts(e).reads;
    if (!reads.empty() && barrier_at_ > named.made_at) return false;
    return std::all_of(reads.begin(), reads.end(), [&](const Buffer& buffer) {
      const auto written = written_at_.find(alias_of(buffer));
      return written == written_at_.end() || written->second <= named.made_at;
    });
  }

  // ---- expressions

  std::vector<Expr> values(const std::vector<Expr>& list) {
    std::vector<Expr> result;
    for (const Expr& e : list) result.push_back(value(e));
    return result;
  }

  Expr value(const Expr& e) {
    if (!e.is_defined()) return e;
    const bool is_candidate = is_worth_naming(e) && values_.varies(e);
    const int number = is_candidate ? values_.number(e) : -1;
    if (is_candidate) {
      const auto found = available_.find(number);
      if (found != available_.end() && is_as_it_was(e, found->second)) {
        if (!is_rewriting_) ++uses_[found->second.order];
        return found->second.var.is_defined() ? Expr(found->second.var) : e;
      }
    }
    const bool names_it = is_candidate && may_name_ && !is_in_let_ && (is_certain_ || !values_.facts(e).may_trap);
    const Expr result = children(e);
    if (!names_it) return result;
    const size_t order = next_++;
    if (!is_rewriting_) uses_.push_back(1);
    if (is_rewriting_ && uses_[order] < 2) return result;
    Named named{order, clock_, Var()};
    if (is_rewriting_ && names_ < most_names_of_a_list) {
      ++names_;
      named.var = Var("value", e.dtype());
      lets_.emplace_back(named.var, result);
    }
    make_available(number, named);
    return named.var.is_defined() ? Expr(named.var) : result;
  }

  Expr children(const Expr& e) {
    if (const auto* let = e.as<Let>()) {
      const Expr bound = value(let->value);
      const bool is_in_let = std::exchange(is_in_let_, true);  // what uses the name cannot stand in front
      const Expr body = value(let->body);
      is_in_let_ = is_in_let;
      return is_rewriting_ ? make_expr<Let>(let->dtype, let->var, bound, body) : e;
    }
    if (const auto* load = e.as<Load>()) {
      const Expr predicate = value(load->predicate);
      const bool is_certain = std::exchange(is_certain_, is_certain_ && !load->predicate.is_defined());
      const std::vector<Expr> indices = values(load->indices);
      is_certain_ = is_certain;
      return is_rewriting_ ? make_expr<Load>(load->dtype, load->buffer, indices, predicate) : e;
    }
    return map_children(e, [&](const Expr& child) { return value(child); });
  }

  void make_available(int number, const Named& named) {
    const auto found = available_.find(number);
    log_.emplace_back(number, found == available_.end() ? std::nullopt : std::optional<Named>(found->second));
    available_.insert_or_assign(number, named);
  }

  bool is_rewriting_ = false;
  Values values_;
  std::unordered_map<int, Named> available_;
  std::vector<std::pair<int, std::optional<Named>>> log_;  // what the list has changed in available_
  std::vector<int> uses_;
  size_t next_ = 0, names_ = 0;
  std::vector<std::pair<Var, Expr>> lets_;  // to stand in front of the statement
  bool may_name_ = true, is_certain_ = true, is_in_let_ = false;

  bool has_aliases_;
  std::set<Buffer> parameters_;  // that may be the same memory
  std::unordered_map<Buffer, int> written_at_;
  int clock_ = 0, barrier_at_ = 0;
};

}  // namespace

Func eliminate_common_subexpressions(const Func& f) {
  Func result = f;
  result.body = Elimination(f).run(f.body);
  return result;
}

}  // namespace tw
