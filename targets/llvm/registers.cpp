// Register buffers as SSA values.
//
// Once loops are unrolled and vectorized, every index into a register buffer is a constant: those that have another are
// in memory by then (spill_registers), but tiles of a matrix unit, which are refused.  The accesses of a buffer
// cut its elements into *slots*, widest first: a 14×32 tile that is read and written 16 lanes at a time is 28 slots
// of 16.  Each slot's current value is an LLVM value; loops carry the slots that they store in phis, Ifs join them
// (codegen.cpp). No memory is ever involved, so there is nothing that LLVM would have to promote.  An access that
// is no whole slot (one lane of a vector, at the end of a reduction) takes lanes out or puts them in.
#include <algorithm>
#include <set>

#include "targets/llvm/codegen.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/text/printer.h"

namespace tw {

RegisterFile::RegisterFile(const Stmt& body) {
  struct Range {
    int64_t first;
    int lanes;
    bool operator<(const Range& other) const {  // widest first
      return lanes != other.lanes ? lanes > other.lanes : first < other.first;
    }
  };
  std::vector<Buffer> order;
  std::unordered_map<Buffer, std::set<Range>> ranges;
  std::unordered_map<Buffer, int64_t> element_counts;
  visit(body, [&](const Allocate& a) {
    if (a.buffer->scope == Scope::register_) order.push_back(a.buffer), ranges[a.buffer];
  });
  if (order.empty()) return;
  auto access = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer->scope != Scope::register_) return;
    check(ranges.count(buffer) > 0 && indices.size() == 1, "codegen: register buffers are allocated and flat");
    const auto lanes = constant_lanes(indices[0]);
    if (!lanes) {
      throw Error(ErrorCode::lower, "register buffer " + buffer->name + " is indexed by " + to_text(indices[0]) +
                                        ", which is not a constant\n"
                                        "  help: unroll or vectorize every loop that indexes it, up to the loop it is "
                                        "computed at");
    }
    for (int64_t lane : *lanes) {
      // Lanes beyond the end are those that masks leave out; here they cost nothing and hold nothing.
      check(lane >= 0, "codegen: indices of registers are not negative");
      element_counts[buffer] = std::max(element_counts[buffer], lane + 1);
    }
    const auto gap = std::adjacent_find(lanes->begin(), lanes->end(), [](int64_t a, int64_t b) { return b != a + 1; });
    if (gap == lanes->end()) {
      ranges[buffer].insert({lanes->front(), static_cast<int>(lanes->size())});
    } else {
      for (int64_t lane : *lanes) ranges[buffer].insert({lane, 1});
    }
  };
  visit(
      body, [&](const Load& l) { access(l.buffer, l.indices); }, [&](const Store& s) { access(s.buffer, s.indices); });

  for (const Buffer& buffer : order) {
    Elements& elements = buffers_[buffer];
    elements.first_slot = slots_.size();
    elements.place.assign(element_counts[buffer], Place{SIZE_MAX, 0});
    for (const Range& range : ranges[buffer]) {
      // The elements of the range that no wider slot has; usually all or none of them.
      for (int64_t at = range.first; at < range.first + range.lanes;) {
        if (elements.place[at].slot != SIZE_MAX) {
          ++at;
          continue;
        }
        int64_t end = at;
        while (end < range.first + range.lanes && elements.place[end].slot == SIZE_MAX) {
          elements.place[end] = {slots_.size(), static_cast<int>(end - at)};
          ++end;
        }
        slots_.push_back({at, static_cast<int>(end - at), buffer->dtype});
        at = end;
      }
    }
    elements.slot_count = slots_.size() - elements.first_slot;
  }
}

std::vector<size_t> RegisterFile::slots_of(const Buffer& buffer) const {
  const Elements& elements = buffers_.at(buffer);
  std::vector<size_t> ids;
  for (size_t i = 0; i < elements.slot_count; ++i) ids.push_back(elements.first_slot + i);
  return ids;
}

