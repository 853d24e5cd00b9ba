#include "frontends/lists.h"

#include <algorithm>

namespace tw::frontends {

int64_t Words::code_of(std::string_view word) {
  const auto found = codes_.find(word);
  if (found != codes_.end()) return found->second;
  const auto code = static_cast<int64_t>(words_.size());
  words_.emplace_back(word);
  codes_.emplace(word, code);
  return code;
}

ValueId Lists::add(List list) {
  constexpr size_t most_values = size_t{1} << 22;
  if (std::find(list.values.begin(), list.values.end(), unknown_value) != list.values.end()) return unknown_value;
  count_ += list.values.size() + 1;
  if (count_ > most_values)
    throw Error(ErrorCode::limit, "the sequences of the model have more than " + std::to_string(most_values) +
                                      " tensors\n  help: export it with one tensor in the place of a sequence");
  lists_.push_back(std::move(list));
  return first_id - static_cast<ValueId>(lists_.size() - 1);
}

std::vector<ValueId> Lists::tensors(const std::vector<ValueId>& ids) const {
  std::vector<ValueId> result;
  for (const ValueId id : ids) {
    const std::vector<ValueId> own = is_list(id) ? tensors((*this)[id].values) : std::vector<ValueId>{id};
    result.insert(result.end(), own.begin(), own.end());
  }
  return result;
}

ValueId Lists::map(ValueId id, const std::function<ValueId(ValueId)>& f) {
  if (!is_list(id)) return f(id);
  List list = (*this)[id];
  for (ValueId& value : list.values) value = map(value, f);
  return add(std::move(list));
}

bool Lists::is_alike(ValueId a, ValueId b) const {
  if (!is_list(a) || !is_list(b)) return is_list(a) == is_list(b);
  const List &x = (*this)[a], &y = (*this)[b];
  return x.kind == y.kind && x.axis == y.axis && x.rank == y.rank &&
         std::equal(x.values.begin(), x.values.end(), y.values.begin(), y.values.end(),
                    [&](ValueId v, ValueId w) { return is_alike(v, w); });
}

}  // namespace tw::frontends
