// Automatic differentiation: a tape of coarse operators.
//
// A program writes only the forward pass. Every operator appends one entry to the tape of its
// Context; backward runs the entries in reverse. Operators are coarse (a linear map, attention, a
// norm), so a transformer block is about fifteen entries.
#pragma once

#include <tessera/export.hpp>
#include <tessera/tensor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Context;
struct Parameter;
class BackwardScope;

/// A value in the forward pass: a tensor, and where its gradient goes. Cheap to copy.
class TESSERA_API Variable {
 public:
  Variable() = default;
  /// A value without gradient, such as an input.
  Variable(Context& context, Tensor tensor);
  /// A parameter as an operand: its current tensor, and its gradient buffer.
  Variable(const std::shared_ptr<Parameter>& parameter);  // NOLINT(google-explicit-constructor)

  bool defined() const { return context_ != nullptr; }
  const Tensor& tensor() const { return tensor_; }
  const Shape& shape() const { return tensor_.shape(); }
  std::int64_t size(int axis) const { return tensor_.size(axis); }
  Context& context() const { return *context_; }
  bool requires_grad() const;
  Parameter* parameter() const { return parameter_; }

  /// The value of a one-element FP32 variable; waits for it.
  float item() const;

 private:
  friend class Context;
  friend class BackwardScope;
  Context* context_ = nullptr;
  Tensor tensor_;
  Parameter* parameter_ = nullptr;
  std::uint64_t tape_ = 0;  ///< number of the tape that slot_ belongs to
  std::int64_t slot_ = -1;  ///< number of the value on the tape, -1 = no gradient wanted
};

/// Where an operator's backward writes one input's gradient: adds to `tensor` when `accumulate`,
/// overwrites it otherwise.
struct GradTarget {
  Tensor tensor;
  bool accumulate = false;
};

/// What an operator's backward sees.
class TESSERA_API BackwardScope {
 public:
  /// The gradient of the operator's output `index`. Undefined (a default Tensor) where no later
  /// operator used that output.
  const Tensor& grad_output(int index = 0) const;
  /// True when input `index` wants a gradient.
  bool needs(int index) const;
  /// The place for input `index`'s gradient. Call at most once per input, only where needs().
  /// Parameters accumulate in FP32; other inputs have the input's own dtype.
  GradTarget target(int index);
  /// Input `index`'s gradient is this very tensor, which nobody will write again: no copy is made
  /// where it is the first contribution. Instead of target().
  void pass(int index, const Tensor& gradient);
  Context& context() const { return *context_; }

 private:
  friend class Context;
  BackwardScope() = default;
  Context* context_ = nullptr;
  const std::vector<Variable>* inputs_ = nullptr;
  std::span<const Tensor> grad_outputs_;
};

/// The backward function of one operator. It keeps what it needs by capturing tensors.
using BackwardFunction = std::function<void(BackwardScope&)>;

/// Receives the begin and end of every unit's use, in forward and in backward. ZeRO implements it.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(int unit) = 0;
  virtual void after_forward(int unit) = 0;
  virtual void before_backward(int unit) = 0;
  virtual void after_backward(int unit) = 0;
};

/// Numbers that a forward pass reports besides its result, for metrics: (name, value) pairs.
struct MoeReport {
  std::string layer;  ///< canonical name of the layer
  std::vector<std::int64_t>
      expert_tokens;        ///< routes per expert before dropping, this rank's tokens
  std::int64_t tokens = 0;  ///< tokens routed
  std::int64_t dropped_routes = 0;
  double aux_loss = 0.0;  ///< before its coefficient
  double z_loss = 0.0;
};

/// The state of one rank's forward and backward passes: device, stream, tape, random position.
class TESSERA_API Context {
 public:
  explicit Context(Device& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }

  /// Appends an operator with its outputs; `inputs` are those that may want gradients. When no
  /// input wants one, or recording is off, nothing is kept. This is how operators of your own are
  /// made.
  std::vector<Variable> record(std::string_view name, std::vector<Variable> inputs,
                               std::vector<Tensor> outputs, BackwardFunction backward);
  /// The same for one output.
  Variable record(std::string_view name, std::vector<Variable> inputs, Tensor output,
                  BackwardFunction backward);

  /// Runs backward from `output` (any shape) with its gradient filled with a value; frees the tape.
  void backward(const Variable& output, float gradient_value = 1.0f);
  /// Runs backward from several outputs with given gradients.
  void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  /// Drops the tape (after an evaluation, or an error).
  void clear();

  bool recording() const { return recording_; }
  void set_recording(bool on) { recording_ = on; }
  /// Training switches dropout and noise on, and chooses the training capacity of experts.
  bool training() const { return training_; }
  void set_training(bool on) { training_ = on; }
  /// True while a checkpointed block is computed again; reports are then not repeated.
  bool recomputing() const { return recomputing_; }

  /// Runs `body` without keeping its intermediate values; backward runs it again (activation
  /// checkpointing). `body` must be repeatable: counter-based random numbers, no side effects.
  Variable checkpoint(const std::function<Variable(const Variable&)>& body, const Variable& input);

  /// Marks the use of a unit: hooks are called now and, in reverse, during backward.
  void begin_unit(int unit);
  void end_unit(int unit);
  void set_hooks(UnitHooks* hooks) { hooks_ = hooks; }

  /// Seed of the job, and for each sequence (row) of the micro batch its global index: the counters
  /// of dropout and noise.
  std::uint64_t seed = 0;
  Tensor sequence_index;  ///< int64 [rows]
  /// Factor that an auxiliary loss of coefficient 1 with all S tokens of the step would be seeded
  /// with: loss_scale · dp / S. An auxiliary term of a micro batch with S_m tokens is seeded with
  /// auxiliary_scale · coefficient · S_m.
  double auxiliary_scale = 0.0;
  /// Reports of MoE layers since the last clear, in forward order.
  std::vector<MoeReport> moe_reports;

 private:
  struct Entry;
  struct Tape;
  std::vector<Variable> append(std::string_view name, std::vector<Variable> inputs,
                               std::vector<Tensor> outputs, BackwardFunction backward);
  void add_gradient(const Variable& output, const Tensor& gradient);
  void run_backward();
  void recompute(const std::function<Variable(const Variable&)>& body, const Tensor& input,
                 BackwardScope& scope);
  friend class BackwardScope;

  Device* device_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t tapes_made_ = 0;  // before tape_, which takes the first number
  std::unique_ptr<Tape> tape_;
  UnitHooks* hooks_ = nullptr;
  bool recording_ = true;
  bool training_ = true;
  bool recomputing_ = false;
};

/// Switches recording off for a scope.
class NoGradScope {
 public:
  explicit NoGradScope(Context& context) : context_(context), before_(context.recording()) {
    context.set_recording(false);
  }
  ~NoGradScope() { context_.set_recording(before_); }
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  Context& context_;
  bool before_;
};

}  // namespace tessera
