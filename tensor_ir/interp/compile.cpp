// A Func to the oracle's instructions.
#include <algorithm>
#include <bit>

#include "tensor_ir/interp/machine.h"
#include "tensor_ir/match.h"
#include "tensor_ir/type_rules.h"

namespace tw::interp {
namespace {

std::optional<Control> control_of(Intrinsic effect) {
  switch (effect) {
    case Intrinsic::barrier:
      return Control::barrier;
    case Intrinsic::warp_barrier:
      return Control::warp_barrier;
    case Intrinsic::begin_copies:
      return Control::begin_copies;
    case Intrinsic::commit_copies:
      return Control::commit_copies;
    case Intrinsic::wait_copies:
      return Control::wait_copies;
    case Intrinsic::wait_products:
      return Control::wait_products;
    default:
      return std::nullopt;
  }
}

class Compiler {
 public:
  Program run(const Func& f) {
    program_.name = f.name;
    for (const Buffer& buffer : f.buffers) buffers_[buffer.get()] = program_.buffers++;
    for (const Var& parameter : f.parameters) {
      program_.parameters.push_back(bind(parameter));
    }
    statement(f.body);
    emit(Control::end);
    program_.slots = highest_;
    return std::move(program_);
  }

 private:
  int32_t reserve(int lanes) {
    const int32_t slot = next_;
    next_ += lanes;
    highest_ = std::max(highest_, next_);
    return slot;
  }

  int32_t bind(const Var& var) {
    const int32_t slot = reserve(var.dtype().lanes);
    variables_[var.get()] = slot;
    return slot;
  }

  Instr& emit(Handler handler) {
    program_.code.emplace_back();
    program_.code.back().run = handler;
    program_.statements.push_back(current_);
    return program_.code.back();
  }
  Instr& emit(Control control) { return emit(control_handler(control)); }
  int32_t here() const { return static_cast<int32_t>(program_.code.size()); }
  int32_t constant(Slot value, int lanes) {
    const std::pair key{value.i, lanes};
    const auto found = constants_.find(key);
    if (found != constants_.end()) return found->second;
    program_.constants.insert(program_.constants.end(), static_cast<size_t>(lanes), value);
    return constants_[key] = -static_cast<int32_t>(program_.constants.size());
  }

  // The slot of the value.  Shared subtrees are computed once in a statement: nothing changes while it is evaluated.
  int32_t value(const Expr& e) {
    switch (e.kind()) {
      case NodeKind::IntImm:
        return constant(Slot{.i = e.as<IntImm>()->value}, 1);
      case NodeKind::FloatImm:
        return constant(Slot{.f = e.as<FloatImm>()->value}, 1);
      case NodeKind::Var: {
        const auto found = variables_.find(e.get());
        if (found == variables_.end()) {
          throw Error(ErrorCode::verify,
                      "variable `" + e.as<VarNode>()->name +
                          "` is used where nothing binds it\n  help: bind it by a loop, a let or a parameter");
        }
        return found->second;
      }
      default:
        break;
    }
    if (const auto found = computed_.find(e.get()); found != computed_.end()) return found->second;
    const int32_t slot = compute(e);
    computed_[e.get()] = slot;
    return slot;
  }

