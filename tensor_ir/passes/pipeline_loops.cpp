// Loops with the attribute `pipeline` copy ahead: what an iteration needs is on its way while earlier ones compute.
//
//   for k in 0..n attrs {pipeline = 2} {        alloc S: f32[2, 16] in shared
//     alloc S: f32[16] in shared                for j in 0..16 { S[0, j] = A[0, j] }
//     for j in 0..16 { S[j] = A[k, j] }    ⇒    for k in 0..n {
//     … S[j] …                                    if (k + 1 < n) { for j in 0..16 { S[(k + 1) % 2, j] = A[k + 1, j] } }
//   }                                             … S[k % 2, j] …
//                                               }
//
// Within a launch of a GPU, copies into memory that threads share are on their way while the threads go on
// (begin_copies in intrinsics.def): those of an iteration are one group, and an iteration waits for its own.
//
// With s stages a staged buffer has s versions, and iteration k uses version k mod s.  The copies for iteration
// k + s - 1 overwrite what iteration k - 1 used, which has ended.
//
// Where products are made while the threads go on (wgmma_bf16 in intrinsics.def), those of an iteration begin before
// those of the last one have ended, so that the machine is never without: then copies go s - 2 iterations ahead, and
// overwrite what iteration k - 2 used, for whose products each thread has waited before the barrier of iteration k.
//
// With the attribute `copying_warp` iteration k of the loop's run t uses version (t n + k) mod s.
#include <algorithm>
#include <set>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/pipeline.h"
#include "tensor_ir/passes/redirect.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

bool overlap(const std::vector<Buffer>& a, const std::set<Buffer>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Buffer& buffer) { return b.count(buffer) > 0; });
}

// Registers are told apart by constant indices, fragments by no indices at all.
bool can_have_versions(const Buffer& buffer) {
  return buffer->scope != Scope::register_ && buffer->scope != Scope::fragment;
}

}  // namespace

PipelineParts pipeline_parts(const For& loop) {
  PipelineParts parts;
  auto fail = [&](const std::string& problem, const std::string& help) {
    parts.problem = problem, parts.help = help;
    return parts;
  };
  const std::string name = "`" + loop.var.name() + "`";
  if (loop.loop_kind != LoopKind::serial && loop.loop_kind != LoopKind::unrolled)
    return fail("the iterations of loop " + name + " do not run one after the other", "pipeline a serial loop");

  std::vector<Buffer> own;
  Stmt body = loop.body;
  for (; body.as<Allocate>(); body = body.as<Allocate>()->body) own.push_back(body.as<Allocate>()->buffer);
  const std::vector<Stmt> statements = body.as<Seq>() ? body.as<Seq>()->statements : std::vector<Stmt>{body};
  const std::vector<Buffer> written = buffers_written(body);
  const std::set<Buffer> all_written(written.begin(), written.end());

  std::set<Buffer> staged, used_before;
  std::string why_not;
  for (const Stmt& s : statements) {
    const std::vector<Buffer> reads = buffers_read(s), writes = buffers_written(s);
    bool has_effects = false;
    visit(s, [&](const Evaluate&) { has_effects = true; });
    const bool fills_own = !writes.empty() && !reads.empty() && !overlap(writes, used_before) &&
                           std::all_of(writes.begin(), writes.end(), [&](const Buffer& buffer) {
                             return std::find(own.begin(), own.end(), buffer) != own.end() && can_have_versions(buffer);
                           });
    const auto conflict =
        std::find_if(reads.begin(), reads.end(), [&](const Buffer& buffer) { return all_written.count(buffer) > 0; });
    if (fills_own && !has_effects && conflict == reads.end()) {
      parts.copies.push_back(s);
      staged.insert(writes.begin(), writes.end());
      continue;
    }
    if (fills_own && conflict != reads.end() && why_not.empty())
      why_not = ": what fills `" + writes[0]->name + "` reads `" + (*conflict)->name + "`, which the loop writes";
    parts.rest.push_back(s);
    used_before.insert(reads.begin(), reads.end());
    used_before.insert(writes.begin(), writes.end());
  }
  if (parts.copies.empty()) {
    return fail("no statement of loop " + name + " copies into memory of the loop's own" + why_not,
                "cache_read into stack or shared memory and compute_at(copy, " + loop.var.name() +
                    ") make such copies; registers cannot be chosen by an iteration's number");
  }
  if (parts.rest.empty())
    return fail("nothing in loop " + name + " computes after the copies", "move their consumer into the loop");
  for (const Buffer& buffer : own) (staged.count(buffer) ? parts.staged : parts.others).push_back(buffer);
  return parts;
}

