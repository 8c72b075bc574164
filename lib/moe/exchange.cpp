#include "moe/exchange.hpp"

#include <numeric>

#include <fmt/format.h>

#include "base/check.hpp"
#include "kernels/operators.hpp"
#include "moe/dispatch_plan.hpp"
#include "moe/host_copy.hpp"

namespace tessera::moe {
namespace {

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Sums of `parts` equal runs of counts.
std::vector<std::int64_t> sums_by_part(const std::vector<std::int64_t>& counts, int parts) {
  const auto length = static_cast<std::ptrdiff_t>(counts.size()) / parts;
  std::vector<std::int64_t> sums;
  for (auto begin = counts.begin(); begin != counts.end(); begin += length) {
    sums.push_back(std::accumulate(begin, begin + length, std::int64_t{0}));
  }
  return sums;
}

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::int64_t factor) {
  for (std::int64_t& count : counts) count *= factor;
  return counts;
}

}  // namespace

ExpertExchange::ExpertExchange(Context& context, Communicator* group,
                               const std::vector<std::int64_t>& counts, std::string layer)
    : group_(group != nullptr && group->size() > 1 ? group : nullptr), layer_(std::move(layer)) {
  if (is_identity()) {
    expert_rows_ = counts;
    return;
  }
  const int ranks = group_->size();
  const auto experts = static_cast<std::int64_t>(counts.size());
  TESSERA_CHECK(experts % ranks == 0, "{} experts on {} ranks", experts, ranks);
  Stream& stream = context.stream();
  Device& device = context.device();

  const Tensor mine =
      copy_to_device(stream, device, counts, Shape{experts}, DType::kI64, MemoryTag::kComm);
  const Tensor theirs(device, Shape{experts}, DType::kI64, MemoryTag::kComm);
  const std::string label = fmt::format("moe counts {}", layer_);
  stream.wait(group_->all_to_all(mine, theirs, {stream, stream.record(), label}));
  const auto received = read_to_host<std::int64_t>(stream, theirs);

  ArrivalPlan plan = make_arrival_plan(received, ranks, static_cast<int>(experts / ranks));
  expert_rows_ = std::move(plan.expert_rows);
  sent_rows_ = sums_by_part(counts, ranks);
  received_rows_ = sums_by_part(received, ranks);
  const Shape rows{static_cast<std::int64_t>(plan.arrange.size())};
  arrange_ = copy_to_device(stream, device, std::move(plan.arrange), rows, DType::kI32);
  restore_ = copy_to_device(stream, device, std::move(plan.restore), rows, DType::kI32);
}

Tensor ExpertExchange::to_experts(Context& context, const Tensor& rows,
                                  std::string_view what) const {
  if (is_identity()) return rows;
  const Tensor arrived = move(context, rows, sent_rows_, received_rows_, what);
  if (expert_rows_.size() == 1) return arrived;  // one expert: source order is its order
  const Tensor arranged(context.device(), arrived.shape(), arrived.dtype());
  kernels::operators(context.device()).gather_rows(context.stream(), arrived, arrange_, arranged);
  return arranged;
}

Tensor ExpertExchange::from_experts(Context& context, const Tensor& rows,
                                    std::string_view what) const {
  if (is_identity()) return rows;
  Tensor restored = rows;
  if (expert_rows_.size() > 1) {
    restored = Tensor(context.device(), rows.shape(), rows.dtype(), MemoryTag::kComm);
    kernels::operators(context.device()).gather_rows(context.stream(), rows, restore_, restored);
  }
  return move(context, restored, received_rows_, sent_rows_, what);
}

Tensor ExpertExchange::move(Context& context, const Tensor& rows,
                            const std::vector<std::int64_t>& send,
                            const std::vector<std::int64_t>& receive, std::string_view what) const {
  const std::int64_t width = rows.size(1);
  TESSERA_CHECK(rows.size(0) == total(send), "{} rows where {} are sent", rows.size(0),
                total(send));
  Stream& stream = context.stream();
  const Tensor output(context.device(), Shape{total(receive), width}, rows.dtype());
  const std::string label = fmt::format("moe {} {}", what, layer_);
  stream.wait(group_->all_to_all_v(rows, times(send, width), output, times(receive, width),
                                   {stream, stream.record(), label}));
  return output;
}

}  // namespace tessera::moe
