// A graph as groups of nodes that become Funcs, and those within its nodes of control flow likewise.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "relay_ir/compile/aliases.h"
#include "relay_ir/compile/group.h"
#include "targets/target.h"

namespace tw::relay {

struct PlannedGraph {
  Graph graph;
  std::vector<Group> groups;  // in the order of a run
  Aliases aliases;
  // By group, of those that are no control flow: one of UniqueFuncs, and what its parameters are here.
  struct FuncUse {
    size_t func = 0;
    std::vector<Expr> parameters;
  };
  std::vector<FuncUse> func_of;
  std::map<std::string, std::vector<PlannedGraph>> regions;  // by node
  std::map<std::string, std::vector<ValueId>> carried;       // by loop: copies of what it carries into its first step
  // Of these copies: their loops, and bytes of the largest that they become; or where they get memory in each step, of
  // what is there before it and behind it.
  struct Room {
    std::string loop;
    Expr bytes;
    Expr after = {};
    bool stays = false;  // what is there before a step is where it was behind it, and more behind it
    bool is_of_steps() const { return after.is_defined(); }
  };
  std::unordered_map<ValueId, Room> room;
  // By loop in whose steps sizes grow, and of which nobody knows how many steps it does: how many are done after this.
  // What its steps make gets memory in each.
  std::map<std::string, Var> grown;
  std::map<std::string, std::vector<Var>>
      next;  // by loop: of each size that its steps decide, what it is behind a step
  std::unordered_map<ValueId, int64_t> alignment;  // of values that begin elsewhere than others: bytes
};

// `in_place`, `unfused`: CompileOptions.
PlannedGraph plan_groups(Graph graph, const std::map<std::string, std::string>& in_place,
                         const std::set<std::string>& unfused = {});

// Each group that becomes a Func, those of regions too.
void for_each_group(const PlannedGraph& planned,
                    const std::function<void(const Graph& graph, const Group& group, size_t func)>& visit);

// Groups that compute the same share one Func, which is scheduled and compiled once.
class UniqueFuncs {
 public:
  explicit UniqueFuncs(const Target& target) : target_(target) {}
  // Adds the Funcs of all groups, and says which is whose.  `is_cached`: of their constants.
  void add(PlannedGraph& planned, bool is_cached = false);
  const std::vector<Func>& funcs() const { return funcs_; }

 private:
  size_t add(Func func);

  const Target& target_;
  std::vector<Func> funcs_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_hash_;
};

}  // namespace tw::relay
