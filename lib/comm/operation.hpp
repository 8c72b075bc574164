// What a rank publishes about the operation it is in, so that disagreement and absence can be
// named.
#pragma once

#include <tessera/comm.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The operations of a communicator.
enum class OperationKind : std::uint32_t {
  kNone,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kAllToAllV,
  kBroadcast,
  kBarrier,
  kSend,
  kReceive,
};

/// "all_gather", "reduce_scatter", …
std::string_view to_string(OperationKind kind);

/// A plain record that ranks exchange as bytes. Ranks that meet must agree on everything in it.
struct OperationInfo {
  std::uint64_t sequence = 0;  ///< counts the operations of a group, from 1
  OperationKind kind = OperationKind::kNone;
  std::uint32_t dtype = 0;
  std::int64_t elements = 0;  ///< per rank (the n of <tessera/comm.hpp>); 0 where ranks may differ
  std::int32_t root = -1;
  std::uint32_t reduce = 0;
  std::uint64_t label_hash = 0;
  double timeout_s = 0.0;        ///< 0 = the group's; need not agree
  std::array<char, 64> label{};  ///< cut to 63 characters

  void set_label(std::string_view text);
  /// `all_gather #7 "block 3" of 100 fp32`.
  std::string describe() const;
  /// True when two ranks may meet in one operation.
  bool agrees_with(const OperationInfo& other) const;
};

/// Names of a group's members in messages.
struct GroupInfo {
  std::string name = "world";
  int rank = 0;
  std::vector<int> world_ranks;  ///< by group rank

  int size() const { return static_cast<int>(world_ranks.size()); }
  /// "rank 3" or "ranks 1, 3 and 5": group ranks, told as ranks of the job.
  std::string ranks_text(std::span<const int> members) const;
};

/// Raises Error{kUsage} naming both sides when the records, one per group rank, do not agree. Every
/// rank raises the same message.
void check_agreement(const GroupInfo& group, std::span<const OperationInfo> records);

/// Raises Error{kUsage}: `sent` elements leave `source` for `destination`, which expects
/// `expected`.
[[noreturn]] void counts_differ(const GroupInfo& group, const OperationInfo& info, int source,
                                int destination, std::int64_t sent, std::int64_t expected);

/// Error{kPeer} for an operation whose peers did not come in time. `detail` may say more.
[[noreturn]] void timed_out(const GroupInfo& group, const OperationInfo& info, double seconds,
                            std::span<const int> missing, std::string_view detail = {});

}  // namespace tessera
