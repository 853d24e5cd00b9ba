#include "runtime/plan/plan_io.h"

#include <algorithm>

#include "runtime/artifact/bytes.h"

namespace tw {
namespace {

constexpr size_t longest_program = 4096;  // of one size

void write_size(ByteWriter& out, const Size& size) {
  out.put(static_cast<uint32_t>(size.program().size()));
  if (size.is_known()) out.put(static_cast<int64_t>(size));
  for (const Size::Instruction& instruction : size.program()) {
    out.put(static_cast<uint8_t>(instruction.op));
    out.put(instruction.value);
  }
}

Size read_size(ByteReader& in) {
  Size::Program program(in.get_count(9));
  if (program.empty()) return in.get<int64_t>();
  if (program.size() > longest_program) in.fail("a size that takes too long to compute");
  for (Size::Instruction& instruction : program) {
    instruction.op = static_cast<Size::Op>(in.get<uint8_t>());
    instruction.value = in.get<int64_t>();
  }
  return Size(std::move(program));
}

void write_sizes(ByteWriter& out, const std::vector<Size>& sizes) {
  out.put(static_cast<uint32_t>(sizes.size()));
  for (const Size& size : sizes) write_size(out, size);
}

std::vector<Size> read_sizes(ByteReader& in) {
  std::vector<Size> sizes(in.get_count(12));
  for (Size& size : sizes) size = read_size(in);
  return sizes;
}

void write_dtype(ByteWriter& out, DType dtype) {
  out.put(static_cast<uint8_t>(dtype.kind));
  out.put(dtype.bits);
  out.put(dtype.lanes);
}

DType read_dtype(ByteReader& in) {
  DType dtype;
  const auto kind = in.get<uint8_t>();
  if (kind > static_cast<uint8_t>(DTypeKind::e2m1)) in.fail("an unknown element type");
  dtype.kind = static_cast<DTypeKind>(kind);
  dtype.bits = in.get<uint8_t>();
  dtype.lanes = in.get<uint16_t>();
  if (dtype.lanes != 1 || parse_element_type(to_string(dtype)) != dtype) in.fail("an unknown element type");
  return dtype;
}

void write_tensor(ByteWriter& out, const TensorInfo& tensor) {
  out.put_text(tensor.name);
  write_dtype(out, tensor.dtype);
  out.put(static_cast<uint32_t>(tensor.shape.size()));
  for (int64_t extent : tensor.shape) out.put(extent);
  write_sizes(out, tensor.dims);
}

TensorInfo read_tensor(ByteReader& in) {
  TensorInfo tensor;
  tensor.name = in.get_text();
  tensor.dtype = read_dtype(in);
  tensor.shape.resize(in.get_count(sizeof(int64_t)));
  for (int64_t& extent : tensor.shape) extent = in.get<int64_t>();
  tensor.dims = read_sizes(in);
  return tensor;
}

void write_tensors(ByteWriter& out, const std::vector<TensorInfo>& tensors) {
  out.put(static_cast<uint32_t>(tensors.size()));
  for (const TensorInfo& tensor : tensors) write_tensor(out, tensor);
}

std::vector<TensorInfo> read_tensors(ByteReader& in) {
  std::vector<TensorInfo> tensors(in.get_count(12));
  for (TensorInfo& tensor : tensors) tensor = read_tensor(in);
  return tensors;
}

void write_lists(ByteWriter& out, const std::vector<ListInfo>& lists) {
  out.put(static_cast<uint32_t>(lists.size()));
  for (const ListInfo& list : lists) {
    out.put_text(list.name);
    out.put(static_cast<uint8_t>(list.kind));
    out.put(list.first);
    out.put(list.count);
    out.put(list.axis);
    out.put(static_cast<uint32_t>(list.words.size()));
    for (const std::string& word : list.words) out.put_text(word);
    out.put(static_cast<uint32_t>(list.numbers.size()));
    for (const int64_t number : list.numbers) out.put(number);
  }
}

std::vector<ListInfo> read_lists(ByteReader& in) {
  std::vector<ListInfo> lists(in.get_count(25));
  for (ListInfo& list : lists) {
    list.name = in.get_text();
    const auto kind = in.get<uint8_t>();
    if (kind > static_cast<uint8_t>(ListKind::map)) in.fail("an unknown kind of list");
    list.kind = static_cast<ListKind>(kind);
    list.first = in.get<uint32_t>();
    list.count = in.get<uint32_t>();
    list.axis = in.get<uint32_t>();
    list.words.resize(in.get_count(4));
    for (std::string& word : list.words) word = in.get_text();
    list.numbers.resize(in.get_count(8));
    for (int64_t& number : list.numbers) number = in.get<int64_t>();
  }
  return lists;
}

void write_step(ByteWriter& out, const Step& step) {
  out.put(static_cast<uint8_t>(step.kind));
  out.put(step.target);
  out.put(step.counter);
  out.put_text(step.kernel);
  out.put_text(step.name);
  out.put(static_cast<uint32_t>(step.buffers.size()));
  for (const BufferUse& use : step.buffers) {
    out.put(static_cast<uint32_t>(use.storage));
    out.put(use.index);
    write_size(out, use.offset);
    write_size(out, use.bytes);
  }
  write_sizes(out, step.parameters);
  write_size(out, step.tasks);
  out.put(static_cast<uint8_t>(step.waits));
  write_size(out, step.workspace_bytes);
  write_size(out, step.flops);
  write_size(out, step.bytes);
  write_size(out, step.cycles);
  for (const Size& extent : step.grid) write_size(out, extent);
  for (uint32_t extent : step.block) out.put(extent);
  out.put(step.shared_bytes);
  out.put(static_cast<uint32_t>(step.maps.size()));
  for (const TensorMap& map : step.maps) {
    out.put(map.buffer);
    out.put(map.element_bytes);
    write_sizes(out, map.extents);
    write_sizes(out, map.strides);
    out.put(static_cast<uint32_t>(map.box.size()));
    for (const uint32_t elements : map.box) out.put(elements);
    out.put(map.swizzle_bytes);
  }
}

Step read_step(ByteReader& in) {
  Step step;
  const auto kind = in.get<uint8_t>();
  if (kind > static_cast<uint8_t>(StepKind::demand)) in.fail("an unknown kind of step");
  step.kind = static_cast<StepKind>(kind);
  step.target = in.get<uint32_t>();
  step.counter = in.get<uint32_t>();
  step.kernel = in.get_text();
  step.name = in.get_text();
  step.buffers.resize(in.get_count(24));
  for (BufferUse& use : step.buffers) {
    auto storage = in.get<uint32_t>();
    if (storage > static_cast<uint32_t>(Storage::random)) in.fail("an unknown storage");
    use.storage = static_cast<Storage>(storage);
    use.index = in.get<uint32_t>();
    use.offset = read_size(in);
    use.bytes = read_size(in);
  }
  step.parameters = read_sizes(in);
  step.tasks = read_size(in);
  auto waits = in.get<uint8_t>();
  if (waits > 1) in.fail("a flag that is neither 0 nor 1");
  step.waits = waits == 1;
  step.workspace_bytes = read_size(in);
  step.flops = read_size(in);
  step.bytes = read_size(in);
  step.cycles = read_size(in);
  for (Size& extent : step.grid) extent = read_size(in);
  for (uint32_t& extent : step.block) extent = in.get<uint32_t>();
  step.shared_bytes = in.get<uint32_t>();
  step.maps.resize(in.get_count(24));
  for (TensorMap& map : step.maps) {
    map.buffer = in.get<uint32_t>();
    map.element_bytes = in.get<uint32_t>();
    map.extents = read_sizes(in);
    map.strides = read_sizes(in);
    map.box.resize(in.get_count(4));
    for (uint32_t& elements : map.box) elements = in.get<uint32_t>();
    map.swizzle_bytes = in.get<uint32_t>();
  }
  return step;
}

void write_host_call(ByteWriter& out, const HostCall& call) {
  out.put_text(call.function);
  out.put_text(call.library);
  out.put_text(call.attributes);
  out.put(static_cast<uint32_t>(call.arguments.size()));
  for (const auto& [dtype, rank] : call.arguments) {
    write_dtype(out, dtype);
    out.put(rank);
  }
  out.put(call.outputs);
}

HostCall read_host_call(ByteReader& in) {
  HostCall call;
  call.function = in.get_text();
  call.library = in.get_text();
  call.attributes = in.get_text();
  call.arguments.resize(in.get_count(8));
  for (auto& [dtype, rank] : call.arguments) dtype = read_dtype(in), rank = in.get<uint32_t>();
  call.outputs = in.get<uint32_t>();
  return call;
}

void write_plan(ByteWriter& out, const Plan& plan) {
  write_tensors(out, plan.inputs);
  write_tensors(out, plan.outputs);
  for (const TensorInfo& output : plan.outputs) out.put(output.in_place);
  write_lists(out, plan.input_lists);
  write_lists(out, plan.output_lists);
  write_tensors(out, plan.constants);
  out.put(plan.caller_alignment);
  out.put(plan.arena_bytes);
  out.put(plan.workspace_bytes);
  out.put(static_cast<uint32_t>(plan.symbols.size()));
  for (const Symbol& symbol : plan.symbols) {
    out.put_text(symbol.name);
    out.put(symbol.low);
    out.put(symbol.high);
    out.put_text(symbol.demanded_by);
    out.put(static_cast<uint8_t>(symbol.may_be_empty));
  }
  out.put(static_cast<uint32_t>(plan.equalities.size()));
  for (const EqualSizes& equal : plan.equalities) {
    write_size(out, equal.a);
    write_size(out, equal.b);
    out.put_text(equal.demanded_by);
  }
  out.put(static_cast<uint32_t>(plan.tensors.size()));
  for (const ArenaTensor& tensor : plan.tensors) {
    write_size(out, tensor.bytes);
    out.put(static_cast<int32_t>(tensor.first));
    out.put(static_cast<int32_t>(tensor.last));
    out.put(tensor.before);
  }
  out.put(static_cast<uint32_t>(plan.host_calls.size()));
  for (const HostCall& call : plan.host_calls) write_host_call(out, call);
  write_sizes(out, plan.counters);
  out.put(static_cast<uint32_t>(plan.steps.size()));
  for (const Step& step : plan.steps) write_step(out, step);
  out.put(static_cast<uint32_t>(plan.metadata.size()));
  for (const auto& [key, value] : plan.metadata) {
    out.put_text(key);
    out.put_text(value);
  }
}

Plan read_plan(ByteReader& in) {
  Plan plan;
  plan.inputs = read_tensors(in);
  plan.outputs = read_tensors(in);
  for (TensorInfo& output : plan.outputs) output.in_place = in.get<int32_t>();
  plan.input_lists = read_lists(in);
  plan.output_lists = read_lists(in);
  plan.constants = read_tensors(in);
  plan.caller_alignment = in.get<uint32_t>();
  plan.arena_bytes = in.get<int64_t>();
  plan.workspace_bytes = in.get<int64_t>();
  plan.symbols.resize(in.get_count(25));
  for (Symbol& symbol : plan.symbols) {
    symbol.name = in.get_text();
    symbol.low = in.get<int64_t>();
    symbol.high = in.get<int64_t>();
    symbol.demanded_by = in.get_text();
    symbol.may_be_empty = in.get<uint8_t>() != 0;
  }
  plan.equalities.resize(in.get_count(28));
  for (EqualSizes& equal : plan.equalities) {
    equal.a = read_size(in);
    equal.b = read_size(in);
    equal.demanded_by = in.get_text();
  }
  plan.tensors.resize(in.get_count(24));
  for (ArenaTensor& tensor : plan.tensors) {
    tensor.bytes = read_size(in);
    tensor.first = in.get<int32_t>();
    tensor.last = in.get<int32_t>();
    tensor.before = in.get<int32_t>();
  }
  plan.host_calls.resize(in.get_count(20));
  for (HostCall& call : plan.host_calls) call = read_host_call(in);
  plan.counters = read_sizes(in);
  plan.steps.resize(in.get_count(94));
  for (Step& step : plan.steps) step = read_step(in);
  for (size_t entries = in.get_count(8); entries > 0; --entries) {
    std::string key = in.get_text();
    plan.metadata[key] = in.get_text();
  }
  return plan;
}

}  // namespace

std::vector<std::byte> write_plans(const Plans& plans) {
  ByteWriter out;
  write_plan(out, plans.general);
  out.put(static_cast<uint32_t>(plans.special.size()));
  for (const SpecialPlan& special : plans.special) {
    out.put(static_cast<uint32_t>(special.sizes.size()));
    for (const auto& [low, high] : special.sizes) out.put(low), out.put(high);
    write_plan(out, special.plan);
  }
  return std::move(out.bytes());
}

Plans read_plans(std::span<const std::byte> bytes, const std::string& where) {
  ByteReader in(bytes, where);
  Plans plans = read_plan(in);
  plans.special.resize(in.get_count(64));
  for (SpecialPlan& special : plans.special) {
    special.sizes.resize(in.get_count(16));
    for (auto& [low, high] : special.sizes) low = in.get<int64_t>(), high = in.get<int64_t>();
    special.plan = read_plan(in);
  }
  if (in.remaining() != 0) in.fail(std::to_string(in.remaining()) + " bytes follow the plan");
  return plans;
}

}  // namespace tw
