#include "zero/layout.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.hpp"

namespace tessera {

namespace {

bool lies_below(const std::string& path, const std::string& prefix) {
  return prefix.empty() ||
         (path.size() > prefix.size() && path.starts_with(prefix) && path[prefix.size()] == '.');
}

/// The unit modules, the root always among them.
std::vector<std::pair<std::string, Module*>> unit_modules(Module& root) {
  std::vector<std::pair<std::string, Module*>> found;
  for (const auto& [path, module] : root.named_modules()) {
    if (path.empty() || module->is_unit()) found.emplace_back(path, module);
  }
  return found;
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, std::int64_t persistence_threshold, int expert_ranks,
                                 int expert_rank) {
  const auto modules = unit_modules(root);
  std::vector<UnitPlan> plans;
  for (const auto& [path, module] : modules) {
    UnitPlan plan;
    plan.name = path.empty() ? "root" : path;
    plan.module = module;
    plan.uses.push_back(static_cast<int>(plans.size()));
    module->set_unit_number(static_cast<int>(plans.size()));
    plans.push_back(std::move(plan));
  }
  const int persistent = static_cast<int>(plans.size());
  UnitPlan small;
  small.name = "persistent";
  small.whole = true;

  root.parameters();  // fills in canonical names
  std::map<const Parameter*, int> owner;
  std::map<int, std::set<int>> experts_of;
  for (const auto& [path, parameter] : root.named_parameters()) {
    int unit = 0;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      if (lies_below(path, modules[i].first)) unit = static_cast<int>(i);
    }
    const auto [known, first] = owner.try_emplace(parameter.get(), unit);
    if (!first) {
      auto& uses = plans[static_cast<std::size_t>(unit)].uses;
      if (known->second != persistent && std::ranges::find(uses, known->second) == uses.end()) {
        uses.push_back(known->second);
      }
      continue;
    }
    if (parameter->expert >= 0) {
      experts_of[unit].insert(parameter->expert);
      plans[static_cast<std::size_t>(unit)].expert = true;
    } else if (parameter->shape.elements() < persistence_threshold) {
      known->second = persistent;
      small.parameters.push_back(parameter);
      continue;
    }
    plans[static_cast<std::size_t>(unit)].parameters.push_back(parameter);
  }
  for (auto& [unit, experts] : experts_of) {
    UnitPlan& plan = plans[static_cast<std::size_t>(unit)];
    const int total = static_cast<int>(experts.size());
    if (total % expert_ranks != 0) {
      fail(ErrorCode::kUsage, "{} experts of '{}' cannot be divided by {} expert-parallel ranks",
           total, plan.name, expert_ranks);
    }
    const int local = total / expert_ranks;
    std::erase_if(plan.parameters, [&](const std::shared_ptr<Parameter>& parameter) {
      TESSERA_CHECK(parameter->expert >= 0, "unit '{}' mixes experts with '{}'", plan.name,
                    parameter->name);
      return parameter->expert / local != expert_rank;
    });
  }
  if (!small.parameters.empty()) {
    small.uses.push_back(persistent);
    plans.front().uses.push_back(persistent);
    plans.push_back(std::move(small));
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    for (const auto& parameter : plans[i].parameters) parameter->unit = static_cast<int>(i);
  }
  return plans;
}

}  // namespace tessera
