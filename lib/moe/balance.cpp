#include "moe/balance.hpp"

#include "moe/host_copy.hpp"

namespace tessera::moe {

BalanceSums BalanceSums::all_reduce(Context& context, Communicator& group,
                                    std::string_view label) const {
  const std::size_t experts = prob_sums.size();
  std::vector<double> packed;
  packed.reserve(2 * experts + 1);
  packed.insert(packed.end(), prob_sums.begin(), prob_sums.end());
  packed.insert(packed.end(), first_counts.begin(), first_counts.end());
  packed.push_back(tokens);

  Stream& stream = context.stream();
  const auto size = static_cast<std::int64_t>(packed.size());
  const Tensor local = copy_to_device(stream, context.device(), std::move(packed), Shape{size},
                                      DType::kF64, MemoryTag::kComm);
  // Into a tensor of its own: the local sums stay what they are.
  const Tensor total(context.device(), Shape{size}, DType::kF64, MemoryTag::kComm);
  stream.wait(group.all_reduce(local, total, ReduceOp::kSum, {stream, stream.record(), label}));

  const std::vector<double> values = read_to_host<double>(stream, total);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(experts);
  return {{values.begin(), middle}, {middle, values.end() - 1}, values.back()};
}

Balance balance_loss(const BalanceSums& sums, int top_k) {
  const std::size_t experts = sums.prob_sums.size();
  Balance balance;
  balance.slope.assign(experts, 0.0);
  if (sums.tokens == 0.0) return balance;
  const double factor = static_cast<double>(experts) / (top_k <= 2 ? 1 : top_k);
  for (std::size_t e = 0; e < experts; ++e) {
    balance.slope[e] = factor * sums.first_counts[e] / sums.tokens;
    balance.loss += balance.slope[e] * sums.prob_sums[e] / sums.tokens;
  }
  return balance;
}

}  // namespace tessera::moe
