// The balance loss: how far the router is from sending every expert the same share.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/comm.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::moe {

/// What the balance loss of a set of tokens is made of.
struct BalanceSums {
  std::vector<double> prob_sums;     ///< [E] sum over tokens of softmax probabilities
  std::vector<double> first_counts;  ///< [E] first choices, before dropping (all choices, k >= 3)
  double tokens = 0.0;

  /// The same sums over all ranks of `group`. Every rank must call it.
  BalanceSums all_reduce(Context& context, Communicator& group, std::string_view label) const;
};

/// The balance loss l = E/n · Σ_e mean_s(p[s, e]) · mean_s(choices of e), n = 1 for k <= 2 (first
/// choices) and k for k >= 3 (all choices). Perfectly balanced tokens give 1.
struct Balance {
  double loss = 0.0;
  /// tokens · ∂l/∂p[s, e] = E/n · mean_s(choices of e), the same for every token: the gradient of
  /// an l that weighs as much as its tokens.
  std::vector<double> slope;
};

/// Without tokens everything is 0.
Balance balance_loss(const BalanceSums& sums, int top_k);

}  // namespace tessera::moe
