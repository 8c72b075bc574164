#include <tessera/nn.hpp>

#include <exception>
#include <unordered_set>

#include "base/check.hpp"
#include "base/philox.hpp"

namespace tessera {

namespace {

std::string join_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace

std::shared_ptr<Parameter> Module::register_parameter(const std::string& name, Shape shape,
                                                      Init init, bool weight_decay) {
  auto parameter = std::make_shared<Parameter>();
  parameter->shape = std::move(shape);
  parameter->init = init;
  parameter->weight_decay = weight_decay;
  register_tied(name, parameter);
  return parameter;
}

void Module::register_tied(const std::string& name, std::shared_ptr<Parameter> parameter) {
  for (const auto& [taken, other] : parameters_) {
    if (taken == name) fail(ErrorCode::kUsage, "a module has two parameters named '{}'", name);
  }
  parameters_.emplace_back(name, std::move(parameter));
}

void Module::add_module(const std::string& name, std::shared_ptr<Module> module) {
  for (const auto& [taken, other] : modules_) {
    if (taken == name) fail(ErrorCode::kUsage, "a module has two sub-modules named '{}'", name);
  }
  modules_.emplace_back(name, std::move(module));
}

void Module::collect(const std::string& prefix,
                     std::vector<std::pair<std::string, std::shared_ptr<Parameter>>>& parameters,
                     std::vector<std::pair<std::string, Module*>>* modules) {
  if (modules != nullptr) modules->emplace_back(prefix, this);
  for (const auto& [name, parameter] : parameters_) {
    parameters.emplace_back(join_name(prefix, name), parameter);
  }
  for (const auto& [name, module] : modules_) {
    module->collect(join_name(prefix, name), parameters, modules);
  }
}

std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> Module::named_parameters() {
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> found;
  collect({}, found, nullptr);
  return found;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters;
  std::vector<std::pair<std::string, Module*>> modules;
  collect({}, parameters, &modules);
  return modules;
}

std::vector<std::shared_ptr<Parameter>> Module::parameters() {
  std::vector<std::shared_ptr<Parameter>> unique;
  std::unordered_set<const Parameter*> seen;
  for (const auto& [name, parameter] : named_parameters()) {
    if (!seen.insert(parameter.get()).second) continue;
    parameter->name = name;
    unique.push_back(parameter);
  }
  return unique;
}

void Module::bind(const Binding& binding) {
  TESSERA_CHECK(binding.context != nullptr, "bind() needs a context");
  for (const auto& parameter : parameters()) parameter->context = binding.context;
  for (const auto& [name, module] : named_modules()) {
    module->context_ = binding.context;
    module->on_bind(binding);
  }
}

void Module::materialize(Context& context, std::uint64_t seed) {
  Binding binding;
  binding.context = &context;
  binding.seed = seed;
  context.seed = seed;
  bind(binding);
  for (const auto& parameter : parameters()) {
    parameter->value = Tensor(context.device(), parameter->shape, DType::kF32, MemoryTag::kParams);
    parameter->grad = Tensor(context.device(), parameter->shape, DType::kF32, MemoryTag::kGrads);
    parameter->grad_written = false;
    context.stream().enqueue([parameter, seed] {
      initialize_range(*parameter, seed, 0, parameter->value.elements(),
                       parameter->value.data<float>());
    });
  }
}

void Module::zero_grad() {
  for (const auto& parameter : parameters()) parameter->grad_written = false;
}

Context& Module::context() const {
  TESSERA_CHECK(context_ != nullptr, "a module is used before it was bound");
  return *context_;
}

void initialize_range(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                      std::int64_t count, float* values) {
  const std::uint64_t key = hash_name(parameter.name) ^ (seed * 0x9e3779b97f4a7c15ull);
  for (std::int64_t i = 0; i < count; ++i) {
    switch (parameter.init.kind) {
      case Init::Kind::kZeros: values[i] = 0.0f; break;
      case Init::Kind::kOnes: values[i] = 1.0f; break;
      case Init::Kind::kNormal:
        values[i] = parameter.init.std * normal_at(key, static_cast<std::uint64_t>(begin + i));
        break;
    }
  }
}

UnitScope::UnitScope(const Module& module) : exceptions_(std::uncaught_exceptions()) {
  if (module.unit_number() < 0) return;
  context_ = &module.context();
  unit_ = module.unit_number();
  context_->begin_unit(unit_);
}

UnitScope::~UnitScope() noexcept(false) {
  if (unit_ >= 0 && std::uncaught_exceptions() == exceptions_) context_->end_unit(unit_);
}

Variable Layer::operator()(const Variable& input) {
  const UnitScope scope(*this);
  if (!checkpointing_) return forward(input);
  return input.context().checkpoint([this](const Variable& x) { return forward(x); }, input);
}

Loss Model::loss(const MicroBatch& batch) {
  context().sequence_index = batch.sequence_index;
  const UnitScope scope(*this);
  return {ops::cross_entropy_sum(forward(batch.tokens), batch.targets), batch.unmasked_tokens};
}

Variable Model::logits(const Tensor& tokens) {
  context().sequence_index = Tensor();  // the last micro batch's need not fit these sequences
  const UnitScope scope(*this);
  return forward(tokens);
}

}  // namespace tessera
