// Modules: named parameters in a tree, and the layers that models are built from.
//
// A module tree first only *describes* parameters (name, shape, initial values). Memory appears
// when the tree is bound: an Engine shards it over ranks, materialize() makes whole tensors on one
// rank.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/comm.hpp>
#include <tessera/data.hpp>
#include <tessera/export.hpp>
#include <tessera/ops.hpp>
#include <tessera/tensor.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// How a parameter's elements start. Element i of parameter NAME is a function of (seed, NAME, i)
/// alone, so any rank can make any range.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  float std = 0.0f;

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::kOnes, 0.0f}; }
  static Init normal(float std) { return {Kind::kNormal, std}; }
};

/// One logical parameter of the model. Modules that share it are tied.
struct Parameter {
  std::string name;  ///< canonical: the path of the first module that registered it
  Shape shape;
  Init init;
  bool weight_decay = true;  ///< norms and biases: false
  bool trainable = true;
  int expert = -1;  ///< global number of the expert it belongs to; -1 = none

  // Set when bound.
  Context* context = nullptr;
  int unit = -1;              ///< sharding unit that gathers it
  Tensor value;               ///< undefined on ranks that do not hold this expert
  Tensor grad;                ///< FP32
  bool grad_written = false;  ///< grad holds this backward's values, later ones are added
};

/// What a module tree needs at run time.
struct Binding {
  Context* context = nullptr;
  std::uint64_t seed = 0;
  Communicator* data = nullptr;    ///< all data-parallel ranks; null = one rank
  Communicator* expert = nullptr;  ///< the ranks that share out the experts; null = one rank
};

/// A node of the model: parameters and sub-modules with names.
class TESSERA_API Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Adds a parameter of this module. Raises Error{kUsage} when the name is taken.
  std::shared_ptr<Parameter> register_parameter(const std::string& name, Shape shape, Init init,
                                                bool weight_decay = true);
  /// Uses another module's parameter under a name of this module (tied weights).
  void register_tied(const std::string& name, std::shared_ptr<Parameter> parameter);
  /// Adds a sub-module and returns it.
  template <typename M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> module) {
    add_module(name, module);
    return module;
  }

  /// Every parameter once, in registration order (own ones, then sub-modules'), with canonical
  /// names filled in. A tied parameter has the name of its first place.
  std::vector<std::shared_ptr<Parameter>> parameters();
  /// All (path, parameter) pairs, tied ones under each of their names.
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> named_parameters();
  /// This module and all below it, with their paths, parents first.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// Makes this module a sharding unit: its parameters (without those of units inside it) are
  /// gathered and released together.
  void set_unit(bool unit = true) { is_unit_ = unit; }
  bool is_unit() const { return is_unit_; }
  /// Number of the unit, -1 before an engine gave one.
  int unit_number() const { return unit_number_; }
  void set_unit_number(int number) { unit_number_ = number; }

  /// Connects the whole tree to a context and to groups of ranks.
  void bind(const Binding& binding);
  /// Allocates and initialises every parameter whole, with gradient buffers, on this rank: for
  /// programs and tests without an Engine.
  void materialize(Context& context, std::uint64_t seed);
  /// Marks all gradients as unwritten.
  void zero_grad();

  Context& context() const;

 protected:
  /// Called on every module by bind(), after its context is set.
  virtual void on_bind(const Binding& binding) { (void)binding; }

 private:
  void add_module(const std::string& name, std::shared_ptr<Module> module);
  void collect(const std::string& prefix,
               std::vector<std::pair<std::string, std::shared_ptr<Parameter>>>& parameters,
               std::vector<std::pair<std::string, Module*>>* modules);

  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
  Context* context_ = nullptr;
  bool is_unit_ = false;
  int unit_number_ = -1;
};

/// Uses a unit for the life of this object: gathered now, released at the end; in backward the
/// other way round.
class TESSERA_API UnitScope {
 public:
  explicit UnitScope(const Module& module);
  ~UnitScope() noexcept(false);
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  Context* context_ = nullptr;
  int unit_ = -1;
  int exceptions_ = 0;
};