namespace {

Buffer with_versions(const Buffer& buffer, int64_t stages) {
  BufferNode node = *buffer.get();
  if (!node.strides.empty()) {
    Expr elements = 1;
    for (size_t d = 0; d < node.shape.size(); ++d) elements = elements + (node.shape[d] - 1) * node.strides[d];
    node.strides.insert(node.strides.begin(), elements);
  }
  node.shape.insert(node.shape.begin(), Expr(stages));
  return Buffer(std::move(node));
}

Stmt use_version(const Stmt& s, const Buffer& from, const Buffer& to, const Expr& version) {
  return redirect_accesses(s, from, to, [&](const std::vector<Expr>& indices) {
    std::vector<Expr> result{version};
    result.insert(result.end(), indices.begin(), indices.end());
    return result;
  });
}

// Where the loop stands.
struct Around {
  bool in_launch = false;  // threads that a loop around it is bound to run it
  Expr runs = 0;           // how often a thread has run it before
};

Stmt pipeline(const For& loop, int64_t stages, const Around& around) {
  const PipelineParts parts = pipeline_parts(loop);
  if (!parts.problem.empty())
    throw Error(ErrorCode::lower, "error[pipeline_loops]: " + parts.problem + "\n  help: " + parts.help);
  std::vector<Buffer> versions;
  for (const Buffer& buffer : parts.staged) versions.push_back(with_versions(buffer, stages));
  auto of_iteration = [&](const std::vector<Stmt>& statements, const Expr& iteration, const Expr& version) {
    Stmt result = fold_substitute(seq(statements), {{loop.var, iteration}});
    for (size_t i = 0; i < versions.size(); ++i) result = use_version(result, parts.staged[i], versions[i], version);
    return result;
  };
  const DType dtype = loop.var.dtype();

  const bool is_asynchronous =
      around.in_launch && std::all_of(parts.staged.begin(), parts.staged.end(),
                                      [](const Buffer& buffer) { return buffer->scope == Scope::shared; });
  auto effect = [](Intrinsic intrinsic, std::vector<Expr> arguments = {}) {
    return make_stmt<Evaluate>(call(intrinsic, std::move(arguments)));
  };
  // The copies for an iteration, where there is one.
  auto copies_for = [&](const Expr& iteration, const Expr& version) {
    Stmt copies = with_fresh_names(of_iteration(parts.copies, iteration, version));
    if (is_asynchronous) copies = seq({effect(Intrinsic::begin_copies), copies});
    const Expr exists = iteration < loop.extent;
    if (!is_const_int(exists, 1)) copies = make_stmt<If>(exists, copies);
    return is_asynchronous ? seq({copies, effect(Intrinsic::commit_copies)}) : copies;
  };

  const bool has_products = is_asynchronous && multiplies_asynchronously(seq(parts.rest));
  const int64_t left = has_products && stages > 2 ? 1 : 0;  // iterations whose products go on when one ends
  const int64_t distance = stages - 1 - left;
  const Expr earlier =
      loop.attributes.count(copying_warp_attribute) ? cast(dtype, around.runs) * loop.extent : int_imm(dtype, 0);
  auto version_of = [&](const Expr& iteration) {
    return simplify(cast(i64, floor_mod(earlier + iteration, int_imm(dtype, stages))));
  };
  std::vector<Stmt> all;
  for (int64_t p = 0; p < distance; ++p) {
    const Expr iteration = int_imm(dtype, p);
    all.push_back(copies_for(iteration, version_of(iteration)));
  }
  const Expr ahead = loop.var + int_imm(dtype, distance);
  const Stmt copies = copies_for(ahead, version_of(ahead));
  const Stmt rest = of_iteration(parts.rest, loop.var, version_of(loop.var));
  Stmt body = seq({copies, rest});
  if (is_asynchronous) {
    // Of the groups that are on their way the first is this iteration's.
    const Stmt wait = effect(Intrinsic::wait_copies, {Expr(distance - 1)});
    const Stmt end_products = effect(Intrinsic::wait_products, {Expr(left)}), barrier = effect(Intrinsic::barrier);
    if (!has_products)
      body = seq({wait, body});
    else if (left == 0)  // what is overwritten is what the last products read
      body = seq({wait, end_products, barrier, rest, copies});
    else
      body = seq({wait, barrier, rest, copies, end_products});
  }
  for (size_t i = parts.others.size(); i-- > 0;) body = make_stmt<Allocate>(parts.others[i], body);
  Attributes attributes = loop.attributes;
  attributes.erase(pipeline_attribute);
  all.push_back(make_stmt<For>(loop.var, loop.extent, loop.loop_kind, body, loop.thread, attributes, loop.span));
  Stmt result = seq(std::move(all));
  for (size_t i = versions.size(); i-- > 0;) result = make_stmt<Allocate>(versions[i], result);
  return result;
}

// Outer loops first: what an inner loop stages is not the outer one's.
Stmt with_pipelines(const Stmt& s, const Around& around) {
  const auto* loop = s.as<For>();
  if (loop && loop->attributes.count(pipeline_attribute)) {
    const auto* stages = std::get_if<int64_t>(&loop->attributes.at(pipeline_attribute));
    if (!stages || *stages < 2 || *stages > most_pipeline_stages) {
      throw Error(ErrorCode::lower, "error[pipeline_loops]: the attribute `pipeline` of loop `" + loop->var.name() +
                                        "` is no number of stages\n  help: it is an integer from 2 to " +
                                        std::to_string(most_pipeline_stages));
    }
    return with_pipelines(pipeline(*loop, *stages, around), around);
  }
  Around inner = around;
  if (loop && loop->loop_kind == LoopKind::thread)
    inner.in_launch = true;
  else if (loop)
    inner.runs = around.runs * loop->extent + cast(i64, loop->var);
  return map_children(
      s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return with_pipelines(child, inner); });
}

}  // namespace

Func pipeline_loops(const Func& f) {
  Func result = f;
  result.body = with_pipelines(f.body, {});
  return result;
}

}  // namespace tw
