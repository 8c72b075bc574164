// Top-k routing of tokens to experts in four steps: RouteTokens chooses, RoutePositions (or, for
// the policy "probs", RouteMostProbable) numbers the routes of each expert, RouteWeights
// normalises. Formulas and tie rules are DeepSpeed's (top1gating, top2gating, topkgating).
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "base/philox.hpp"
#include "kernels/math.hpp"
#include "kernels/row.hpp"

namespace tessera::kernels {

/// Element functor over tokens: softmax, logsumexp and the k choices, −1 for padding. The first
/// choice is the largest probability, the others the largest remaining logits; the lowest index
/// wins ties. sample_second adds Gumbel noise −log(−log u) to the logits of the second choice, with
/// u from philox(seed, s · E + e).
struct RouteTokens {
  const float* logits;        // [S, E]
  const std::int32_t* valid;  // [S], null = all
  float* probs;               // [S, E]
  float* lse;                 // [S]
  std::int32_t* choice;       // [S, k]
  std::int64_t experts;
  int top_k;
  const std::int64_t* noise_index;  // [S], null = no noise
  std::uint64_t seed;

  TESSERA_HOST_DEVICE float score(std::int64_t s, std::int64_t e, int j) const {
    const std::int64_t at = s * experts + e;
    if (j == 0) return probs[at];
    if (j != 1 || noise_index == nullptr) return logits[at];
    const Philox4 bits =
        philox(seed, static_cast<std::uint64_t>(noise_index[s]), static_cast<std::uint64_t>(e));
    // The middle of a cell of 2^-24, so that u is neither 0 nor 1.
    const float u = uniform_from_bits(bits.word[0]) + 0x1p-25f;
    return logits[at] - logf(-logf(u));
  }

  TESSERA_HOST_DEVICE void operator()(std::int64_t s) const {
    const float* row = logits + s * experts;
    float largest = row[0];
    for (std::int64_t e = 1; e < experts; ++e) largest = row[e] > largest ? row[e] : largest;
    float total = 0.0f;
    for (std::int64_t e = 0; e < experts; ++e) {
      const float value = exp(row[e] - largest);
      probs[s * experts + e] = value;
      total += value;
    }
    for (std::int64_t e = 0; e < experts; ++e) probs[s * experts + e] /= total;
    lse[s] = largest + logf(total);

    std::int32_t* mine = choice + s * top_k;
    const bool padding = valid != nullptr && valid[s] == 0;
    for (int j = 0; j < top_k; ++j) mine[j] = -1;
    if (padding) return;
    for (int j = 0; j < top_k; ++j) {
      std::int32_t best = -1;
      float best_score = 0.0f;
      for (std::int64_t e = 0; e < experts; ++e) {
        bool taken = false;
        for (int other = 0; other < j; ++other) taken = taken || mine[other] == e;
        if (taken) continue;
        const float candidate = score(s, e, j);
        if (best < 0 || candidate > best_score) {
          best = static_cast<std::int32_t>(e);
          best_score = candidate;
        }
      }
      mine[j] = best;
    }
  }
};

/// Team functor (one row): queue positions, all first choices in token order, then all second ones,
/// and so on; −1 from `capacity` on. Members count blocks of tokens; `scratch` holds
/// team.size() · experts counts.
struct RoutePositions {
  const std::int32_t* choice;  // [S, k]
  std::int32_t* position;      // [S, k]
  std::int64_t* counts;        // [E]
  std::int64_t* first_counts;  // [E] first choices for k = 2, otherwise all
  std::int64_t* scratch;
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t capacity;  // 0 = no limit
  int top_k;