std::vector<RegisterFile::Place> RegisterFile::places(const Buffer& buffer, const Expr& index) const {
  const Elements& elements = buffers_.at(buffer);
  std::vector<Place> result;
  const auto lanes = constant_lanes(index);
  check(lanes.has_value(), "codegen: register indices are constant");
  for (int64_t lane : *lanes) result.push_back(elements.place[lane]);
  return result;
}

std::vector<size_t> RegisterFile::stored_in(const Stmt& s) const {
  if (slots_.empty()) return {};
  std::set<size_t> ids;
  visit(s, [&](const Store& st) {
    if (st.buffer->scope != Scope::register_) return;
    for (const Place& place : places(st.buffer, st.indices[0])) ids.insert(place.slot);
  });
  return {ids.begin(), ids.end()};
}

std::vector<size_t> KernelCodegen::live_stored_slots(const Stmt& s) const {
  std::vector<size_t> ids = registers_.stored_in(s);
  std::erase_if(ids, [&](size_t id) { return slots_[id] == nullptr; });  // allocated inside
  return ids;
}

llvm::Value* KernelCodegen::read_registers(const Buffer& buffer, const Expr& index) {
  const auto places = registers_.places(buffer, index);
  const size_t id = places[0].slot;
  const auto& slot = registers_.slot(id);
  bool is_one_slot = true, is_run = true;
  for (size_t i = 0; i < places.size(); ++i) {
    is_one_slot &= places[i].slot == id;
    is_run &= places[i].lane == static_cast<int>(i);
  }
  llvm::Value* value = slots_[id];
  if (!value) {
    throw Error(ErrorCode::lower, "`" + buffer->name +
                                      "` is read where it is a tile of the matrix unit\n"
                                      "  help: tensorize the copy out of it by tile_store");
  }
  const int lanes = static_cast<int>(places.size());
  if (is_one_slot && is_run && lanes == slot.lanes) return value;
  if (is_one_slot && lanes == 1) return builder_.CreateExtractElement(value, uint64_t(places[0].lane));
  if (is_one_slot && slot.lanes > 1) {
    std::vector<int> mask;
    for (const auto& place : places) mask.push_back(place.lane);
    return builder_.CreateShuffleVector(value, mask);
  }
  llvm::Value* result = llvm::PoisonValue::get(type_of(buffer->dtype.with_lanes(lanes)));
  for (int i = 0; i < lanes; ++i) {
    llvm::Value* element = slots_[places[i].slot];
    if (registers_.slot(places[i].slot).lanes > 1)
      element = builder_.CreateExtractElement(element, uint64_t(places[i].lane));
    result = builder_.CreateInsertElement(result, element, uint64_t(i));
  }
  return result;
}

void KernelCodegen::write_registers(const Buffer& buffer, const Expr& index, llvm::Value* value,
                                    llvm::Value* predicate) {
  const auto places = registers_.places(buffer, index);
  const int lanes = static_cast<int>(places.size());
  if (predicate) value = builder_.CreateSelect(predicate, value, read_registers(buffer, index));
  const size_t id = places[0].slot;
  const auto& slot = registers_.slot(id);
  bool is_whole = lanes == slot.lanes;
  for (int i = 0; i < lanes; ++i) is_whole &= places[i].slot == id && places[i].lane == i;
  if (is_whole) {
    slots_[id] = value;
    return;
  }
  for (int i = 0; i < lanes; ++i) {
    llvm::Value* element = lanes > 1 ? builder_.CreateExtractElement(value, uint64_t(i)) : value;
    llvm::Value*& target = slots_[places[i].slot];
    target = registers_.slot(places[i].slot).lanes > 1
                 ? builder_.CreateInsertElement(target, element, uint64_t(places[i].lane))
                 : element;
  }
}

}  // namespace tw
