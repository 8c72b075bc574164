// Which parameters form which unit: read off the module tree.
#pragma once

#include <tessera/nn.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// One unit before it has buffers.
struct UnitPlan {
  std::string name;
  Module* module = nullptr;                            ///< null for the persistent unit
  std::vector<std::shared_ptr<Parameter>> parameters;  ///< owned: first registered here, local
  std::vector<int> uses;  ///< numbers of the units this module needs, its own included
  bool expert = false;    ///< sharded over the ranks that hold the same experts
  bool whole = false;     ///< stays gathered between steps (small parameters)
};

/// Cuts a model into units, numbered in registration order. Parameters of less than
/// `persistence_threshold` elements outside experts go to one persistent unit that the root uses.
/// Sets Module::unit_number and Parameter::unit. `expert_ranks` and `expert_rank` say which experts
/// are local. Raises Error{kUsage} when experts do not divide.
std::vector<UnitPlan> plan_units(Module& root, std::int64_t persistence_threshold, int expert_ranks,
                                 int expert_rank);

}  // namespace tessera
