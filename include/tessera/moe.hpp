// Mixture of experts: a layer that sends each token to its k best experts of E.
//
// Names and arithmetic are Hugging Face Mixtral's, the gate is DeepSpeed's top-2 gate in FP32
// (docs/moe.md has the formulas). Experts may be shared out over ranks (expert parallelism): rank r
// of an expert group of size n holds experts [r·E/n, (r+1)·E/n), rows travel by all_to_all_v.
//
// Every rank of the expert group must run the same MoE layers in the same order, in forward and in
// backward, also with no token at all: each call is a collective.
#pragma once

#include <tessera/export.hpp>
#include <tessera/nn.hpp>
#include <tessera/options.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::nn {

/// The experts of one MoE layer: all E are described, the local ones have values. A sharding unit
/// of its own, whose parameters belong to the ranks that hold the same experts.
class Experts;

/// y[s] = Σ_j weight[s, j] · expert[choice[s, j]](x[s]), expert(x) = w2(silu(w1 x) · (w3 x)).
///
/// Parameters: gate.weight [E, hidden], and for each expert e experts.e.w1.weight and
/// experts.e.w3.weight [intermediate, hidden], experts.e.w2.weight [hidden, intermediate], with
/// Parameter::expert = e. In a model the layer is called "block_sparse_moe".
///
/// Input [sequences, time, hidden] of any float dtype; the output has its shape and dtype.
/// Sequences whose Context::sequence_index is −1 are padding: never routed or counted, their output
/// is 0 (where the context has no sequence_index, none is padding). A token whose routes were all
/// dropped has output 0 too.
///
/// Balance and z-loss are not part of the output: their gradient is added to the router's in
/// backward, seeded from Context::auxiliary_scale as it is then, and their values are reported once
/// per forward pass in Context::moe_reports.
class TESSERA_API MoE : public Layer {
 public:
  /// `init_std` is for the gate, w1 and w3, `output_init_std` for w2. Raises Error{kUsage} when the
  /// options don't fit together.
  MoE(const MoeOptions& options, std::int64_t hidden, std::int64_t intermediate, float init_std,
      float output_init_std);
  ~MoE() override;

  const MoeOptions& options() const { return options_; }
  /// The experts of this rank, [first_local, first_local + num_local), once bound.
  int first_local_expert() const { return first_local_; }
  int num_local_experts() const { return num_local_; }

  std::shared_ptr<Linear> gate;
  std::shared_ptr<Experts> experts;

 protected:
  Variable forward(const Variable& input) override;
  /// Raises Error{kUsage} when the expert group's size does not divide the number of experts.
  void on_bind(const Binding& binding) override;

 private:
  std::string layer_name() const;

  MoeOptions options_;
  std::int64_t hidden_;
  int first_local_ = 0;
  int num_local_;
  Communicator* expert_group_ = nullptr;  // null = one rank
  Communicator* data_group_ = nullptr;    // null = one rank
};

}  // namespace tessera::nn
