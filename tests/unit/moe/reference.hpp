// A mixture-of-experts layer as plain FP64 loops, and the layer under test run on the same case.
#pragma once

#include <tessera/moe.hpp>
#include <tessera/options.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/philox.hpp"

namespace tessera::test {

/// Tokens of one micro batch on one rank, `sequences` whole sequences.
struct Share {
  std::vector<std::int64_t> sequence_index;  ///< [B], −1 = padding
  std::vector<double> x;                     ///< [B, T, hidden]
  std::vector<double> cotangent;             ///< ∂(main loss · N)/∂y, same shape
};

/// A layer's weights by canonical name, and what goes through it in one optimizer step. All numbers
/// are exact in FP32.
struct MoeCase {
  MoeOptions options;
  std::int64_t hidden = 8;
  std::int64_t intermediate = 12;
  std::int64_t time = 3;
  std::map<std::string, std::vector<double>> weights;
  std::vector<std::vector<Share>> steps;  ///< [micro step][rank]

  /// Tokens that are not padding, in all shares.
  std::int64_t tokens() const {
    std::int64_t count = 0;
    for (const auto& step : steps) {
      for (const Share& share : step) count += tokens_of(share);
    }
    return count;
  }
  std::int64_t tokens_of(const Share& share) const {
    const auto& index = share.sequence_index;
    const auto padding = std::count(index.begin(), index.end(), -1);
    return (static_cast<std::int64_t>(index.size()) - padding) * time;
  }
};

/// `count` numbers near a normal distribution, multiples of 1/64.
inline std::vector<double> numbers(std::uint64_t key, std::int64_t count, double std) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(std::round(64.0 * std * normal_at(key, static_cast<std::uint64_t>(i))) / 64.0);
  }
  return values;
}

/// `sequences` sequences from global number `first` on.
inline Share make_share(const MoeCase& moe, std::int64_t first, std::int64_t sequences) {
  Share share;
  for (std::int64_t i = first; i < first + sequences; ++i) {
    share.sequence_index.push_back(i);
    const auto append = [&](std::vector<double>& to, std::uint64_t key) {
      const auto more = numbers(key, moe.time * moe.hidden, 1.0);
      to.insert(to.end(), more.begin(), more.end());
    };
    append(share.x, static_cast<std::uint64_t>(1000 + i));
    append(share.cotangent, static_cast<std::uint64_t>(5000 + i));
  }
  return share;
}

/// Turns the share's last `sequences` sequences into padding (with contents that would show).
inline void pad_last(Share& share, std::size_t sequences) {
  std::fill(share.sequence_index.end() - static_cast<std::ptrdiff_t>(sequences),
            share.sequence_index.end(), -1);
}

/// Weights for `moe.options`, and `steps` micro steps of `ranks` shares with `sequences` each.
inline void fill_case(MoeCase& moe, int steps, int ranks, std::int64_t sequences) {
  const int experts = moe.options.num_experts;
  moe.weights["gate.weight"] = numbers(1, experts * moe.hidden, 0.6);
  for (int e = 0; e < experts; ++e) {
    for (const char* name : {"w1", "w3", "w2"}) {
      const std::string full = "experts." + std::to_string(e) + "." + name + ".weight";
      moe.weights[full] = numbers(hash_name(full), moe.hidden * moe.intermediate, 0.35);
    }
  }
  std::int64_t next = 0;
  for (int step = 0; step < steps; ++step) {
    moe.steps.emplace_back();
    for (int rank = 0; rank < ranks; ++rank, next += sequences) {
      moe.steps.back().push_back(make_share(moe, next, sequences));
    }
  }
}

/// What one share gives.
struct ShareOutcome {
  std::vector<double> y;
  std::vector<double> prob_sums, first_counts;
  std::vector<std::int64_t> counts;
  std::int64_t dropped = 0;
  double tokens = 0.0;
  double z_sum = 0.0;
};

