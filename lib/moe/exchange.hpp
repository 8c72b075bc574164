// The way of rows to the ranks that hold their experts, and back.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/comm.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::moe {

/// A fixed permutation of rows over the ranks of an expert group. to_experts() and from_experts()
/// are each other's inverse, so each is also the other's backward. Each call is a collective, which
/// ranks without rows enter too. Without a group (or with one rank) rows stay where they are.
class ExpertExchange {
 public:
  /// `counts` [E]: this rank's rows per expert. Exchanges them within the group (a collective) and
  /// waits for the answer. `layer` names the layer in errors.
  ExpertExchange(Context& context, Communicator* group, const std::vector<std::int64_t>& counts,
                 std::string layer);

  /// True when both directions return their argument.
  bool is_identity() const { return group_ == nullptr; }
  /// Rows for each local expert, from all ranks of the group.
  const std::vector<std::int64_t>& expert_rows() const { return expert_rows_; }

  /// Rows [n, width] sorted by expert on their own ranks → rows on the expert's rank, sorted by
  /// (local expert, source rank). `what` names the step in errors, equal on all ranks.
  Tensor to_experts(Context& context, const Tensor& rows, std::string_view what) const;
  /// The way back.
  Tensor from_experts(Context& context, const Tensor& rows, std::string_view what) const;

 private:
  Tensor move(Context& context, const Tensor& rows, const std::vector<std::int64_t>& send,
              const std::vector<std::int64_t>& receive, std::string_view what) const;

  Communicator* group_ = nullptr;
  std::string layer_;
  std::vector<std::int64_t> expert_rows_;
  std::vector<std::int64_t> sent_rows_;      // to each rank
  std::vector<std::int64_t> received_rows_;  // from each rank
  Tensor arrange_, restore_;                 // int32, see ArrivalPlan
};

}  // namespace tessera::moe
