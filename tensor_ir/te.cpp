#include "tensor_ir/te.h"

#include <algorithm>
#include <functional>
#include <set>

#include "tensor_ir/match.h"

namespace tw::te {
namespace {

// Names of iteration variables by position: readable in dumps, unique by identity.
std::string axis_name(const char* prefix, size_t index) {
  return prefix + std::to_string(index);
}

// Indices that stand for the real ones where only the dtype of a value is asked for.
Indices probe_of(const char* prefix, const std::vector<Expr>& extents) {
  Indices probe;
  for (size_t i = 0; i < extents.size(); ++i) probe.push_back(Var(axis_name(prefix, i)));
  return probe;
}

std::shared_ptr<const Stage> make_stage(
    const std::string& name, const std::vector<Tensor>& uses, const Buffer& output, const std::vector<Expr>& shape,
    const std::vector<Expr>& reduce_extents,
    const std::function<Stmt(const Indices&, const Indices&, Stmt& init)>& make_body, Attributes attributes = {}) {
  std::vector<IterVar> iters;
  std::vector<Var> loops;
  std::vector<Expr> extents;
  Indices spatial, reduce;
  auto add = [&](const char* loop_prefix, const char* iter_prefix, size_t i, const Expr& extent, IterKind kind,
                 Indices& out) {
    const Var loop(axis_name(loop_prefix, i)), iter(axis_name(iter_prefix, i));
    loops.push_back(loop), extents.push_back(extent), out.push_back(iter);
    iters.push_back({iter, extent, kind, loop});
  };
  for (size_t i = 0; i < shape.size(); ++i) add("i", "vi", i, shape[i], IterKind::spatial, spatial);
  for (size_t i = 0; i < reduce_extents.size(); ++i) add("r", "vr", i, reduce_extents[i], IterKind::reduce, reduce);
  Stmt init, body = make_body(spatial, reduce, init);
  Stmt nest = make_stmt<Block>(name, std::move(iters), Expr(), init, body, std::move(attributes));
  for (size_t i = loops.size(); i-- > 0;) nest = make_stmt<For>(loops[i], extents[i], LoopKind::serial, nest);
  auto stage = std::make_shared<Stage>();
  stage->name = name;
  stage->outputs = {output};
  stage->nest = nest;
  for (const Buffer& read : buffers_read(stage->nest)) {
    if (read == output) continue;
    const auto found = std::find_if(uses.begin(), uses.end(), [&](const Tensor& t) { return t.buffer() == read; });
    check(found != uses.end(), "te: every tensor that is loaded is listed in `uses`");
    stage->inputs.push_back(*found);
  }
  return stage;
}

Expr combine(Combiner combiner, const Expr& accumulator, const Expr& value) {
  switch (combiner) {
    case Combiner::sum:
      return accumulator + value;
    case Combiner::product:
      return accumulator * value;
    case Combiner::min:
      return value.dtype().is_float() ? call(Intrinsic::minimum, {accumulator, value}) : min(accumulator, value);
    case Combiner::max:
      return value.dtype().is_float() ? call(Intrinsic::maximum, {accumulator, value}) : max(accumulator, value);
    case Combiner::logical_and:
      return accumulator && value;
    case Combiner::logical_or:
      return accumulator || value;
  }
  internal_error("unknown combiner");
}

Expr identity_of(Combiner combiner, DType dtype) {
  switch (combiner) {
    case Combiner::sum:
      return zero_of(dtype);
    case Combiner::product:
      return const_of(dtype, 1);
    case Combiner::min:
      return highest_of(dtype);
    case Combiner::max:
      return lowest_of(dtype);
    case Combiner::logical_and:
      return bool_imm(true);
    case Combiner::logical_or:
      return bool_imm(false);
  }
  internal_error("unknown combiner");
}

}  // namespace

Tensor placeholder(std::string name, std::vector<Expr> shape, DType dtype) {
  return placeholder(Buffer(std::move(name), dtype, std::move(shape)));
}

Tensor placeholder(const Buffer& buffer) {
  return Tensor(buffer, nullptr);
}

Tensor compute(std::string name, std::vector<Expr> shape, const std::vector<Tensor>& uses,
               const std::function<Expr(const Indices&)>& value, Attributes attributes) {
  const Buffer output(name, value(probe_of("p", shape)).dtype(), shape);
  const auto body = [&](const Indices& s, const Indices&, Stmt&) { return store(output, s, value(s)); };
  return Tensor(output, make_stage(name, uses, output, shape, {}, body, std::move(attributes)));
}

Tensor reduce(std::string name, std::vector<Expr> shape, std::vector<Expr> reduce_extents, Combiner combiner,
              const std::vector<Tensor>& uses, const std::function<Expr(const Indices&, const Indices&)>& value) {
  const DType dtype = value(probe_of("p", shape), probe_of("q", reduce_extents)).dtype();
  // Of nothing: the loops would not run, nor the init in them.
  if (std::any_of(reduce_extents.begin(), reduce_extents.end(), [](const Expr& e) { return is_const_int(e, 0); })) {
    return compute(name, shape, {}, [&](const Indices&) { return identity_of(combiner, dtype); });
  }
  const Buffer output(name, dtype, shape);
  auto stage =
      make_stage(name, uses, output, shape, reduce_extents, [&](const Indices& s, const Indices& r, Stmt& init) {
        init = store(output, s, identity_of(combiner, dtype));
        return store(output, s, combine(combiner, load(output, s), value(s, r)));
      });
  return Tensor(output, stage);
}

std::vector<Tensor> opaque(std::string name, const std::vector<Tensor>& inputs,
                           const std::vector<std::pair<DType, std::vector<Expr>>>& outputs,
                           const std::function<Stmt(const std::vector<Buffer>&)>& body) {
  auto stage = std::make_shared<Stage>();
  stage->name = name;
  stage->inputs = inputs;
  stage->is_opaque = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    stage->outputs.emplace_back(outputs.size() == 1 ? name : name + "_" + std::to_string(i), outputs[i].first,
                                outputs[i].second);
  }
  stage->nest = body(stage->outputs);
  std::vector<Tensor> result;
  for (const Buffer& buffer : stage->outputs) result.emplace_back(buffer, stage);
  return result;
}

