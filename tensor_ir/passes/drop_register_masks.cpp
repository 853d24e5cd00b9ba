// Masks of stores to register buffers go where they protect nothing.
//
//   Cr[0..16 where m] = 0                                  Cr[0..16] = 0
//   Cr[0..16 where m] = Cr[0..16] + a * B[j where m]   ⇒   Cr[0..16] = Cr[0..16] + a * B[j where m]
//   C[j where m] = Cr[0..16]                               C[j where m] = Cr[0..16]
//
// When every store to an element of a register buffer has one and the same mask, lanes that it leaves out never have a
// value that the program may read; so they may have any.  A blend for each store is saved.
#include <map>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

// What is known of the stores to one place, an index of a register buffer.
struct Place {
  Expr index, mask;
  bool is_uniform = true;
};

bool may_change_within(const Expr& mask, const Stmt& body) {
  bool changes = false;
  visit(mask, [&](const Load&) { changes = true; });
  for (const Var& var : free_vars(mask)) {
    visit(
        body, [&](const For& loop) { changes |= loop.var == var; },
        [&](const LetStmt& let) { changes |= let.var == var; }, [&](const Let& let) { changes |= let.var == var; });
  }
  return changes;
}

bool overlaps_only_itself(const Place& place, const std::vector<Place>& all) {
  // Places are told apart by their index; partly overlapping ones keep their masks.
  const auto* a = place.index.as<Ramp>();
  if (!a || !is_const_int(a->stride, 1) || !as_int(a->base)) return false;
  for (const Place& other : all) {
    if (&other == &place) continue;
    int64_t first = 0, lanes = 1;
    if (const auto* b = other.index.as<Ramp>(); b && as_int(b->base) && is_const_int(b->stride, 1)) {
      first = *as_int(b->base), lanes = b->dtype.lanes;
    } else if (const auto value = as_int(other.index)) {
      first = *value;
    } else {
      return false;
    }
    const int64_t begin = *as_int(a->base);
    if (first < begin + a->dtype.lanes && begin < first + lanes) return false;
  }
  return true;
}

Stmt drop_masks_of(const Buffer& buffer, const Stmt& body) {
  std::vector<Place> places;
  std::map<std::pair<uint64_t, int>, std::vector<size_t>> by_hash;
  auto place_of = [&](const Expr& index) -> Place* {
    for (size_t i : by_hash[{structural_hash(index), index.dtype().lanes}])
      if (structural_equal(places[i].index, index)) return &places[i];
    return nullptr;
  };
  visit(body, [&](const Store& st) {
    if (st.buffer != buffer || st.indices.size() != 1) return;
    Place* place = place_of(st.indices[0]);
    if (!place) {
      by_hash[{structural_hash(st.indices[0]), st.indices[0].dtype().lanes}].push_back(places.size());
      places.push_back({st.indices[0], st.predicate});
      return;
    }
    place->is_uniform &=
        place->mask.is_defined() && st.predicate.is_defined() && structural_equal(place->mask, st.predicate);
  });
  std::vector<bool> drops(places.size());
  bool any = false;
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    drops[i] = place.is_uniform && place.mask.is_defined() && !may_change_within(place.mask, body) &&
               overlaps_only_itself(place, places);
    any |= drops[i];
  }
  if (!any) return body;
  return rewrite(body, [&](const Store& st) -> Stmt {
    if (st.buffer != buffer || !st.predicate.is_defined()) return {};
    const Place* place = place_of(st.indices[0]);
    if (!place || !drops[static_cast<size_t>(place - places.data())]) return {};
    return make_stmt<Store>(st.buffer, st.indices, st.value, Expr(), st.span);
  });
}

}  // namespace

Func drop_register_masks(const Func& f) {
  Func result = f;
  result.body = rewrite_bottom_up(f.body, [](const Allocate& allocate) -> Stmt {
    if (allocate.buffer->scope != Scope::register_) return {};
    const Stmt body = drop_masks_of(allocate.buffer, allocate.body);
    return body.is_same(allocate.body) ? Stmt() : make_stmt<Allocate>(allocate.buffer, body);
  });
  return result;
}

}  // namespace tw
