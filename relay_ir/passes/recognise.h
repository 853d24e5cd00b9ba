// A composite operator and what exporters leave of it: a row of recognise's tables, each table in a file of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "relay_ir/ops/common.h"
#include "relay_ir/pattern.h"

namespace tw::relay {

// One place where a row's pattern fits.
class Site {
 public:
  Site(GraphCopy& copy, const Uses& uses, const Node& node, const Match& match)
      : copy_(copy), uses_(uses), node_(node), match_(match) {}

  bool has(const Pattern& p) const { return match_.has(p); }
  const TensorType& type(const Pattern& p) const { return copy_.from().values[match_[p]].type; }
  const TensorType& result_type() const { return copy_.from().values[node_.outputs[0]].type; }
  double number(const Pattern& p) const { return *uniform_number(copy_.from(), match_[p]); }
  const Node& node(const Pattern& p) const { return copy_.from().nodes[uses_.producer[match_[p]]]; }
  ValueId operator[](const Pattern& p) { return copy_[match_[p]]; }  // in the new graph

  // A node on the way to the result, and the result itself, which keeps its name.
  ValueId add(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return copy_.to().add_node(op, std::move(inputs), std::move(attributes), node_.name + "." + op)[0];
  }
  ValueId result(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return copy_.add(node_, op, std::move(inputs), std::move(attributes))[0];
  }

 private:
  GraphCopy& copy_;
  const Uses& uses_;
  const Node& node_;
  const Match& match_;
};

struct Recognition {
  Pattern pattern;
  // The composite in the new graph; no_value, with nothing added, where shapes or attributes do not fit.
  std::function<ValueId(Site&)> build;
};

// For the same result the larger pattern comes first.
std::vector<Recognition> activation_recognitions();
std::vector<Recognition> norm_recognitions();
std::vector<Recognition> attention_recognitions();

}  // namespace tw::relay
