// What is known of other tasks and from before: rows for the cost model, and points to begin a search with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autotune/database/database.h"
#include "autotune/search/cost_model.h"
#include "autotune/search/search.h"

namespace tw::autotune {

class Learner {
 public:
  // Reads what the database knows of this target.  Records of the tasks of the job itself count as rows through their
  // searches (attach); here they are priors only where they are of another build of the compiler or version of the
  // space.
  Learner(const Database& database, const Target& target, const std::string& target_key,
          const std::vector<std::string>& own_tasks);

  // A task of the job, whose search outlives this.
  void attach(const std::string& task, const Search& search);
  // What was fast in older records of the task and in the tasks that are most like it.
  std::vector<Decisions> priors(const std::string& task, const Search& search) const;
  // Trained on all rows there are now.
  const CostModel& model();

 private:
  struct Neighbour {  // a task of the database that is none of the job's
    Features features;
    std::vector<Decisions> fastest;  // the fastest first
  };
  std::map<std::string, Neighbour> neighbours_;
  std::map<std::string, std::vector<Decisions>> older_;  // of the job's tasks
  std::vector<TrainingRow> rows_;                        // of neighbours
  std::map<std::string, const Search*> searches_;
  CostModel model_;
  int trained_with_ = -1;  // points of the searches
};

}  // namespace tw::autotune
