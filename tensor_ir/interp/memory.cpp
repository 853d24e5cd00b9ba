// Loads and stores of the oracle: bounds, poison and the notes for the detection of races.
#include <cstring>

#include "tensor_ir/interp/machine.h"

namespace tw::interp {
namespace {

[[noreturn]] void out_of_bounds(const Storage& s, size_t dimension, int64_t index, int64_t extent) {
  trap("index " + std::to_string(index) + " is out of bounds in dimension " + std::to_string(dimension) + " of `" +
           s.name + "`, which has extent " + std::to_string(extent),
       "guard the access with an If or a predicate");
}

int64_t element_of(const Storage& s, const AccessPlan& plan, const Slot* slots, int lane) {
  if (plan.indices.size() == 1 && s.shape.size() != 1) {  // a flat offset
    const int64_t offset = slots[plan.indices[0].slot + lane * plan.indices[0].step].i;
    if (offset < 0 || offset >= s.count) out_of_bounds(s, 0, offset, s.count);
    return offset;
  }
  int64_t offset = 0;
  for (size_t d = 0; d < plan.indices.size(); ++d) {
    const int64_t index = slots[plan.indices[d].slot + lane * plan.indices[d].step].i;
    if (index < 0 || index >= s.shape[d]) [[unlikely]]
      out_of_bounds(s, d, index, s.shape[d]);
    offset += index * s.strides[d];
  }
  if (offset < 0 || offset >= s.count) [[unlikely]]
    out_of_bounds(s, 0, offset, s.count);
  return offset;
}

void require_defined(const Storage& s, int64_t element) {
  if (s.defined.empty() || s.defined[element]) [[likely]]
    return;
  trap("`" + s.name + "` is read at element " + std::to_string(element) + ", which was never written",
       "initialise it first, as a reduction's init does");
}

template <class T>
struct Plain {
  using type = T;
  static Slot load(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    if constexpr (std::is_floating_point_v<T>)
      return of(static_cast<double>(value));
    else
      return of(static_cast<int64_t>(value));
  }
  static void store(uint8_t* at, Slot s) {
    T value;
    if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(s.f);
    else
      value = static_cast<T>(s.i);
    std::memcpy(at, &value, sizeof value);
  }
};

template <float (*widen)(uint16_t), uint16_t (*narrow)(float)>
struct Half {
  using type = uint16_t;
  static Slot load(const uint8_t* at) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return of(static_cast<double>(widen(bits)));
  }
  static void store(uint8_t* at, Slot s) {
    const uint16_t bits = narrow(static_cast<float>(s.f));
    std::memcpy(at, &bits, sizeof bits);
  }
};

template <class E>
const Instr* load_elements(const Instr* in, Frame& f) {
  constexpr int64_t width = sizeof(typename E::type);
  const AccessPlan& plan = f.machine->program.accesses[in->target];
  Storage& s = *f.storage[plan.buffer];
  const bool tracks = f.tag != 0 && !s.is_private && s.owner != f.tag;
  for (int lane = 0; lane < plan.lanes; ++lane) {
    Slot* d = f.slots + in->dst + lane * plan.element_lanes;
    if (plan.has_predicate && f.slots[plan.predicate + lane * plan.predicate_step].i == 0) {
      for (int e = 0; e < plan.element_lanes; ++e) d[e].i = 0;  // also 0.0
      continue;
    }
    const int64_t element = element_of(s, plan, f.slots, lane);
    require_defined(s, element);
    if (tracks) f.machine->note_read(s, element, f.tag);
    const uint8_t* at = s.data + element * width * plan.element_lanes;
    for (int e = 0; e < plan.element_lanes; ++e) d[e] = E::load(at + e * width);
  }
  return in + 1;
}

const Instr* load_words(const Instr* in, Frame& f) {
  const AccessPlan& plan = f.machine->program.accesses[in->target];
  Storage& s = *f.storage[plan.buffer];
  const bool tracks = f.tag != 0 && !s.is_private && s.owner != f.tag;
  const int64_t width = s.dtype.bytes();
  for (int lane = 0; lane < plan.lanes; ++lane) {
    uint64_t word = 0;
    if (!plan.has_predicate || f.slots[plan.predicate + lane * plan.predicate_step].i != 0) {
      const int64_t first = element_of(s, plan, f.slots, lane), last = first + plan.word_elements - 1;
      if (last >= s.count) out_of_bounds(s, 0, last, s.count);
      for (int64_t element = first; element <= last; ++element) {
        require_defined(s, element);
        if (tracks) f.machine->note_read(s, element, f.tag);
      }
      std::memcpy(&word, s.data + first * width, static_cast<size_t>(width * plan.word_elements));
    }
    f.slots[in->dst + lane].i = static_cast<int64_t>(word);
  }
  return in + 1;
}

template <class E>
const Instr* store_elements(const Instr* in, Frame& f) {
  constexpr int64_t width = sizeof(typename E::type);
  const AccessPlan& plan = f.machine->program.accesses[in->target];
  Storage& s = *f.storage[plan.buffer];
  if (s.is_read_only) [[unlikely]]
    trap("`" + s.name + "` is an input, and is written", "make it an output of the Func");
  const bool tracks = f.tag != 0 && !s.is_private && s.owner != f.tag;
  for (int lane = 0; lane < plan.lanes; ++lane) {
    if (plan.has_predicate && f.slots[plan.predicate + lane * plan.predicate_step].i == 0) continue;
    const int64_t element = element_of(s, plan, f.slots, lane);
    const Slot* value = f.slots + in->a + lane * plan.element_lanes;
    if (f.is_copying && f.machine->random() % 2 == 0) [[unlikely]] {  // late, or at once
      PendingStore store{&s, element, std::vector<uint8_t>(static_cast<size_t>(width * plan.element_lanes))};
      for (int e = 0; e < plan.element_lanes; ++e) E::store(store.bytes.data() + e * width, value[e]);
      f.group.push_back(std::move(store));
      continue;
    }
    if (tracks) f.machine->note_write(s, element, f.tag);
    if (!s.defined.empty()) s.defined[element] = 1;
    uint8_t* at = s.data + element * width * plan.element_lanes;
    for (int e = 0; e < plan.element_lanes; ++e) E::store(at + e * width, value[e]);
  }
  return in + 1;
}

template <template <class> class Choose>
Handler for_element(DType dtype) {
  switch (dtype.kind) {
    case DTypeKind::boolean:
      return Choose<Plain<uint8_t>>::handler;
    case DTypeKind::signed_integer:
      return dtype.bits == 8    ? Choose<Plain<int8_t>>::handler
             : dtype.bits == 16 ? Choose<Plain<int16_t>>::handler
             : dtype.bits == 32 ? Choose<Plain<int32_t>>::handler
                                : Choose<Plain<int64_t>>::handler;
    case DTypeKind::unsigned_integer:
      return dtype.bits == 8    ? Choose<Plain<uint8_t>>::handler
             : dtype.bits == 16 ? Choose<Plain<uint16_t>>::handler
             : dtype.bits == 32 ? Choose<Plain<uint32_t>>::handler
                                : Choose<Plain<uint64_t>>::handler;
    case DTypeKind::brain_floating:
      return Choose<Half<bf16_to_float, float_to_bf16>>::handler;
    case DTypeKind::floating:
      return dtype.bits == 16   ? Choose<Half<f16_to_float, float_to_f16>>::handler
             : dtype.bits == 32 ? Choose<Plain<float>>::handler
                                : Choose<Plain<double>>::handler;
    default:
      break;
  }
  internal_error("interpret: an element type");
}

template <class E>
struct Loads {
  static constexpr Handler handler = load_elements<E>;
};
template <class E>
struct Stores {
  static constexpr Handler handler = store_elements<E>;
};

}  // namespace

Handler load_handler(DType dtype) {
  return for_element<Loads>(dtype);
}
Handler word_handler() {
  return load_words;
}
Handler store_handler(DType dtype) {
  return for_element<Stores>(dtype);
}

void Machine::land(Frame& f, const PendingStore& store) {
  Storage& s = *store.storage;
  if (f.tag != 0 && !s.is_private && s.owner != f.tag) note_write(s, store.element, f.tag);
  if (!s.defined.empty()) s.defined[static_cast<size_t>(store.element)] = 1;
  std::memcpy(s.data + store.element * static_cast<int64_t>(store.bytes.size()), store.bytes.data(),
              store.bytes.size());
}

}  // namespace tw::interp