  int32_t compute(const Expr& e) {
    const DType dtype = e.dtype();
    auto finish = [&](Instr& in, DType operands, int lanes) {
      in.dtype = dtype.element();
      in.from = operands.element();
      in.lanes = lanes;
      in.dst = reserve(dtype.lanes);
      return in.dst;
    };
    switch (e.kind()) {
      case NodeKind::Unary: {
        const auto* node = e.as<Unary>();
        const int32_t a = value(node->a);
        Instr& in = emit(unary_handler(node->op, dtype));
        in.a = a;
        in.target = static_cast<int>(node->op);
        return finish(in, dtype, dtype.lanes);
      }
      case NodeKind::Binary: {
        const auto* node = e.as<Binary>();
        const int32_t a = value(node->a), b = value(node->b);
        Instr& in = emit(binary_handler(node->op, node->a.dtype()));
        in.a = a;
        in.b = b;
        in.target = static_cast<int>(node->op);
        return finish(in, node->a.dtype(), dtype.lanes);
      }
      case NodeKind::Cast: {
        const auto* node = e.as<Cast>();
        const int32_t a = value(node->value);
        Instr& in = emit(cast_handler(node->value.dtype(), dtype));
        in.a = a;
        return finish(in, node->value.dtype(), dtype.lanes);
      }
      case NodeKind::Select: {
        const auto* node = e.as<Select>();
        const int32_t a = value(node->condition), b = value(node->then_value), c = value(node->else_value);
        Instr& in = emit(Control::select);
        in.a = a, in.b = b, in.c = c;
        in.target = node->condition.dtype().lanes > 1;
        return finish(in, dtype, dtype.lanes);
      }
      case NodeKind::Ramp: {
        const auto* node = e.as<Ramp>();
        const int32_t a = value(node->base), b = value(node->stride);
        Instr& in = emit(Control::ramp);
        in.a = a, in.b = b;
        in.target = node->base.dtype().lanes;
        return finish(in, dtype, dtype.lanes);
      }
      case NodeKind::Broadcast: {
        const auto* node = e.as<Broadcast>();
        if (const auto* imm = node->value.as<IntImm>()) return constant(Slot{.i = imm->value}, dtype.lanes);
        if (const auto* imm = node->value.as<FloatImm>()) return constant(Slot{.f = imm->value}, dtype.lanes);
        const int32_t a = value(node->value);
        Instr& in = emit(Control::broadcast);
        in.a = a;
        in.target = node->value.dtype().lanes;
        return finish(in, dtype, dtype.lanes);
      }
      case NodeKind::VectorReduce: {
        const auto* node = e.as<VectorReduce>();
        check(dtype.lanes == 1, "interpret: a VectorReduce to a scalar");
        const int32_t a = value(node->value);
        Instr& in = emit(reduce_handler());
        in.a = a;
        in.target = static_cast<int>(node->op);
        return finish(in, node->value.dtype(), node->value.dtype().lanes);
      }
      case NodeKind::Let: {
        const auto* node = e.as<Let>();
        const int32_t bound = value(node->value);
        if (variables_.contains(node->var.get())) forget_values();  // the same variable, perhaps with another value
        variables_[node->var.get()] = bound;
        return value(node->body);
      }
      case NodeKind::Call:
        return call(*e.as<Call>());
      case NodeKind::Load: {
        const auto* node = e.as<Load>();
        const int plan = access(node->buffer, node->indices, node->predicate, dtype.lanes);
        Instr& in = emit(load_handler(node->buffer->dtype.element()));
        in.target = plan;
        return finish(in, dtype, dtype.lanes);
      }
      default:
        internal_error("interpret: an expression");
    }
  }

