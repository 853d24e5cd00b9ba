// pipeline(k, 2)
//
//   for k in 0..8 {                                  for k in 0..8 attrs {pipeline = 2} {
//     alloc S: f32[4, 128] in shared                   alloc S: f32[4, 128] in shared
//     for … { block S(…) { S[vi, vk] = A[vi, vk] } } ⇒ for … { block S(…) { S[vi, vk] = A[vi, vk] } }
//     for … { block C(…) { … S[vi, vk] … } }           for … { block C(…) { … S[vi, vk] … } }
//   }                                                }
//
// Lowering (tensor_ir/passes/pipeline_loops.cpp) gives S two versions and moves the copies one iteration ahead, once S
// has the shape of what one iteration needs.  Legal when the copies read nothing that the loop writes, and fill memory
// that is allocated in its body; other primitives keep it so.
#include "tensor_ir/passes/pipeline.h"

#include "schedule/edit.h"

namespace tw {

void Schedule::pipeline(const LoopRef& ref, int64_t stages) {
  ScheduleEdit edit(*this, "pipeline", ref, stages);
  const For& loop = edit.loop(ref);
  const Stmt here = edit.path(ref).back();
  edit.require_serial(loop);
  if (stages < 2 || stages > most_pipeline_stages) {
    edit.refuse(std::to_string(stages) + " is no number of stages", here,
                "from 2, where one iteration's copies run ahead, to " + std::to_string(most_pipeline_stages));
  }
  const auto extent = as_int(loop.extent);
  if (extent && *extent < stages) {
    edit.refuse("loop " + quoted(loop.var.name()) + " has " + std::to_string(*extent) + " iterations, fewer than " +
                    std::to_string(stages) + " stages",
                here, "give at most as many stages as iterations, or split its pieces smaller");
  }
  const PipelineParts parts = pipeline_parts(loop);
  if (!parts.problem.empty()) edit.refuse(parts.problem, here, parts.help);
  Attributes attributes = loop.attributes;
  attributes[pipeline_attribute] = stages;
  edit.commit(replace_node(
      func_.body, &loop,
      make_stmt<For>(loop.var, loop.extent, loop.loop_kind, loop.body, loop.thread, attributes, loop.span)));
}

}  // namespace tw
