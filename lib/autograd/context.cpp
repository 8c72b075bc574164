#include <tessera/autograd.hpp>
#include <tessera/nn.hpp>

#include <utility>

#include "base/check.hpp"
#include "kernels/operators.hpp"

namespace tessera {

namespace {

enum class EntryKind { kOperator, kUnitBegin, kUnitEnd };

/// A value on the tape that wants a gradient.
struct Slot {
  Shape shape;
  DType dtype = DType::kF32;
  Tensor gradient;
  bool shared = false;  ///< gradient is also someone else's: copy before adding to it
};

}  // namespace

struct Context::Entry {
  EntryKind kind = EntryKind::kOperator;
  std::string name;
  std::vector<Variable> inputs;
  std::size_t first_slot = 0;
  std::size_t slots = 0;
  BackwardFunction backward;
  int unit = -1;
};

struct Context::Tape {
  explicit Tape(std::uint64_t tape_number) : number(tape_number) {}
  std::uint64_t number;
  std::vector<Entry> entries;
  std::vector<Slot> slots;
};

Variable::Variable(Context& context, Tensor tensor)
    : context_(&context), tensor_(std::move(tensor)) {}

Variable::Variable(const std::shared_ptr<Parameter>& parameter)
    : context_(parameter->context), tensor_(parameter->value), parameter_(parameter.get()) {
  TESSERA_CHECK(context_ != nullptr, "parameter '{}' is used before it was bound", parameter->name);
  TESSERA_CHECK(tensor_.defined(), "parameter '{}' is not held by this rank", parameter->name);
}

bool Variable::requires_grad() const {
  return slot_ >= 0 || (parameter_ != nullptr && parameter_->trainable);
}

float Variable::item() const {
  TESSERA_CHECK(tensor_.elements() == 1 && tensor_.dtype() == DType::kF32,
                "item() needs one FP32 element, not {}", tensor_.shape().to_string());
  context_->stream().synchronize();
  return *tensor_.data<float>();
}

const Tensor& BackwardScope::grad_output(int index) const {
  return grad_outputs_[static_cast<std::size_t>(index)];
}

bool BackwardScope::needs(int index) const {
  return (*inputs_)[static_cast<std::size_t>(index)].requires_grad();
}

GradTarget BackwardScope::target(int index) {
  const Variable& input = (*inputs_)[static_cast<std::size_t>(index)];
  if (input.parameter_ != nullptr) {
    Parameter& parameter = *input.parameter_;
    TESSERA_CHECK(parameter.grad.defined(), "parameter '{}' has no gradient buffer",
                  parameter.name);
    return {parameter.grad, std::exchange(parameter.grad_written, true)};
  }
  TESSERA_CHECK(input.slot_ >= 0, "input {} wants no gradient", index);
  Slot& slot = context_->tape_->slots[static_cast<std::size_t>(input.slot_)];
  const bool first = !slot.gradient.defined();
  if (first || slot.shared) {
    Tensor own(context_->device(), slot.shape, slot.dtype, MemoryTag::kActivations);
    if (slot.shared) {
      kernels::operators(context_->device()).copy(context_->stream(), slot.gradient, own);
    }
    slot.gradient = own;
    slot.shared = false;
  }
  return {slot.gradient, !first};
}

void BackwardScope::pass(int index, const Tensor& gradient) {
  const Variable& input = (*inputs_)[static_cast<std::size_t>(index)];
  TESSERA_CHECK(input.requires_grad(), "input {} wants no gradient", index);
  if (input.parameter_ == nullptr) {
    Slot& slot = context_->tape_->slots[static_cast<std::size_t>(input.slot_)];
    if (!slot.gradient.defined()) {
      slot.gradient = gradient.reshape(slot.shape);
      slot.shared = true;
      return;
    }
  }
  const GradTarget place = target(index);
  auto& table = kernels::operators(context_->device());
  const Tensor flat = gradient.reshape(place.tensor.shape());
  if (place.accumulate) {
    table.add_to(context_->stream(), flat, place.tensor);
  } else {
    table.copy(context_->stream(), flat, place.tensor);
  }
}

Context::Context(Device& device)
    : device_(&device),
      stream_(device.make_stream("compute")),
      tape_(std::make_unique<Tape>(++tapes_made_)) {}

Context::~Context() = default;

std::vector<Variable> Context::append(std::string_view name, std::vector<Variable> inputs,
                                      std::vector<Tensor> outputs, BackwardFunction backward) {
  std::vector<Variable> results;
  results.reserve(outputs.size());
  Entry entry;
  entry.name = name;
  entry.first_slot = tape_->slots.size();
  entry.slots = outputs.size();
  entry.backward = std::move(backward);
  for (const Variable& input : inputs) {
    TESSERA_CHECK(input.slot_ < 0 || input.tape_ == tape_->number,
                  "operator '{}' uses a value from before backward(), or from outside its "
                  "checkpointed block",
                  name);
  }
  entry.inputs = std::move(inputs);
  for (Tensor& output : outputs) {
    Variable variable(*this, std::move(output));
    variable.tape_ = tape_->number;
    variable.slot_ = static_cast<std::int64_t>(tape_->slots.size());
    tape_->slots.push_back({variable.shape(), variable.tensor().dtype(), {}, false});
    results.push_back(std::move(variable));
  }
  // An operand is kept on the tape for its place only; what backward reads, the function captured.
  for (Variable& input : entry.inputs) input.tensor_ = Tensor();
  tape_->entries.push_back(std::move(entry));
  return results;
}

std::vector<Variable> Context::record(std::string_view name, std::vector<Variable> inputs,
                                      std::vector<Tensor> outputs, BackwardFunction backward) {
  bool wanted = false;
  for (const Variable& input : inputs) wanted = wanted || input.requires_grad();
  if (recording_ && wanted) {
    return append(name, std::move(inputs), std::move(outputs), std::move(backward));
  }
  std::vector<Variable> results;
  results.reserve(outputs.size());
  for (Tensor& output : outputs) results.emplace_back(*this, std::move(output));
  return results;
}

Variable Context::record(std::string_view name, std::vector<Variable> inputs, Tensor output,
                         BackwardFunction backward) {
  std::vector<Tensor> outputs;
  outputs.push_back(std::move(output));
  return record(name, std::move(inputs), std::move(outputs), std::move(backward)).front();
}

void Context::add_gradient(const Variable& output, const Tensor& gradient) {
  if (output.slot_ < 0) return;
  TESSERA_CHECK(output.tape_ == tape_->number,
                "backward from a value of another tape, or a second time");
  Slot& slot = tape_->slots[static_cast<std::size_t>(output.slot_)];
  const Tensor shaped = gradient.reshape(slot.shape);
  if (!slot.gradient.defined()) {
    slot.gradient = shaped;
    slot.shared = true;
    return;
  }
  if (slot.shared) {
    const Tensor own(*device_, slot.shape, slot.dtype, MemoryTag::kActivations);
    kernels::operators(*device_).copy(*stream_, slot.gradient, own);
    slot.gradient = own;
    slot.shared = false;
  }
  kernels::operators(*device_).add_to(*stream_, shaped, slot.gradient);
}

void Context::backward(const Variable& output, float gradient_value) {
  Tensor gradient(*device_, output.shape(), output.tensor().dtype(), MemoryTag::kActivations);
  kernels::operators(*device_).fill(*stream_, gradient, gradient_value);
  backward(std::span(&output, 1), std::span(&gradient, 1));
}

void Context::backward(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  TESSERA_CHECK(outputs.size() == gradients.size(), "{} outputs, {} gradients", outputs.size(),
                gradients.size());
  // Whatever happens, values of this tape cannot be mistaken for the next one's.
  struct Clear {
    Context& context;
    ~Clear() { context.clear(); }
  } const clear{*this};
  for (std::size_t i = 0; i < outputs.size(); ++i) add_gradient(outputs[i], gradients[i]);
  run_backward();
}

void Context::run_backward() {
  Tape& tape = *tape_;
  std::vector<Tensor> gradients;
  while (!tape.entries.empty()) {
    Entry entry = std::move(tape.entries.back());
    tape.entries.pop_back();
    if (entry.kind != EntryKind::kOperator) {
      if (hooks_ == nullptr) continue;
      if (entry.kind == EntryKind::kUnitEnd) {
        hooks_->before_backward(entry.unit);
      } else {
        hooks_->after_backward(entry.unit);
      }
      continue;
    }
    gradients.clear();
    bool used = false;
    for (std::size_t i = 0; i < entry.slots; ++i) {
      gradients.push_back(std::move(tape.slots[entry.first_slot + i].gradient));
      used = used || gradients.back().defined();
    }
    if (used) {
      BackwardScope scope;
      scope.context_ = this;
      scope.inputs_ = &entry.inputs;
      scope.grad_outputs_ = gradients;
      entry.backward(scope);
    }
    // Later slots than this entry's are done with; slot 0 may be a checkpointed block's input.
    tape.slots.resize(entry.first_slot);
  }
}

void Context::clear() { tape_ = std::make_unique<Tape>(++tapes_made_); }

Variable Context::checkpoint(const std::function<Variable(const Variable&)>& body,
                             const Variable& input) {
  if (!recording_) return body(input);
  Tensor output;
  {
    const NoGradScope no_grad(*this);
    output = body(input).tensor();
  }
  // Recorded whether or not the input wants a gradient: the parameters inside do.
  return append("checkpoint", {input}, {output},
                [this, body, kept = input.tensor(), rows = sequence_index,
                 training = training_](BackwardScope& scope) {
                  const Tensor rows_now = std::exchange(sequence_index, rows);
                  const bool training_now = std::exchange(training_, training);
                  recompute(body, kept, scope);
                  sequence_index = rows_now;
                  training_ = training_now;
                })
      .front();
}

void Context::recompute(const std::function<Variable(const Variable&)>& body, const Tensor& input,
                        BackwardScope& scope) {
  auto outer = std::exchange(tape_, std::make_unique<Tape>(++tapes_made_));
  Tensor gradient;
  {
    struct Flags {
      Context& context;
      bool recording = std::exchange(context.recording_, true);
      bool recomputing = std::exchange(context.recomputing_, true);
      ~Flags() {
        context.recording_ = recording;
        context.recomputing_ = recomputing;
      }
    } const flags{*this};
    Variable leaf(*this, input);
    if (scope.needs(0)) {
      leaf.tape_ = tape_->number;
      leaf.slot_ = 0;
      tape_->slots.push_back({input.shape(), input.dtype(), {}, false});
    }
    add_gradient(body(leaf), scope.grad_output());
    run_backward();
    if (scope.needs(0)) gradient = tape_->slots.front().gradient;
  }
  tape_ = std::move(outer);
  if (gradient.defined()) scope.pass(0, gradient);
}

void Context::begin_unit(int unit) {
  if (hooks_ != nullptr) hooks_->before_forward(unit);
  if (!recording_) return;
  Entry entry;
  entry.kind = EntryKind::kUnitBegin;
  entry.unit = unit;
  tape_->entries.push_back(std::move(entry));
}

void Context::end_unit(int unit) {
  if (hooks_ != nullptr) hooks_->after_forward(unit);
  if (!recording_) return;
  Entry entry;
  entry.kind = EntryKind::kUnitEnd;
  entry.unit = unit;
  tape_->entries.push_back(std::move(entry));
}

}  // namespace tessera
