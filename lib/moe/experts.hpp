// The experts of an MoE layer, and their products on rows sorted by expert.
#pragma once

#include <tessera/moe.hpp>
#include <tessera/nn.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera {
namespace nn {

/// One expert: w2(silu(w1 x) · (w3 x)).
class Expert : public Module {
 public:
  /// `number`: its global number.
  Expert(int number, std::int64_t hidden, std::int64_t intermediate, float init_std,
         float output_init_std);
  std::shared_ptr<Linear> w1, w3, w2;
};

class Experts : public Module {
 public:
  Experts(int count, std::int64_t hidden, std::int64_t intermediate, float init_std,
          float output_init_std);
  std::vector<std::shared_ptr<Expert>> expert;  ///< all of them, by global number
};

}  // namespace nn

namespace moe {

/// Weights of one local expert: gate and up projection [f, n], down projection [n, f].
struct ExpertWeights {
  Variable w1, w3, w2;
};

/// rows [r, n], the first counts[0] of them for experts[0] and so on → the experts' outputs, same
/// shape. One tape entry; an expert without rows gets a gradient of zeros.
Variable run_experts(const Variable& rows, const std::vector<ExpertWeights>& experts,
                     const std::vector<std::int64_t>& counts);

}  // namespace moe
}  // namespace tessera