Func make_func(std::string name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
               std::vector<Var> parameters) {
  Func func;
  func.name = std::move(name);
  func.parameters = std::move(parameters);
  func.output_count = static_cast<int>(outputs.size());
  std::set<std::string> names, block_names;
  auto unique = [](const std::string& wanted, std::set<std::string>& names) {
    std::string candidate = wanted;
    for (int n = 1; !names.insert(candidate).second; ++n) candidate = wanted + "_" + std::to_string(n);
    return candidate;
  };

  // Stages in order of need.
  std::vector<std::shared_ptr<const Stage>> order;
  std::set<const Stage*> seen;
  std::function<void(const Tensor&)> need = [&](const Tensor& tensor) {
    if (!tensor.stage() || !seen.insert(tensor.stage().get()).second) return;
    for (const Tensor& input : tensor.stage()->inputs) need(input);
    order.push_back(tensor.stage());
  };
  // Outputs that are placeholders, or the same tensor twice, are copied.
  std::vector<Tensor> finals;
  for (const Tensor& output : outputs) {
    const bool is_repeated =
        std::any_of(finals.begin(), finals.end(), [&](const Tensor& t) { return t.buffer() == output.buffer(); });
    if (output.stage() && !is_repeated) {
      finals.push_back(output);
    } else {
      finals.push_back(compute(output.buffer()->name + "_copy", output.shape(), {output},
                               [&](const Indices& s) { return output(s); }));
    }
    need(finals.back());
  }

  for (const Tensor& input : inputs) func.buffers.push_back(input.buffer()), names.insert(input.buffer()->name);
  for (const Tensor& output : finals) func.buffers.push_back(output.buffer());

  std::vector<Stmt> statements;
  std::vector<Buffer> temporaries;
  for (const auto& stage : order) {
    for (const Buffer& buffer : stage->outputs) {
      if (!func.is_parameter(buffer)) temporaries.push_back(buffer);
    }
    // A stage may be instantiated in several Funcs: its loops and iteration variables are new in each.
    Stmt nest = with_fresh_names(stage->nest);
    nest = rewrite(nest, [&](const Block& block) -> Stmt {
      return make_stmt<Block>(unique(block.name, block_names), block.iters, block.predicate, block.init, block.body,
                              block.attributes, block.span);
    });
    statements.push_back(nest);
  }
  func.body = seq(std::move(statements));

  // Names of buffers are unique in a Func.
  std::vector<Buffer*> to_name;
  for (size_t i = inputs.size(); i < func.buffers.size(); ++i) to_name.push_back(&func.buffers[i]);
  for (Buffer& buffer : temporaries) to_name.push_back(&buffer);
  for (Buffer* buffer : to_name) {
    const std::string wanted = unique((*buffer)->name, names);
    if (wanted == (*buffer)->name) continue;
    BufferNode renamed = *buffer->get();
    renamed.name = wanted;
    const Buffer fresh{std::move(renamed)};
    func.body = replace_buffer(func.body, *buffer, fresh);
    *buffer = fresh;
  }
  for (size_t i = temporaries.size(); i-- > 0;) func.body = make_stmt<Allocate>(temporaries[i], func.body);
  return func;
}