/// Forward pass of the reference. k <= 2, or any k without dropping.
inline ShareOutcome reference_share(const MoeCase& moe, const Share& share) {
  const auto experts = static_cast<std::size_t>(moe.options.num_experts);
  const auto h = static_cast<std::size_t>(moe.hidden);
  const auto f = static_cast<std::size_t>(moe.intermediate);
  const auto k = static_cast<std::size_t>(moe.options.top_k);
  const std::size_t rows = share.x.size() / h;
  const auto time = static_cast<std::size_t>(moe.time);
  ShareOutcome out;
  out.y.assign(share.x.size(), 0.0);
  out.prob_sums.assign(experts, 0.0);
  out.first_counts.assign(experts, 0.0);
  out.counts.assign(experts, 0);
  out.tokens = static_cast<double>(moe.tokens_of(share));

  std::vector<std::vector<double>> p(rows);
  std::vector<std::vector<std::size_t>> choice(rows);
  const auto& gate = moe.weights.at("gate.weight");
  for (std::size_t s = 0; s < rows; ++s) {
    if (share.sequence_index[s / time] < 0) continue;
    std::vector<double> logits(experts, 0.0);
    double sum = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      for (std::size_t i = 0; i < h; ++i) logits[e] += gate[e * h + i] * share.x[s * h + i];
      sum += std::exp(logits[e]);
    }
    out.z_sum += std::log(sum) * std::log(sum);
    for (std::size_t e = 0; e < experts; ++e) p[s].push_back(std::exp(logits[e]) / sum);
    for (std::size_t e = 0; e < experts; ++e) out.prob_sums[e] += p[s][e];
    std::vector<double> left = p[s];
    for (std::size_t j = 0; j < k; ++j) {
      const auto best =
          static_cast<std::size_t>(std::max_element(left.begin(), left.end()) - left.begin());
      choice[s].push_back(best);
      left[best] = -1.0;
      if (k > 2 || j == 0) out.first_counts[best] += 1.0;
    }
  }

  std::int64_t capacity = INT64_MAX;
  if (moe.options.drop_tokens) {
    const auto share_of_expert = static_cast<float>(out.tokens / static_cast<double>(experts));
    const auto factor = static_cast<float>(static_cast<double>(k) * moe.options.capacity_factor);
    capacity = std::max<std::int64_t>(
        static_cast<std::int64_t>(std::ceil(share_of_expert * factor)), moe.options.min_capacity);
  }
  std::vector<std::vector<double>> weight(rows, std::vector<double>(k, 0.0));
  for (std::size_t j = 0; j < k; ++j) {
    for (std::size_t s = 0; s < rows; ++s) {
      if (choice[s].empty()) continue;
      const std::size_t e = choice[s][j];
      if (out.counts[e]++ < capacity) {
        weight[s][j] = p[s][e];
      } else {
        ++out.dropped;
      }
    }
  }
  for (std::size_t s = 0; s < rows; ++s) {
    double sum = 0.0;
    for (const double w : weight[s]) sum += w;
    for (std::size_t j = 0; j < choice[s].size(); ++j) {
      if (weight[s][j] == 0.0) continue;
      const double w = k == 1 ? weight[s][j] : weight[s][j] / sum;
      const std::string expert = "experts." + std::to_string(choice[s][j]) + ".";
      const auto& w1 = moe.weights.at(expert + "w1.weight");
      const auto& w3 = moe.weights.at(expert + "w3.weight");
      const auto& w2 = moe.weights.at(expert + "w2.weight");
      for (std::size_t a = 0; a < f; ++a) {
        double gate_value = 0.0;
        double up = 0.0;
        for (std::size_t i = 0; i < h; ++i) {
          gate_value += w1[a * h + i] * share.x[s * h + i];
          up += w3[a * h + i] * share.x[s * h + i];
        }
        const double activation = gate_value / (1.0 + std::exp(-gate_value)) * up;
        for (std::size_t i = 0; i < h; ++i) out.y[s * h + i] += w * w2[i * f + a] * activation;
      }
    }
  }
  return out;
}

/// The balance loss of some sums.
inline double reference_balance(const MoeOptions& options, const std::vector<double>& prob_sums,
                                const std::vector<double>& first_counts, double tokens) {
  if (tokens == 0.0) return 0.0;
  double loss = 0.0;
  for (std::size_t e = 0; e < prob_sums.size(); ++e) {
    loss += prob_sums[e] / tokens * first_counts[e] / tokens;
  }
  return loss * options.num_experts / (options.top_k <= 2 ? 1 : options.top_k);
}

/// Loss of the whole step: Σ cotangent · y / N plus the auxiliary terms, each weighted by its share
/// of the step's tokens.
inline double reference_loss(const MoeCase& moe) {
  const auto all = static_cast<double>(moe.tokens());
  double loss = 0.0;
  for (const auto& step : moe.steps) {
    const auto experts = static_cast<std::size_t>(moe.options.num_experts);
    std::vector<double> prob_sums(experts, 0.0), first_counts(experts, 0.0);
    double tokens = 0.0;
    for (const Share& share : step) {
      const ShareOutcome out = reference_share(moe, share);
      for (std::size_t i = 0; i < out.y.size(); ++i) loss += share.cotangent[i] * out.y[i] / all;
      loss += moe.options.z_loss_coef * out.z_sum / all;
      if (moe.options.aux_loss_scope == "local") {
        loss += moe.options.aux_loss_coef * out.tokens / all *
                reference_balance(moe.options, out.prob_sums, out.first_counts, out.tokens);
      }
      for (std::size_t e = 0; e < experts; ++e) {
        prob_sums[e] += out.prob_sums[e];
        first_counts[e] += out.first_counts[e];
      }
      tokens += out.tokens;
    }
    if (moe.options.aux_loss_scope == "global") {
      loss += moe.options.aux_loss_coef * tokens / all *
              reference_balance(moe.options, prob_sums, first_counts, tokens);
    }
  }
  return loss;
}

/// Central differences of reference_loss in `values`, which is part of `moe`.
inline std::vector<double> reference_gradient(const MoeCase& moe, std::vector<double>& values) {
  constexpr double kStep = 1e-5;
  std::vector<double> gradient;
  for (double& value : values) {
    const double before = value;
    value = before + kStep;
    const double above = reference_loss(moe);
    value = before - kStep;
    const double below = reference_loss(moe);
    value = before;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

/// Largest difference, in units of the reference's largest value (or of `floor`).
inline double distance(const std::vector<double>& values, const std::vector<double>& reference,
                       double floor = 1e-3) {
  if (values.size() != reference.size()) return INFINITY;
  double largest = floor;
  double apart = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return INFINITY;
    largest = std::max(largest, std::abs(reference[i]));
    apart = std::max(apart, std::abs(values[i] - reference[i]));
  }
  return apart / largest;
}

}  // namespace tessera::test
