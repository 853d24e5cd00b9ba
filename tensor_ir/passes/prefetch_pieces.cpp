// A buffer that is read in pieces, each by several tiles: while they use one, the next one comes to the second cache.
//
//   for t in 0..8 attrs {prefetch_parts = 4} {           for t in 0..8 {
//     for k in 0..64 attrs {prefetch_next = {B: 8192}} {    for k in 0..64 {
//       … B[t // 4 * 2048 + k * 32] …                ⇒       prefetch(B[t // 4 * 2048 + … + k * 8], 2)
//
// The last tile, which gets code of its own afterwards, asks for its part too.  Where the number of tiles is open,
// 0..(n + 7) // 8, the size of a part and how many lines a step asks for are computed in the run, and nothing is asked
// for where there are fewer tiles than `prefetch_parts`: a piece that is used once comes as fast as its neighbours do.
#include <algorithm>
#include <optional>

#include "runtime/memory.h"
#include "runtime/rounding.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw {
namespace {

// The number that these loops count together, and how many there are.
struct Position {
  Expr number = Expr(0), count = Expr(1);

  void add(const Expr& digit, const Expr& extent) {
    number = number * extent + digit;
    count = simplify(count * extent);
  }
};

Expr ceil_div(const Expr& a, const Expr& b) {
  return floor_div(a + b - 1, b);
}

// The loops with `prefetch_parts` count the parts, those from there to the one with "prefetch_next" the steps of a
// part.
class Pieces {
 public:
  Stmt run(const Stmt& s) {
    return rewrite(s, [&](const For& loop) -> Stmt {
      const Position parts = parts_, steps = steps_;
      const Expr is_worth = is_worth_;
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
        steps_ = {}, inner_.clear();
        if (as_int(loop.extent)) {
          parts_.add(floor_mod(loop.var, Expr(*count)), Expr(*count));
        } else {
          parts_.add(loop.var, loop.extent);
          const Expr is_worth_here = loop.extent >= *count;
          is_worth_ = is_worth_.is_defined() ? is_worth_ && is_worth_here : is_worth_here;
        }
      } else {
        steps_.add(loop.var, as_int(loop.extent) ? loop.extent : Expr(1));
        inner_.push_back(loop.var);
      }
      Stmt body = run(loop.body);
      for (const auto& [name, bytes] : next) body = ask_ahead(loop, name, bytes, body);
      parts_ = parts, steps_ = steps, is_worth_ = is_worth;
      inner_.resize(std::min(open, inner_.size()));
      return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, body, loop.thread, others, loop.span);
    });
  }

 private:
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
    const int64_t size = buffer->dtype.bytes(), of_line = line_bytes / size;
    const Expr next = substitute(first, start) + bytes / size, steps = steps_.count;
    const auto ask = [&](const Expr& element) {
      return make_stmt<Evaluate>(call(Intrinsic::prefetch, {load(buffer, {simplify(element)}), Expr(2)}));
    };
    if (is_worth_.is_defined()) {
      const Expr part = ceil_div(Expr(bytes / size), parts_.count);
      const Expr lines = select(is_worth_, ceil_div(part, steps * of_line), Expr(0));
      const Expr at = next + parts_.number * part + floor_div(steps_.number * part, steps);
      const Var line("line");
      return seq({make_stmt<For>(line, simplify(lines), LoopKind::serial, ask(at + line * of_line)), body});
    }
    const int64_t part = divide_up(bytes, *as_int(parts_.count));
    int64_t step = divide_up(part, *as_int(steps));
    step = step > line_bytes ? round_up(step, line_bytes) : round_up(step, size);
    const Expr at = next + parts_.number * (part / size) + steps_.number * (step / size);
    std::vector<Stmt> asked;
    for (int64_t line = 0; line < step; line += line_bytes) asked.push_back(ask(at + line / size));
    return seq({seq(std::move(asked)), body});
  }

  Position parts_, steps_;
  Expr is_worth_;           // where the number of parts is open: that there are enough of them
  std::vector<Var> inner_;  // of the steps
};

}  // namespace

Func prefetch_pieces(const Func& func) {
  Func result = func;
  result.body = Pieces().run(func.body);
  return result;
}

}  // namespace tw