/// Fills `values` (FP32, on the host) with elements [begin, begin + count) of a parameter's start.
TESSERA_API void initialize_range(const Parameter& parameter, std::uint64_t seed,
                                  std::int64_t begin, std::int64_t count, float* values);

/// A module from one value to one value. Call it with operator(), write forward().
class TESSERA_API Layer : public Module {
 public:
  /// Runs forward() inside the layer's unit, recomputed in backward where that was asked for.
  Variable operator()(const Variable& input);
  /// Activation checkpointing of this layer.
  void set_checkpointing(bool on) { checkpointing_ = on; }

 protected:
  virtual Variable forward(const Variable& input) = 0;

 private:
  bool checkpointing_ = false;
};

/// The result of a model on one micro batch.
struct Loss {
  Variable sum;             ///< FP32 [1]: sum of token losses over unmasked targets
  std::int64_t tokens = 0;  ///< unmasked targets
};

/// A whole model that can be trained: from a micro batch to a loss.
class TESSERA_API Model : public Module {
 public:
  /// Sum of the losses of the micro batch's unmasked targets. Runs inside the root's own unit.
  Loss loss(const MicroBatch& batch);
  /// Logits [sequences, seq_len, vocab] of token ids int32 [sequences, seq_len].
  Variable logits(const Tensor& tokens);
  /// Activation checkpointing of every block.
  virtual void set_activation_checkpointing(bool blocks) { (void)blocks; }

 protected:
  virtual Variable forward(const Tensor& tokens) = 0;
};

namespace nn {

/// y = x · Wᵀ + b, weight [out, in], bias [out].
class TESSERA_API Linear : public Layer {
 public:
  Linear(std::int64_t in, std::int64_t out, bool bias, float init_std);
  std::shared_ptr<Parameter> weight;
  std::shared_ptr<Parameter> bias;  ///< null = none

 protected:
  Variable forward(const Variable& input) override;
};

/// Rows of a table [vocab, hidden] by token id.
class TESSERA_API Embedding : public Module {
 public:
  Embedding(std::int64_t vocab, std::int64_t hidden, float init_std);
  Variable operator()(const Tensor& tokens);
  std::shared_ptr<Parameter> weight;
};

/// x / sqrt(mean(x²) + eps) · weight over the last dimension.
class TESSERA_API RMSNorm : public Layer {
 public:
  RMSNorm(std::int64_t size, double eps);
  std::shared_ptr<Parameter> weight;

 protected:
  Variable forward(const Variable& input) override;

 private:
  float eps_;
};

/// (x − mean) / sqrt(var + eps) · weight + bias over the last dimension.
class TESSERA_API LayerNorm : public Layer {
 public:
  LayerNorm(std::int64_t size, double eps);
  std::shared_ptr<Parameter> weight;
  std::shared_ptr<Parameter> bias;

 protected:
  Variable forward(const Variable& input) override;

 private:
  float eps_;
};

/// What an attention layer is made of.
struct AttentionOptions {
  std::int64_t hidden_size = 0;
  int num_heads = 1;
  int num_kv_heads = 1;
  double rope_theta = 10000.0;  ///< 0 = no rotary embedding
  bool bias = false;
  float init_std = 0.02f;
  float output_init_std = 0.02f;
  /// Names of the four projections: Llama's by default.
  std::string q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj";
};

/// Causal self-attention with grouped query heads.
class TESSERA_API Attention : public Layer {
 public:
  explicit Attention(const AttentionOptions& options);
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;

 protected:
  Variable forward(const Variable& input) override;

 private:
  AttentionOptions options_;
};

/// Llama's gated MLP: down(silu(gate(x)) · up(x)).
class TESSERA_API GatedMLP : public Layer {
 public:
  GatedMLP(std::int64_t hidden, std::int64_t intermediate, float init_std, float output_init_std);
  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;

 protected:
  Variable forward(const Variable& input) override;
};

}  // namespace nn
}  // namespace tessera
