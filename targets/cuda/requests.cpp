// Values are told of all threads of a warp at a time.  What depends on data is unknown; a condition that is unknown
// counts as true.
#include "targets/cuda/requests.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <set>
#include <unordered_map>

#include "runtime/rounding.h"
#include "targets/cuda/device_facts.h"
#include "targets/cuda/emit.h"
#include "targets/cuda/tile_copies.h"
#include "tensor_ir/match.h"
#include "tensor_ir/scalar_meaning.h"

namespace tw::cuda {
namespace {

constexpr int64_t sector_bytes = 32, widest_access = 16;

using Value = std::optional<int64_t>;
using Values = std::array<Value, threads_of_warp>;
using Threads = std::bitset<threads_of_warp>;

// Nothing where it is undefined.
Value apply(BinaryOp op, DType dtype, int64_t a, int64_t b) {
  const bool divides =
      op == BinaryOp::div || op == BinaryOp::mod || op == BinaryOp::floor_div || op == BinaryOp::floor_mod;
  const bool shifts = op == BinaryOp::shift_left || op == BinaryOp::shift_right;
  if (divides ? b == 0 : shifts && (b < 0 || b >= dtype.bits)) return {};
  return meaning::apply(op, dtype, a, b);
}

class Warp {
 public:
  // Its number in the block, and which block and which iteration of each loop are looked at, where there are as many.
  Warp(const Launch& launch, const TileCopies& tiles, int64_t number, int64_t iteration, MemoryRequests& found)
      : tiles_(tiles), iteration_(iteration), found_(found) {
    int64_t threads = 1;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t extent = as_int(launch.block[axis]).value_or(1);
      for (int64_t t = 0; t < threads_of_warp; ++t) index_[axis][t] = (number * threads_of_warp + t) / threads % extent;
      threads *= extent;
    }
    for (int64_t t = 0; t < threads_of_warp; ++t) active_[t] = number * threads_of_warp + t < threads;
  }

  void walk(const Stmt& s) {
    if (const auto* seq = s.as<Seq>()) {
      for (const Stmt& child : seq->statements) walk(child);
    } else if (const auto* loop = s.as<For>()) {
      walk_loop(*loop);
    } else if (const auto* choice = s.as<If>()) {
      loads_of(choice->condition);
      const Values holds = values_of(choice->condition);
      within(holds, true, [&] { walk(choice->then_body); });
      if (choice->else_body.is_defined()) within(holds, false, [&] { walk(choice->else_body); });
    } else if (const auto* let = s.as<LetStmt>()) {
      loads_of(let->value);
      known_[let->var.get()] = values_of(let->value);
      walk(let->body);
    } else if (const auto* allocate = s.as<Allocate>()) {
      walk(allocate->body);
    } else if (const auto* store = s.as<Store>()) {
      if (tiles_.copies.count(store)) return;  // whole rows, which no warp asks for
      for (const Expr& index : store->indices) loads_of(index);
      loads_of(store->value);
      access(store->buffer, store->indices, store->predicate, store->value.dtype().lanes);
    }
  }

 private:
  void walk_loop(const For& loop) {
    Values counts;
    const Value extent = values_of(loop.extent)[0];
    if (extent && *extent <= 0) return;
    const bool is_of_block = loop.loop_kind == LoopKind::thread && loop.thread >= ThreadAxis::thread_x;
    for (int64_t t = 0; t < threads_of_warp; ++t) {
      const int64_t of_loop = extent ? std::min(iteration_, *extent - 1) : iteration_;
      counts[t] =
          is_of_block ? index_[static_cast<int>(loop.thread) - static_cast<int>(ThreadAxis::thread_x)][t] : of_loop;
    }
    known_[loop.var.get()] = counts;
    Values has_it;
    for (int64_t t = 0; t < threads_of_warp; ++t)
      if (extent) has_it[t] = *counts[t] < *extent;
    within(has_it, true, [&] { walk(loop.body); });
  }

  // With the threads alone of which a condition is so, or may be.
  template <class F>
  void within(const Values& condition, bool wanted, F&& action) {
    const Threads before = active_;
    for (int64_t t = 0; t < threads_of_warp; ++t)
      if (condition[t] && (*condition[t] != 0) != wanted) active_[t] = false;
    if (active_.any()) action();
    active_ = before;
  }

