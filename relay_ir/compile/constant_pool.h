// The constants of an executable, which all of its plans share.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "relay_ir/compile/layout.h"
#include "relay_ir/equal_constants.h"
#include "runtime/plan/plan.h"

namespace tw::relay {

class ConstantPool {
 public:
  // In the layout that a kernel reads.  Stored once, however many kernels read it so: passes over the graphs of several
  // plans make equal arrays anew.
  BufferUse add(const std::string& name, const NDArray& original, const std::vector<IndexMap>& layouts);

  const std::vector<TensorInfo>& infos() const { return infos_; }
  std::vector<NDArray> pack(int jobs) const { return pack_constants(packings_, jobs); }  // in their order

 private:
  std::vector<TensorInfo> infos_;
  std::vector<Packing> packings_;
  std::map<std::pair<const void*, std::string>, uint32_t> by_use_;  // by data, type and layouts
  EqualConstants equal_;
};

}  // namespace tw::relay
