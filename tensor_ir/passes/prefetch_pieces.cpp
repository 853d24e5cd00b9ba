// A buffer that is read in pieces, each by several tiles: while they use one, the next one comes to the second cache.
//
//   for t in 0..8 attrs {prefetch_parts = 4} {           for t in 0..8 {
//     for k in 0..64 attrs {prefetch_next = {B: 8192}} {    for k in 0..64 {
//       … B[t // 4 * 2048 + k * 32] …                ⇒       prefetch(B[t // 4 * 2048 + … + k * 8], 2)
//
// While loops over tiles are whole: the last tile, which gets code of its own afterwards, asks for its part too; but
// not where the number of tiles is open, 0..(n + 7) // 8, and it may be the only one: a piece that is used once comes
// as fast as its neighbours do, without being asked for.
#include <algorithm>
#include <optional>

#include "runtime/memory.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw {
namespace {

// The number that these loops count together, and how many there are.
struct Position {
  Expr number = Expr(0);
  int64_t count = 1;

  void add(const Expr& digit, int64_t extent) {
    number = number * extent + digit;
    count *= extent;
  }
};

// The loops with `prefetch_parts` count the parts, those from there to the one with "prefetch_next" the steps of a
// part.
class Pieces {
 public:
  Stmt run(const Stmt& s) {
    return rewrite(s, [&](const For& loop) -> Stmt {
      const Position parts = parts_, steps = steps_;
      const Expr is_whole = is_whole_;
      const size_t open = inner_.size();
      std::optional<int64_t> count;
      BufferBytes next;
      Attributes others;
      for (const auto& [key, value] : loop.attributes) {
        const auto* number = std::get_if<int64_t>(&value);
        const auto* pieces = std::get_if<BufferBytes>(&value);
        if (number && key == prefetch_parts_attribute) {
          count = *number;
        } else if (pieces && key == prefetch_next_attribute) {
          next = *pieces;
        } else {
          others[key] = value;
        }
      }
      if (count) {
        parts_.add(floor_mod(loop.var, Expr(*count)), *count);
        steps_ = {}, inner_.clear();
        if (const Expr whole = is_whole_tile(loop); whole.is_defined())
          is_whole_ = is_whole_.is_defined() ? is_whole_ && whole : whole;
      } else {
        steps_.add(loop.var, as_int(loop.extent).value_or(1));
        inner_.push_back(loop.var);
      }
      Stmt body = run(loop.body);
      for (const auto& [name, bytes] : next) body = ask_ahead(loop, name, bytes, body);
      parts_ = parts, steps_ = steps, is_whole_ = is_whole;
      inner_.resize(std::min(open, inner_.size()));
      return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, body, loop.thread, others, loop.span);
    });
  }

 private:
  // Of an open number of tiles, (n + 7) // 8: whether this one is surely no rest, t * 8 < n - 7.
  static Expr is_whole_tile(const For& loop) {
    const auto* tiles = loop.extent.as<Binary>();
    const auto size = tiles && tiles->op == BinaryOp::floor_div ? as_int(tiles->b) : std::nullopt;
    return size ? simplify(loop.var * *size < tiles->a - 2 * (*size - 1)) : Expr();
  }

  // `bytes`: of a piece of the buffer.
  Stmt ask_ahead(const For& loop, const std::string& name, int64_t bytes, const Stmt& body) const {
    Buffer buffer;
    Expr first;
    Substitution start;
    for (const Var& v : inner_) start[v] = Expr(0);
    visit(
        loop.body, [&](const For& own) { start[own.var] = Expr(0); },
        [&](const Load& l) {
          if (first.is_defined() || l.buffer->name != name || l.indices.size() != 1) return;
          first = first_element(l.indices[0]), buffer = l.buffer;
        });
    if (!first.is_defined() || first.dtype().lanes != 1) return body;
    const int64_t size = buffer->dtype.bytes();
    const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const int64_t part = divide_up(bytes, parts_.count);
    int64_t step = divide_up(part, steps_.count);
    step = step > line_bytes ? divide_up(step, line_bytes) * line_bytes : divide_up(step, size) * size;
    const Expr at =
        substitute(first, start) + bytes / size + parts_.number * (part / size) + steps_.number * (step / size);
    std::vector<Stmt> asked;
    for (int64_t line = 0; line < step; line += line_bytes) {
      const Expr address = simplify(at + line / size);
      asked.push_back(make_stmt<Evaluate>(call(Intrinsic::prefetch, {load(buffer, {address}), Expr(2)})));
    }
    Stmt all = seq(std::move(asked));
    if (is_whole_.is_defined()) all = make_stmt<If>(is_whole_, all);
    return seq({all, body});
  }

  Position parts_, steps_;
  Expr is_whole_;           // that there is something to ask for, where it is open
  std::vector<Var> inner_;  // of the steps
};

}  // namespace

Func prefetch_pieces(const Func& func) {
  Func result = func;
  result.body = Pieces().run(func.body);
  return result;
}

}  // namespace tw
