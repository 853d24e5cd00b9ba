// annotate(i, "key", 1)  annotate_block("C", "key", "text")
//
//   for i in 0..8 { … }   block C(…) { … }
// ⇒
//   for i in 0..8 {key = 1} { … }   block C(…) {key = "text"} { … }
//
// Says something to a later pass; never changes the meaning.
#include "schedule/edit.h"

namespace tw {

void Schedule::annotate(const LoopRef& ref, const std::string& key, AttributeValue value) {
  ScheduleEdit edit(*this, "annotate", ref, key, value);
  const For& loop = edit.loop(ref);
  Attributes attributes = loop.attributes;
  attributes[key] = value;
  const Stmt changed =
      make_stmt<For>(loop.var, loop.extent, loop.loop_kind, loop.body, loop.thread, attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

void Schedule::annotate(const BlockRef& ref, const std::string& key, AttributeValue value) {
  ScheduleEdit edit(*this, "annotate_block", ref, key, value);
  const Block& block = edit.block(ref);
  BlockEdit changed(block);
  changed.attributes[key] = value;
  edit.commit(replace_node(func_.body, &block, changed.make()));
}

}  // namespace tw
