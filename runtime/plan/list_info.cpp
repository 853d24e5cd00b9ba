#include "runtime/plan/list_info.h"

#include "runtime/plan/plan.h"

namespace tw {

const char* to_string(ListKind kind) {
  switch (kind) {
    case ListKind::sequence:
      return "sequence";
    case ListKind::packed:
      return "packed";
    case ListKind::stacked:
      return "stacked";
    case ListKind::optional:
      return "optional";
    case ListKind::ragged:
      return "ragged";
    case ListKind::text:
      return "text";
    case ListKind::map:
      return "map";
  }
  return "";
}

std::vector<std::string> tensor_names(const std::string& name, ListKind kind, size_t count) {
  std::vector<std::string> names;
  if (kind == ListKind::packed) return {name, name + ".sizes"};
  if (kind == ListKind::ragged) return {name, name + ".shapes"};
  if (kind == ListKind::stacked || kind == ListKind::text || kind == ListKind::map) return {name};
  if (kind == ListKind::optional && count > 0) return {name + ".present"};
  for (size_t i = 0; i < count; ++i) names.push_back(name + "." + std::to_string(i));
  return names;
}

std::string find_list_problem(std::span<const ListInfo> lists, const std::vector<TensorInfo>& tensors) {
  size_t next = 0;  // that may be the first of a list
  for (size_t i = 0; i < lists.size(); ++i) {
    const ListInfo& list = lists[i];
    const std::string problem = "'" + list.name + "' is no list of its tensors";
    const size_t end = size_t{list.first} + list.count;
    if (list.first < next || end > tensors.size()) return problem;
    const std::span<const TensorInfo> own = std::span(tensors).subspan(list.first, list.count);
    const bool has_axis = !own.empty() && list.axis < own[0].shape.size();
    next = end;
    switch (list.kind) {
      case ListKind::sequence:
        break;
      case ListKind::packed:
        if (own.size() != 2 || !has_axis || own[1].dtype != i64 || own[1].shape.size() != 1) return problem;
        break;
      case ListKind::ragged:
        if (own.size() != 2 || own[0].shape.size() != 1 || own[1].dtype != i64 || own[1].shape.size() != 2)
          return problem;
        break;
      case ListKind::stacked:
        if (own.size() != 1 || !has_axis) return problem;
        break;
      case ListKind::text:
        if (own.size() != 1 || own[0].dtype != i64) return problem;
        break;
      case ListKind::map: {
        const size_t keys = list.words.size() + list.numbers.size();
        const bool is_of_one_kind = list.words.empty() != list.numbers.empty();
        if (own.size() != 1 || own[0].shape.size() != 2 || !is_of_one_kind) return problem;
        if (own[0].shape[1] > 0 && static_cast<size_t>(own[0].shape[1]) != keys) return problem;
        break;
      }
      case ListKind::optional: {
        if (own.empty()) break;
        const bool holds_list = i + 1 < lists.size() && lists[i + 1].name == list.name;
        const bool is_whole = holds_list
                                  ? lists[i + 1].kind != ListKind::optional && lists[i + 1].first == list.first + 1 &&
                                        size_t{lists[i + 1].count} + 1 == own.size()
                                  : own.size() == 2;
        if (!is_whole || !own[0].dtype.is_bool() || !own[0].shape.empty()) return problem;
        next = holds_list ? size_t{list.first} + 1 : end;
        break;
      }
    }
  }
  return "";
}

}  // namespace tw