  template <typename Team>
  TESSERA_HOST_DEVICE void operator()(const Team& team, std::int64_t) const {
    const std::int64_t share = (tokens + team.size() - 1) / team.size();
    const std::int64_t begin = share * team.rank() < tokens ? share * team.rank() : tokens;
    const std::int64_t end = begin + share < tokens ? begin + share : tokens;
    std::int64_t* mine = scratch + team.rank() * experts;
    for (std::int64_t e = team.rank(); e < experts; e += team.size()) counts[e] = 0;
    for (int j = 0; j < top_k; ++j) {
      for (std::int64_t e = 0; e < experts; ++e) mine[e] = 0;
      for (std::int64_t s = begin; s < end; ++s) {
        const std::int32_t e = choice[s * top_k + j];
        if (e >= 0) ++mine[e];
      }
      team.sync();
      // Counts of the members become the numbers at which each goes on.
      for (std::int64_t e = team.rank(); e < experts; e += team.size()) {
        for (int member = 0; member < team.size(); ++member) {
          std::int64_t& cell = scratch[member * experts + e];
          const std::int64_t count = cell;
          cell = counts[e];
          counts[e] += count;
        }
        if (j == 0 || top_k != 2) first_counts[e] = counts[e];
      }
      team.sync();
      for (std::int64_t s = begin; s < end; ++s) {
        const std::int64_t at = s * top_k + j;
        const std::int32_t e = choice[at];
        const std::int64_t number = e < 0 ? 0 : mine[e]++;
        const bool stays = e >= 0 && (capacity == 0 || number < capacity);
        position[at] = stays ? static_cast<std::int32_t>(number) : -1;
      }
    }
  }
};

/// Element functor over experts, the policy "probs": the `capacity` most probable routes of each
/// expert stay (the lower token on ties), numbered in token order.
struct RouteMostProbable {
  const float* probs;
  const std::int32_t* choice;
  std::int32_t* position;
  std::int64_t* counts;
  std::int64_t* first_counts;
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t capacity;  // 0 = no limit
  int top_k;

  /// A probability's order as an integer.
  TESSERA_HOST_DEVICE std::uint32_t key(std::int64_t s, std::int64_t e) const {
    return std::bit_cast<std::uint32_t>(probs[s * experts + e]) & 0x7fffffffu;
  }
  /// Calls body(index of the route, token) for the routes of expert e in token order.
  template <typename Body>
  TESSERA_HOST_DEVICE void for_routes(std::int64_t e, const Body& body) const {
    for (std::int64_t s = 0; s < tokens; ++s) {
      for (int j = 0; j < top_k; ++j) {
        if (choice[s * top_k + j] == e) body(s * top_k + j, s);
      }
    }
  }

