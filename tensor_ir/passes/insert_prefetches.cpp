// Loads that a schedule knows to stream from memory are asked for ahead.
//
//   for k in 0..n attrs {prefetch = "B", prefetch_bytes = 1024} {       for k in 0..n {
//     Cr[0] = Cr[0] + a[k] * B[ramp(k * 16, 1, 16)]                ⇒      prefetch(B[k * 16 + 256], 3)
//   }                                                                     Cr[0] = Cr[0] + a[k] * B[ramp(k * 16, 1, 16)]
//                                                                       }
//
// One for each cache line that the loop's body reads of the buffer.  Hardware prefetchers stop at the end of a page and
// keep fewer lines in flight than one core can wait for.
#include <algorithm>
#include <set>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw {
namespace {

constexpr int64_t line_bytes = 64;
constexpr int64_t near_bytes = 16 << 10;  // half of a small first cache: what comes later waits in the second

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
    const int64_t first = bytes >= 0 ? bytes / line_bytes : -((-bytes + line_bytes - 1) / line_bytes);
    for (int64_t line = first; line * line_bytes < bytes + width; ++line) {
      if (!lines.insert(line).second) continue;
      offsets.push_back(line == first ? offset : offset + (line - first) * line_bytes / l.buffer->dtype.bytes());
    }
  });
  return offsets;
}

}  // namespace

Expr first_element(const Expr& index) {
  if (const auto* ramp = index.as<Ramp>()) return ramp->base;
  const auto* tile = index.as<Call>();
  return tile && tile->intrinsic == Intrinsic::tile_at ? tile->arguments[0] : index;
}

Func insert_prefetches(const Func& func) {
  Func result = func;
  result.body = rewrite(func.body, [&](const For& loop) -> Stmt {
    const auto name = loop.attributes.find(prefetch_attribute),
               distance = loop.attributes.find(prefetch_bytes_attribute);
    if (name == loop.attributes.end() || distance == loop.attributes.end()) return {};
    const auto* buffer_name = std::get_if<std::string>(&name->second);
    const auto* bytes = std::get_if<int64_t>(&distance->second);
    if (!buffer_name || !bytes) return {};
    Buffer buffer;
    std::vector<Stmt> statements;
    const std::vector<Expr> lines = lines_read(loop.body, *buffer_name, buffer);
    for (const Expr& line : lines) {
      const Expr ahead = simplify(line + *bytes / buffer->dtype.bytes());
      const int locality = *bytes <= near_bytes ? 3 : 2;
      statements.push_back(make_stmt<Evaluate>(call(Intrinsic::prefetch, {load(buffer, {ahead}), Expr(locality)})));
    }
    statements.push_back(loop.body);
    Attributes attributes = loop.attributes;
    attributes.erase(prefetch_attribute);
    attributes.erase(prefetch_bytes_attribute);
    return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, seq(std::move(statements)), loop.thread, attributes,
                          loop.span);
  });
  return result;
}

}  // namespace tw