  int32_t call(const Call& node) {
    if (node.intrinsic == Intrinsic::word_at) {
      const auto* first = node.arguments[0].as<Load>();
      const int plan = access(first->buffer, first->indices, first->predicate, first->dtype.lanes);
      program_.accesses[plan].word_elements = node.dtype.bits / first->dtype.bits;
      Instr& in = emit(word_handler());
      in.target = plan;
      in.dtype = node.dtype.element(), in.lanes = node.dtype.lanes;
      return in.dst = reserve(node.dtype.lanes);
    }
    std::vector<int32_t> arguments;
    for (const Expr& argument : node.arguments) arguments.push_back(value(argument));
    const DType from = node.arguments.empty() ? node.dtype : node.arguments[0].dtype();
    const IntrinsicKind kind = kind_of(node.intrinsic);
    if (kind == IntrinsicKind::tile || kind == IntrinsicKind::matrix || kind == IntrinsicKind::fragment) {
      const auto sizes = tile_sizes(node.dtype, node.arguments[1].dtype(), node.arguments[2].dtype());
      if (!sizes) throw Error(ErrorCode::verify, "a product of tiles whose sizes do not fit\n  help: verify the Func");
      Instr& in = emit(call_handler(node.intrinsic, from, node.dtype));
      in.a = arguments[0], in.b = arguments[1], in.c = arguments[2];
      in.dtype = node.dtype, in.from = u32.with_lanes(sizes->n);
      in.lanes = sizes->k, in.target = static_cast<int>(node.intrinsic);
      return in.dst = reserve(node.dtype.lanes);
    }
    switch (node.intrinsic) {
      case Intrinsic::lane_slice:
        return arguments[0] + static_cast<int32_t>(*as_int(node.arguments[1]));
      case Intrinsic::lane_concat: {
        const int32_t result = reserve(node.dtype.lanes);
        int32_t at = result;
        for (size_t i = 0; i < arguments.size(); ++i) {
          const int lanes = node.arguments[i].dtype().lanes;
          copy_to(at, arguments[i], lanes);
          at += lanes;
        }
        return result;
      }
      case Intrinsic::reinterpret: {
        Instr& in = emit(Control::reinterpret);
        in.a = arguments[0];
        in.dtype = node.dtype.element(), in.from = from.element();
        in.lanes = from.lanes, in.target = node.dtype.lanes;
        return in.dst = reserve(node.dtype.lanes);
      }
      case Intrinsic::tile_at: {
        Instr& in = emit(call_handler(node.intrinsic, from, node.dtype));
        in.a = arguments[0], in.b = arguments[1];
        in.dtype = node.dtype, in.from = from;
        in.lanes = static_cast<int32_t>(*as_int(node.arguments[4]));
        in.target = static_cast<int32_t>(*as_int(node.arguments[3]));
        return in.dst = reserve(node.dtype.lanes);
      }
      case Intrinsic::tile_within: {
        Instr& in = emit(call_handler(node.intrinsic, from, node.dtype));
        in.a = arguments[0], in.b = arguments[2];
        in.dtype = node.dtype, in.from = from;
        in.lanes = static_cast<int32_t>(*as_int(node.arguments[3]));
        return in.dst = reserve(node.dtype.lanes);
      }
      case Intrinsic::prefetch:
      case Intrinsic::barrier:
      case Intrinsic::warp_barrier:
      case Intrinsic::begin_copies:
      case Intrinsic::commit_copies:
      case Intrinsic::wait_copies:
      case Intrinsic::wait_products:
        throw Error(ErrorCode::verify, "an effect has no value\n  help: make it a statement of its own");
      default:
        break;
    }
    Instr& in = emit(call_handler(node.intrinsic, from, node.dtype));
    in.a = arguments[0];
    in.b = arguments.size() > 1 ? arguments[1] : arguments[0];
    in.c = arguments.size() > 2 ? arguments[2] : arguments[0];
    in.dtype = node.dtype.element(), in.from = from.element();
    in.lanes = node.dtype.lanes, in.target = static_cast<int>(node.intrinsic);
    return in.dst = reserve(node.dtype.lanes);
  }

  int access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate, int lanes) {
    AccessPlan plan;
    const auto found = buffers_.find(buffer.get());
    if (found == buffers_.end()) {
      throw Error(ErrorCode::verify,
                  "buffer `" + buffer->name +
                      "` is used where it is neither a parameter nor allocated\n  help: allocate it around the use");
    }
    plan.buffer = found->second;
    plan.element_lanes = buffer->dtype.lanes;
    plan.lanes = lanes / plan.element_lanes;
    for (const Expr& index : indices) plan.indices.push_back({value(index), index.dtype().lanes > 1});
    if (predicate.is_defined()) {
      plan.has_predicate = true;
      plan.predicate = value(predicate);
      plan.predicate_step = predicate.dtype().lanes > 1 && plan.element_lanes == 1;
    }
    program_.accesses.push_back(std::move(plan));
    return static_cast<int>(program_.accesses.size()) - 1;
  }

  // Values computed here live until the next call.
  void forget_values() { computed_.clear(); }

