// Loads that a schedule knows to stream from memory are asked for ahead.
//
//   for k in 0..n attrs {prefetch_l1 = {B: 1024}} {           for k in 0..n {
//     Cr[0] = Cr[0] + a[k] * B[ramp(k * 16, 1, 16)]    ⇒      prefetch(B[k * 16 + 256], 3)
//   }                                                          Cr[0] = Cr[0] + a[k] * B[ramp(k * 16, 1, 16)]
//                                                            }
//
// One for each cache line that the loop's body reads of the buffer, to the first cache or, with prefetch_l2 or
// prefetch_l3, another.  Hardware prefetchers stop at the end of a page and keep fewer lines in flight than one core
// can wait for.
#include <algorithm>
#include <set>

#include "runtime/memory.h"
#include "runtime/rounding.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw {
namespace {

// By Cache; the intrinsic counts caches from the last.
constexpr const char* names[] = {"prefetch_l1", "prefetch_l2", "prefetch_l3"};

// Flat offsets, in elements, that the body reads of the buffer: one for each line as far as their distances are known.
std::vector<Expr> lines_read(const Stmt& body, const std::string& buffer, Buffer& found) {
  std::vector<Expr> offsets;
  std::set<int64_t> lines;                                         // relative to the first
  const auto is_own_loop = [](const For&) { return Walk::skip; };  // its offsets change within the body
  visit(body, is_own_loop, [&](const Load& l) {
    if (l.buffer->name != buffer || l.indices.size() != 1) return;
    found = l.buffer;
    const Expr offset = first_element(l.indices[0]);
    if (offset.dtype().lanes != 1) return;
    const auto distance = offsets.empty() ? 0 : as_int(simplify(offset - offsets[0]));
    if (!distance) return;
    const int64_t bytes = *distance * l.buffer->dtype.bytes(), width = l.dtype.lanes * l.buffer->dtype.bytes();
    const int64_t first = bytes >= 0 ? bytes / line_bytes : -divide_up(-bytes, line_bytes);
    for (int64_t line = first; line * line_bytes < bytes + width; ++line) {
      if (!lines.insert(line).second) continue;
      offsets.push_back(line == first ? offset : offset + (line - first) * line_bytes / l.buffer->dtype.bytes());
    }
  });
  return offsets;
}

bool only_asks(const Stmt& stmt) {
  bool asks = false, does_more = false;
  visit(stmt, [&](const Store&) { does_more = true; });
  visit(stmt, [&](const Evaluate& e) {
    const auto* asked = e.call.as<Call>();
    const bool is_prefetch = asked && asked->intrinsic == Intrinsic::prefetch;
    (is_prefetch ? asks : does_more) = true;
  });
  return asks && !does_more;
}

Stmt drop_idle_branches(const Stmt& stmt) {
  return rewrite_bottom_up(stmt, [](const If& choice) -> Stmt {
    if (!choice.else_body.is_defined() || !only_asks(choice.else_body)) return {};
    return make_stmt<If>(choice.condition, choice.then_body);
  });
}

Stmt ask_ahead(const Stmt& stmt) {
  return rewrite(stmt, [&](const For& loop) -> Stmt {
    std::vector<Stmt> statements;
    Attributes others;
    for (const auto& [key, value] : loop.attributes) {
      const auto* name = std::find(std::begin(names), std::end(names), key);
      const auto* asked = std::get_if<BufferBytes>(&value);
      if (name == std::end(names) || !asked) {
        others[key] = value;
        continue;
      }
      const Expr locality(std::end(names) - name);
      for (const auto& [read, bytes] : *asked) {
        Buffer buffer;
        for (const Expr& line : lines_read(loop.body, read, buffer)) {
          const Expr ahead = simplify(line + bytes / buffer->dtype.bytes());
          statements.push_back(make_stmt<Evaluate>(call(Intrinsic::prefetch, {load(buffer, {ahead}), locality})));
        }
      }
    }
    if (others.size() == loop.attributes.size()) return {};
    statements.push_back(ask_ahead(loop.body));
    return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, seq(std::move(statements)), loop.thread, others,
                          loop.span);
  });
}

}  // namespace

Expr first_element(const Expr& index) {
  if (const auto* ramp = index.as<Ramp>()) return ramp->base;
  const auto* tile = index.as<Call>();
  return tile && tile->intrinsic == Intrinsic::tile_at ? tile->arguments[0] : index;
}

const char* prefetch_attribute(Cache cache) {
  return names[static_cast<size_t>(cache)];
}

Func insert_prefetches(const Func& func) {
  Func result = func;
  result.body = drop_idle_branches(ask_ahead(func.body));
  return result;
}

}  // namespace tw
