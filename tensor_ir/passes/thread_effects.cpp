#include "tensor_ir/passes/thread_effects.h"

#include "tensor_ir/instruction.h"

namespace tw {
namespace {

// Of indices that are digits of threads' numbers and nothing else, so that no two threads have the same.
std::vector<OwnTerm> own_terms(const std::vector<Expr>& indices, const std::vector<const For*>& threads) {
  std::vector<OwnTerm> terms;
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto affine = as_affine(indices[d]);
    if (!affine || affine->constant != 0) return {};
    const size_t first = terms.size();
    for (const auto& [var, coefficient] : affine->terms) {
      const auto loop = std::find_if(threads.begin(), threads.end(), [&](const For* l) { return l->var == var; });
      const auto extent = loop == threads.end() ? std::nullopt : as_int((*loop)->extent);
      if (!extent || coefficient < 1) return {};
      terms.push_back({d, (*loop)->thread, coefficient, *extent});
    }
    const auto begin = terms.begin() + static_cast<std::ptrdiff_t>(first);
    std::sort(begin, terms.end(), [](const OwnTerm& a, const OwnTerm& b) { return a.coefficient < b.coefficient; });
    for (auto term = begin; term != terms.end() && term + 1 != terms.end(); ++term)
      if ((term + 1)->coefficient < term->coefficient * term->extent) return {};
  }
  const auto is_in_terms = [&](const For* loop) {
    const auto of_axis = [&](const OwnTerm& term) { return term.axis == loop->thread; };
    return is_const_int(loop->extent, 1) || std::count_if(terms.begin(), terms.end(), of_axis) == 1;
  };
  return std::all_of(threads.begin(), threads.end(), is_in_terms) ? terms : std::vector<OwnTerm>();
}

template <class Handle>
Effects effects_within(const Handle& h) {
  Effects effects;
  std::vector<Var> bound;
  std::vector<const For*> threads;
  visit(h, [&](const For& n) {
    if (is_thread_axis(n.thread)) threads.push_back(&n);
  });
  auto note = [&threads](Parts& parts, const Buffer& buffer, const std::vector<Expr>& indices) {
    if (!is_shared(buffer)) return;
    const bool is_value = !indices.empty() && indices[0].dtype() == i64 && int(indices.size()) == buffer.rank();
    Expr leading = is_value ? indices[0] : Expr();
    if (is_value) visit(leading, [&](const Load&) { leading = Expr(); });
    add(parts, {buffer, leading, own_terms(indices, threads)});
  };
  visit(
      h, [&](const Load& n) { note(effects.reads, n.buffer, n.indices); },
      [&](const Store& n) { note(effects.writes, n.buffer, n.indices); }, [&](const For& n) { bound.push_back(n.var); },
      [&](const LetStmt& n) { bound.push_back(n.var); }, [&](const Let& n) { bound.push_back(n.var); });
  for (const Var& var : bound) effects = effects.with(var, Expr());
  return effects;
}

}  // namespace

Effects effects_of(const Expr& e) {
  return effects_within(e);
}
Effects effects_of(const Stmt& s) {
  Effects effects = effects_within(s);
  if (multiplies_asynchronously(s)) effects.products = {effects.reads};
  return effects;
}

}  // namespace tw