  // Slots taken in `body` are free again after it.
  template <class F>
  void scoped(F&& body) {
    const int32_t before = next_;
    body();
    next_ = before;
    forget_values();
  }

  void statement(const Stmt& s) {
    const StmtNode* outer = current_;
    current_ = s.get();
    scoped([&] { statement_in_scope(s); });
    current_ = outer;
  }

  void statement_in_scope(const Stmt& s) {
    switch (s.kind()) {
      case NodeKind::For:
        return loop(s, *s.as<For>());
      case NodeKind::Block:
        return block(*s.as<Block>());
      case NodeKind::Store: {
        const auto* node = s.as<Store>();
        const auto* product = node->value.as<Call>();
        if (product && is_asynchronous(product->intrinsic)) return asynchronously([&] { store(*node); });
        return store(*node);
      }
      case NodeKind::Seq:
        for (const Stmt& child : s.as<Seq>()->statements) statement(child);
        return;
      case NodeKind::If: {
        const auto* node = s.as<If>();
        const int32_t condition = value(node->condition);
        const int32_t skip = here();
        emit(Control::jump_if_false).a = condition;
        forget_values();
        statement(node->then_body);
        if (node->else_body.is_defined()) {
          const int32_t over = here();
          emit(Control::jump);
          program_.code[skip].target = here();
          statement(node->else_body);
          program_.code[over].target = here();
        } else {
          program_.code[skip].target = here();
        }
        return;
      }
      case NodeKind::LetStmt: {
        const auto* node = s.as<LetStmt>();
        copy_to(bind(node->var), value(node->value), node->var.dtype().lanes);
        forget_values();
        return statement(node->body);
      }
      case NodeKind::Allocate: {
        const auto* node = s.as<Allocate>();
        AllocatePlan plan;
        plan.buffer = node->buffer;
        plan.number = program_.buffers++;
        for (const Expr& extent : node->buffer->shape) plan.shape.push_back(value(extent));
        for (const Expr& stride : node->buffer->strides) plan.strides.push_back(value(stride));
        buffers_[node->buffer.get()] = plan.number;
        program_.allocations.push_back(std::move(plan));
        emit(Control::allocate).target = static_cast<int>(program_.allocations.size()) - 1;
        return statement(node->body);
      }
      case NodeKind::Evaluate: {
        const auto* node = s.as<Evaluate>()->call.as<Call>();
        if (const auto control = node ? control_of(node->intrinsic) : std::nullopt) {
          const int32_t left = node->arguments.empty() ? 0 : value(node->arguments[0]);
          emit(*control).a = left;
        } else if (!node || node->intrinsic != Intrinsic::prefetch) {  // a prefetch may name any address
          value(s.as<Evaluate>()->call);
        }
        return;
      }
      default:
        internal_error("interpret: a statement");
    }
  }

  void store(const Store& node) {
    const int32_t a = value(node.value);
    const int plan = access(node.buffer, node.indices, node.predicate, node.value.dtype().lanes);
    Instr& in = emit(store_handler(node.buffer->dtype.element()));
    in.a = a;
    in.target = plan;
  }

  // What `body` makes may be run when the thread waits for it.
  template <class F>
  void asynchronously(F&& body) {
    forget_values();
    const int32_t at = here();
    emit(Control::begin_product);
    body();
    emit(Control::end_product);
    program_.code[at].target = here();
    forget_values();
  }

  void copy_to(int32_t slot, int32_t from, int lanes) {
    Instr& in = emit(Control::copy);
    in.dst = slot;
    in.a = from;
    in.lanes = lanes;
  }