std::vector<Tensor> inlined(const Func& func, const std::vector<Tensor>& inputs, const Substitution& parameters) {
  std::vector<std::pair<Buffer, Tensor>> known;  // of the Func's buffers
  const size_t reads = func.buffers.size() - static_cast<size_t>(func.output_count);
  check(inputs.size() == reads, "te: a Func is inlined on as many tensors as it reads");
  for (size_t i = 0; i < reads; ++i) known.emplace_back(func.buffers[i], inputs[i]);
  const auto find = [&](const Buffer& buffer) {
    return std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == buffer; });
  };
  const auto add_stage = [&](Stmt nest) {
    auto stage = std::make_shared<Stage>();
    nest = substitute(nest, parameters);
    const std::vector<Buffer> written = buffers_written(nest), read = buffers_read(nest);
    for (const Buffer& buffer : read) {
      if (std::find(written.begin(), written.end(), buffer) != written.end()) continue;
      const auto from = find(buffer);
      check(from != known.end(), "te: a Func that is inlined writes what it reads before");
      stage->inputs.push_back(from->second);
      nest = replace_buffer(nest, buffer, from->second.buffer());
    }
    for (const Buffer& buffer : written) {
      check(find(buffer) == known.end(), "te: a Func that is inlined writes each buffer in one place");
      std::vector<Expr> shape;
      for (const Expr& extent : buffer->shape) shape.push_back(substitute(extent, parameters));
      stage->outputs.emplace_back(buffer->name, buffer->dtype, std::move(shape));
      nest = replace_buffer(nest, buffer, stage->outputs.back());
    }
    visit(nest, [&](const Block& block) { stage->name = block.name; });
    stage->nest = nest;
    for (size_t i = 0; i < written.size(); ++i) known.emplace_back(written[i], Tensor(stage->outputs[i], stage));
  };
  const std::function<void(const Stmt&)> add = [&](const Stmt& s) {
    if (const auto* allocate = s.as<Allocate>()) return add(allocate->body);
    if (const auto* sequence = s.as<Seq>()) {
      for (const Stmt& each : sequence->statements) add(each);
      return;
    }
    add_stage(s);
  };
  add(func.body);
  std::vector<Tensor> outputs;
  for (size_t i = reads; i < func.buffers.size(); ++i) {
    const auto made = find(func.buffers[i]);
    check(made != known.end(), "te: a Func that is inlined writes its outputs");
    outputs.push_back(made->second);
  }
  return outputs;
}

}  // namespace tw::te