  // Of a scalar, or of what all lanes of a vector have.
  Values values_of(const Expr& e) const {
    Values result;
    if (const auto* number = e.as<IntImm>()) {
      result.fill(number->value);
    } else if (e.as<VarNode>()) {
      if (const auto found = known_.find(e.get()); found != known_.end()) result = found->second;
    } else if (const auto* cast = e.as<Cast>(); cast && cast->dtype.is_integer() && cast->value.dtype().is_integer()) {
      result = values_of(cast->value);
    } else if (const auto* same = e.as<Broadcast>()) {
      result = values_of(same->value);
    } else if (const auto* binary = e.as<Binary>(); binary && binary->a.dtype().is_integer()) {
      const Values a = values_of(binary->a), b = values_of(binary->b);
      for (size_t t = 0; t < a.size(); ++t)
        if (a[t] && b[t]) result[t] = apply(binary->op, binary->a.dtype().element(), *a[t], *b[t]);
    } else if (const auto* select = e.as<Select>(); select && select->dtype.is_integer()) {
      const Values holds = values_of(select->condition), a = values_of(select->then_value),
                   b = values_of(select->else_value);
      for (size_t t = 0; t < a.size(); ++t)
        if (holds[t]) result[t] = *holds[t] ? a[t] : b[t];
    }
    return result;
  }

  void loads_of(const Expr& e) {
    if (const auto* load = e.as<Load>()) {
      for (const Expr& index : load->indices) loads_of(index);
      access(load->buffer, load->indices, load->predicate, load->dtype.lanes);
    } else if (const auto* select = e.as<Select>()) {
      loads_of(select->condition);
      const Values holds = values_of(select->condition);
      within(holds, true, [&] { loads_of(select->then_value); });
      within(holds, false, [&] { loads_of(select->else_value); });
    } else if (const auto* let = e.as<Let>()) {
      loads_of(let->value);
      known_[let->var.get()] = values_of(let->value);
      loads_of(let->body);
    } else {
      for_each_child(e, [&](const Expr& child) { loads_of(child); });
    }
  }

  void access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate, int lanes) {
    if (buffer->scope != Scope::global) return;
    const Values holds = predicate.is_defined() ? values_of(predicate) : Values();
    within(holds, true, [&] {
      const int64_t width = int64_t{buffer->dtype.bytes()} * buffer->dtype.lanes;
      const auto* ramp = indices[0].as<Ramp>();
      const Values first = values_of(ramp ? ramp->base : indices[0]);
      const Value step = lanes == 1 ? 1 : ramp ? values_of(ramp->stride)[0] : Value();
      const int64_t bytes = lanes * width, at_once = std::min(bytes, widest_access);
      const auto is_aligned = [&](const Value& at) { return !at || *at * width % at_once == 0; };
      const bool is_wide = step == 1 && bytes % at_once == 0 && buffer->alignment >= at_once &&
                           (at_once & (at_once - 1)) == 0 && std::ranges::all_of(first, is_aligned);
      const int64_t part = is_wide ? at_once : width;
      for (int64_t at = 0; at < bytes; at += part) {
        Values begin;
        for (size_t t = 0; t < begin.size(); ++t)
          if (first[t] && step) begin[t] = (*first[t] + at / width * *step) * width;
        request(begin, part);
      }
    });
  }

  void request(const Values& begin, int64_t bytes) {
    std::set<int64_t> sectors, asked;
    for (size_t t = 0; t < begin.size(); ++t) {
      if (!active_[t]) continue;
      if (!begin[t]) {
        ++found_.unknown;
        return;
      }
      for (int64_t at = *begin[t]; at < *begin[t] + bytes; ++at) {
        asked.insert(at);
        sectors.insert(at / sector_bytes);
      }
    }
    ++found_.requests;
    found_.sectors += std::ssize(sectors);
    found_.least_sectors += divide_up(std::ssize(asked), sector_bytes);
  }

  const TileCopies& tiles_;
  int64_t iteration_;
  MemoryRequests& found_;
  std::array<std::array<int64_t, threads_of_warp>, 3> index_;  // of its threads, along each axis of the block
  std::unordered_map<const void*, Values> known_;
  Threads active_;
};

}  // namespace

MemoryRequests requests_of(const Kernel& kernel) {
  MemoryRequests found;
  const Launch launch = launch_of(kernel);
  const TileCopies tiles = find_tile_copies(kernel.func);
  int64_t threads = 1;
  for (const Expr& extent : launch.block) threads *= as_int(extent).value_or(1);
  for (const int64_t next : {0, 1}) {
    const int64_t warp = threads > threads_of_warp ? next : 0;
    Warp(launch, tiles, warp, next, found).walk(kernel.func.body);
  }
  return found;
}

}  // namespace tw::cuda
