// Runs nn::MoE on a rank's part of a case.
#pragma once

#include <tessera/moe.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/operators.hpp"
#include "moe/host_copy.hpp"
#include "unit/moe/reference.hpp"

namespace tessera::test {

/// The groups of a rank, and variations that must not change the result.
struct LayerRun {
  Communicator* data = nullptr;
  Communicator* expert = nullptr;
  int ranks = 1;
  bool checkpointing = false;
  bool training = true;
  double loss_weight = 1.0;  ///< of the main loss
  std::uint64_t seed = 7;
  DType dtype = DType::kF32;  ///< of weights, input and output
};

/// What one rank got, gradients divided by the number of ranks.
struct RankOutcome {
  std::map<std::string, std::vector<double>> gradients;  ///< of the weights this rank holds
  std::vector<std::vector<double>> y, grad_x;            ///< per micro batch
  std::vector<MoeReport> reports;
};

/// The same elements in another float type.
inline Tensor cast(Stream& stream, const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor output(tensor.device(), tensor.shape(), dtype);
  kernels::operators(tensor.device()).copy(stream, tensor, output);
  return output;
}

/// Elements as FP64.
inline std::vector<double> read_values(Stream& stream, const Tensor& input) {
  const Tensor tensor = cast(stream, input, DType::kF32);
  const auto values = moe::read_to_host<float>(stream, tensor);
  return {values.begin(), values.end()};
}

/// Runs forward and backward of one optimizer step: `shares` are this rank's micro batches.
inline RankOutcome run_layer(Device& device, const MoeCase& moe, const std::vector<Share>& shares,
                             const LayerRun& options = {}) {
  Context context(device);
  Stream& stream = context.stream();
  context.seed = options.seed;
  context.set_training(options.training);
  nn::MoE layer(moe.options, moe.hidden, moe.intermediate, 0.02f, 0.02f);
  layer.set_checkpointing(options.checkpointing);
  layer.bind(
      {.context = &context, .seed = options.seed, .data = options.data, .expert = options.expert});

  const auto upload = [&](const std::vector<double>& values, const Shape& shape) {
    return cast(stream,
                moe::copy_to_device<float>(stream, device, {values.begin(), values.end()}, shape,
                                           DType::kF32),
                options.dtype);
  };
  std::vector<std::shared_ptr<Parameter>> held;
  for (const auto& parameter : layer.parameters()) {
    const int local = parameter->expert - layer.first_local_expert();
    if (parameter->expert >= 0 && (local < 0 || local >= layer.num_local_experts())) continue;
    parameter->value = upload(moe.weights.at(parameter->name), parameter->shape);
    parameter->grad = Tensor(device, parameter->shape, DType::kF32, MemoryTag::kGrads);
    held.push_back(parameter);
  }

  const auto all = static_cast<double>(moe.tokens());
  context.auxiliary_scale = options.ranks / all;
  RankOutcome outcome;
  for (const Share& share : shares) {
    const auto sequences = static_cast<std::int64_t>(share.sequence_index.size());
    context.sequence_index = moe::copy_to_device(stream, device, share.sequence_index,
                                                 Shape{sequences}, DType::kI64, MemoryTag::kData);
    const Shape shape{sequences, moe.time, moe.hidden};
    auto x = std::make_shared<Parameter>();
    x->name = "x";
    x->shape = shape;
    x->context = &context;
    x->value = upload(share.x, shape);
    x->grad = Tensor(device, shape, DType::kF32, MemoryTag::kGrads);

    // Through an operator, so that a recomputed block has an input with a gradient.
    const Variable y = layer(ops::reshape(x, shape));
    outcome.y.push_back(read_values(stream, y.tensor()));
    if (y.requires_grad()) {
      std::vector<double> cotangent = share.cotangent;
      for (double& value : cotangent) value *= options.loss_weight * options.ranks / all;
      context.backward(std::vector<Variable>{y}, std::vector<Tensor>{upload(cotangent, shape)});
      outcome.grad_x.push_back(read_values(stream, x->grad));
      for (double& value : outcome.grad_x.back()) value /= options.ranks;
    }
  }
  for (const auto& parameter : held) {
    if (!parameter->grad_written) continue;
    auto& gradient = outcome.gradients[parameter->name];
    gradient = read_values(stream, parameter->grad);
    for (double& value : gradient) value /= options.ranks;
  }
  outcome.reports = context.moe_reports;
  return outcome;
}

}  // namespace tessera::test