  void loop(const Stmt& self, const For& node) {
    if (node.loop_kind == LoopKind::thread && !in_launch_) return launch(self);
    const int32_t var = bind(node.var), limit = reserve(1);
    copy_to(limit, value(node.extent), 1);
    forget_values();
    if (node.loop_kind == LoopKind::thread) {
      const int32_t at = here();
      Instr& in = emit(Control::thread_loop);
      in.a = var, in.b = limit, in.c = static_cast<int32_t>(node.thread);
      statement(node.body);
      program_.code[at].target = here();
      return;
    }
    if (node.loop_kind == LoopKind::parallel) {
      emit(Control::parallel_begin).b = limit;
      const int32_t top = here();
      emit(Control::parallel_next).a = var;
      statement(node.body);
      emit(Control::jump).target = top;
      program_.code[top].target = here();
      return;
    }
    copy_to(var, constant(Slot{.i = 0}, 1), 1);
    const int32_t top = here();
    Instr& test = emit(Control::jump_unless_less);
    test.a = var, test.b = limit;
    statement(node.body);
    Instr& step = emit(Control::add_one);
    step.a = var, step.target = top;
    program_.code[top].target = here();
  }

  // All thread-bound loops in here run as threads of one launch, which knows their extents before it starts.
  void launch(const Stmt& self) {
    LaunchPlan plan;
    visit(self, [&](const For& inner) {
      if (inner.loop_kind != LoopKind::thread) return;
      for (const Var& v : free_vars(inner.extent)) {
        if (!variables_.contains(v.get())) {
          throw Error(ErrorCode::verify,
                      "the extent of thread-bound loop `" + inner.var.name() + "` depends on `" + v.name() +
                          "`, which is not known when the threads start\n  help: use an If inside the loop");
        }
      }
      const int32_t extent = value(inner.extent);
      for (auto& axis : plan.axes) {
        if (axis.axis == inner.thread) {
          axis.extents.push_back(extent);
          return;
        }
      }
      plan.axes.push_back({inner.thread, {extent}});
    });
    forget_values();
    const int number = static_cast<int>(program_.launches.size());
    program_.launches.push_back(std::move(plan));
    emit(Control::launch).target = number;
    in_launch_ = true;
    statement(self);
    in_launch_ = false;
    emit(Control::end);
    program_.launches[number].end = here();
  }

  void block(const Block& node) {
    std::vector<int32_t> jumps;
    if (node.predicate.is_defined()) {
      const int32_t condition = value(node.predicate);
      jumps.push_back(here());
      emit(Control::jump_if_false).a = condition;
      forget_values();
    }
    std::vector<int32_t> reduce;
    std::vector<std::pair<int32_t, int32_t>> ranges;
    for (const IterVar& iter : node.iters) {
      const int32_t slot = reserve(1);
      const int32_t binding = value(iter.binding);
      copy_to(slot, binding, 1);
      ranges.emplace_back(slot, value(iter.extent));
      if (iter.kind == IterKind::reduce) reduce.push_back(slot);
    }
    for (size_t i = 0; i < node.iters.size(); ++i) {
      Instr& in = emit(Control::check_iteration);
      in.a = ranges[i].first, in.b = ranges[i].second;
      in.target = static_cast<int>(program_.checks.size());
      program_.checks.push_back(node.iters[i].var.name() + "` of block `" + node.name);
      variables_[node.iters[i].var.get()] = ranges[i].first;
    }
    forget_values();
    if (node.init.is_defined()) {
      std::vector<int32_t> skips;
      for (const int32_t slot : reduce) {
        skips.push_back(here());
        emit(Control::jump_unless_zero).a = slot;
      }
      statement(node.init);
      for (const int32_t skip : skips) program_.code[skip].target = here();
    }
    statement(node.body);
    for (const int32_t at : jumps) program_.code[at].target = here();
  }

  struct HashPair {
    size_t operator()(const std::pair<int64_t, int>& p) const {
      return std::hash<int64_t>()(p.first) * 31 + static_cast<size_t>(p.second);
    }
  };

  Program program_;
  std::unordered_map<const ExprNode*, int32_t> variables_, computed_;
  std::unordered_map<const BufferNode*, int> buffers_;
  std::unordered_map<std::pair<int64_t, int>, int32_t, HashPair> constants_;
  const StmtNode* current_ = nullptr;
  int32_t next_ = 0, highest_ = 0;
  bool in_launch_ = false;
};

}  // namespace

Program compile(const Func& f) {
  return Compiler().run(f);
}

}  // namespace tw::interp