  TESSERA_HOST_DEVICE void operator()(std::int64_t e) const {
    std::int64_t count = 0;
    for_routes(e, [&](std::int64_t, std::int64_t) { ++count; });
    counts[e] = count;
    if (top_k == 2) {
      std::int64_t first = 0;
      for (std::int64_t s = 0; s < tokens; ++s) first += choice[s * 2] == e ? 1 : 0;
      first_counts[e] = first;
    } else {
      first_counts[e] = count;
    }
    // Bisection on the bits: the largest key that at least `capacity` routes reach.
    std::uint32_t threshold = 0;
    std::int64_t above = 0;  // routes with a greater key
    if (capacity > 0 && count > capacity) {
      std::uint32_t beyond = 0x80000000u;
      while (beyond - threshold > 1) {
        const std::uint32_t middle = threshold + (beyond - threshold) / 2;
        std::int64_t reached = 0;
        for_routes(e,
                   [&](std::int64_t, std::int64_t s) { reached += key(s, e) >= middle ? 1 : 0; });
        if (reached >= capacity) {
          threshold = middle;
        } else {
          beyond = middle;
          above = reached;
        }
      }
    }
    std::int64_t ties = capacity > 0 ? capacity - above : tokens * top_k;
    std::int32_t number = 0;
    for_routes(e, [&](std::int64_t at, std::int64_t s) {
      bool stays = capacity == 0 || count <= capacity || key(s, e) > threshold;
      if (!stays && key(s, e) == threshold && ties > 0) {
        stays = true;
        --ties;
      }
      position[at] = stays ? number++ : -1;
    });
  }
};

/// Element functor over tokens: weights of the routes that stay, divided by max(sum, FLT_EPSILON)
/// for k > 1. For padding, positions become −1 too.
struct RouteWeights {
  const float* probs;
  const std::int32_t* choice;
  std::int32_t* position;
  float* weight;
  std::int64_t experts;
  int top_k;
  TESSERA_HOST_DEVICE void operator()(std::int64_t s) const {
    float total = 0.0f;
    for (int j = 0; j < top_k; ++j) {
      const std::int64_t at = s * top_k + j;
      if (choice[at] < 0) position[at] = -1;
      weight[at] = position[at] < 0 ? 0.0f : probs[s * experts + choice[at]];
      total += weight[at];
    }
    if (top_k == 1) return;
    const float divisor = total > FLT_EPSILON ? total : FLT_EPSILON;
    for (int j = 0; j < top_k; ++j) weight[s * top_k + j] /= divisor;
  }
};

/// Column functor over [S, E]: sum of the probabilities of routed tokens.
struct RouteProbSums {
  const float* probs;
  const std::int32_t* choice;
  float* output;
  std::int64_t columns;  // experts
  int top_k;
  TESSERA_HOST_DEVICE float term(std::int64_t s, std::int64_t e) const {
    return choice[s * top_k] < 0 ? 0.0f : probs[s * columns + e];
  }
  TESSERA_HOST_DEVICE void finish(std::int64_t e, float sum) const { output[e] = sum; }
};

/// Reduction term: logsumexp² of routed tokens.
struct RouteZTerm {
  using Value = float;
  const float* lse;
  const std::int32_t* choice;
  int top_k;
  TESSERA_HOST_DEVICE float operator()(std::int64_t s) const {
    return choice[s * top_k] < 0 ? 0.0f : lse[s] * lse[s];
  }
};

/// Element functor over tokens: the gradient of the logits from those of the weights, of the sums
/// of probabilities and of lse².
template <Write W>
struct RouteBackward {
  const float* probs;
  const std::int32_t* choice;
  const std::int32_t* position;
  const float* weight;
  const float* lse;
  const float* grad_weight;  // [S, k], null = none
  const float* prob_scale;   // [E], null = none
  float* grad_logits;
  std::int64_t experts;
  float z_scale;
  int top_k;

  /// ∂/∂probs[s, e], the sum of the kept probabilities and Σ grad_weight · weight being known.
  TESSERA_HOST_DEVICE float grad_prob(std::int64_t s, std::int64_t e, float total,
                                      float mean) const {
    float grad = prob_scale == nullptr ? 0.0f : prob_scale[e];
    if (grad_weight == nullptr) return grad;
    for (int j = 0; j < top_k; ++j) {
      const std::int64_t at = s * top_k + j;
      if (choice[at] != e || position[at] < 0) continue;
      if (top_k == 1) {
        grad += grad_weight[at];
      } else if (total > FLT_EPSILON) {
        grad += (grad_weight[at] - mean) / total;
      } else {
        grad += grad_weight[at] / FLT_EPSILON;
      }
    }
    return grad;
  }

  TESSERA_HOST_DEVICE void operator()(std::int64_t s) const {
    const float* p = probs + s * experts;
    float* output = grad_logits + s * experts;
    if (choice[s * top_k] < 0) {
      for (std::int64_t e = 0; e < experts; ++e) write<W>(output, e, 0.0f);
      return;
    }
    float total = 0.0f;
    float mean = 0.0f;
    for (int j = 0; j < top_k; ++j) {
      const std::int64_t at = s * top_k + j;
      if (position[at] < 0) continue;
      total += p[choice[at]];
      if (grad_weight != nullptr) mean += grad_weight[at] * weight[at];
    }
    float dot = 0.0f;
    for (std::int64_t e = 0; e < experts; ++e) dot += p[e] * grad_prob(s, e, total, mean);
    const float z = z_scale * 2.0f * lse[s];
    for (std::int64_t e = 0; e < experts; ++e) {
      write<W>(output, e, p[e] * (grad_prob(s, e, total, mean) - dot + z));
    }
  }
};

}  // namespace tessera::kernels
