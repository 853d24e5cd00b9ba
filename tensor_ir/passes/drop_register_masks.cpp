// Masks of register buffers go where they protect nothing.
//
//   Cr[0..16 where m] = 0                                           Cr[0..16] = 0
//   Cr[0..16 where m] = Cr[0..16 where m] + a * B[j where m]   ⇒    Cr[0..16] = Cr[0..16] + a * B[j where m]
//   C[j where m] = Cr[0..16 where m]                                C[j where m] = Cr[0..16]
//
// When every store to an element of a register buffer has one and the same mask, lanes that it leaves out never have a
// value that the program may read; so they may have any.  What a load reads there is not seen either when the store
// that it is for has the same mask.  A blend for each of them is saved.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
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

// The places of one register buffer, and which of their stores need no mask.
class Places {
 public:
  Places(const Buffer& buffer, const Stmt& body) {
    visit(body, [&](const Store& st) {
      if (st.buffer != buffer || st.indices.size() != 1) return;
      if (Place* place = find(st.indices[0])) {
        place->is_uniform &= place->mask.is_defined() == st.predicate.is_defined() &&
                             (!st.predicate.is_defined() || structural_equal(place->mask, st.predicate));
        return;
      }
      by_hash_[key(st.indices[0])].push_back(places_.size());
      places_.push_back({st.indices[0], st.predicate});
    });
    for (const Place& place : places_) {
      const bool drops = place.is_uniform && place.mask.is_defined() && !may_change_within(place.mask, body) &&
                         overlaps_only_itself(place, places_);
      drops_.push_back(drops);
      if (!drops && !(place.is_uniform && !place.mask.is_defined())) continue;
      for (const int64_t element : elements_of(place.index)) whole_.insert(element);
    }
  }

  bool drops_store(const Expr& index) const {
    const Place* place = find(index);
    return place && drops_[static_cast<size_t>(place - places_.data())];
  }
  // All lanes of the index have values, whatever the masks.
  bool are_whole(const Expr& index) const {
    const std::vector<int64_t> elements = elements_of(index);
    return !elements.empty() &&
           std::all_of(elements.begin(), elements.end(), [&](int64_t e) { return whole_.count(e) > 0; });
  }

 private:
  using Key = std::pair<uint64_t, int>;
  static Key key(const Expr& index) { return {structural_hash(index), index.dtype().lanes}; }
  const Place* find(const Expr& index) const {
    const auto found = by_hash_.find(key(index));
    if (found == by_hash_.end()) return nullptr;
    for (const size_t i : found->second)
      if (structural_equal(places_[i].index, index)) return &places_[i];
    return nullptr;
  }
  Place* find(const Expr& index) { return const_cast<Place*>(std::as_const(*this).find(index)); }

  static std::vector<int64_t> elements_of(const Expr& index) {
    return constant_lanes(index).value_or(std::vector<int64_t>());
  }

  std::vector<Place> places_;
  std::map<Key, std::vector<size_t>> by_hash_;
  std::vector<bool> drops_;
  std::set<int64_t> whole_;
};

using PlacesOf = std::unordered_map<Buffer, Places>;

// The value of a store of this mask: lane by lane, what the mask leaves out is not seen.
Expr without_masks(const Expr& e, const Expr& mask, const PlacesOf& registers) {
  if (e.kind() == NodeKind::VectorReduce || e.dtype().lanes != mask.dtype().lanes) return e;
  if (const auto* c = e.as<Call>(); c && c->intrinsic == Intrinsic::lane_slice) return e;
  if (const auto* l = e.as<Load>()) {
    const auto found = registers.find(l->buffer);
    if (found == registers.end() || !l->predicate.is_defined() || !structural_equal(l->predicate, mask) ||
        l->indices.size() != 1 || !found->second.are_whole(l->indices[0]))
      return e;
    return make_expr<Load>(l->dtype, l->buffer, l->indices, Expr());
  }
  return map_children(e, [&](const Expr& child) { return without_masks(child, mask, registers); });
}

}  // namespace

Func drop_register_masks(const Func& f) {
  PlacesOf registers;
  visit(f.body, [&](const Allocate& a) {
    if (a.buffer->scope == Scope::register_) registers.try_emplace(a.buffer, a.buffer, a.body);
  });
  Func result = f;
  if (registers.empty()) return result;
  result.body = rewrite(f.body, [&](const Store& st) -> Stmt {
    if (!st.predicate.is_defined()) return {};
    const auto own = registers.find(st.buffer);
    const bool drops = own != registers.end() && st.indices.size() == 1 && own->second.drops_store(st.indices[0]);
    const Expr value = without_masks(st.value, st.predicate, registers);
    if (!drops && value.is_same(st.value)) return {};
    return make_stmt<Store>(st.buffer, st.indices, value, drops ? Expr() : st.predicate, st.span);
  });
  return result;
}

}  // namespace tw
