#include "comm/operation.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tessera {

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::kNone: return "nothing";
    case OperationKind::kAllGather: return "all_gather";
    case OperationKind::kReduceScatter: return "reduce_scatter";
    case OperationKind::kAllReduce: return "all_reduce";
    case OperationKind::kAllToAll: return "all_to_all";
    case OperationKind::kAllToAllV: return "all_to_all_v";
    case OperationKind::kBroadcast: return "broadcast";
    case OperationKind::kBarrier: return "barrier";
    case OperationKind::kSend: return "send";
    case OperationKind::kReceive: return "receive";
  }
  return "unknown";
}

void OperationInfo::set_label(std::string_view text) {
  label.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), label.size() - 1), label.begin());
  label_hash =
      1469598103934665603u;  // FNV-1a over the whole text: the cut must not hide a difference
  for (const char c : text) {
    label_hash = (label_hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
}

std::string OperationInfo::describe() const {
  std::string text = fmt::format("{} #{}", to_string(kind), sequence);
  if (label[0] != '\0') text += fmt::format(" \"{}\"", label.data());
  if (kind == OperationKind::kBarrier || kind == OperationKind::kNone) return text;
  text += kind == OperationKind::kAllToAllV ? " of" : fmt::format(" of {}", elements);
  text += fmt::format(" {}", to_string(static_cast<DType>(dtype)));
  if (kind == OperationKind::kAllReduce || kind == OperationKind::kReduceScatter) {
    constexpr std::array<std::string_view, 3> kNames{"sum", "max", "min"};
    text += fmt::format(" ({})", kNames[std::min<std::size_t>(reduce, 2)]);
  }
  if (kind == OperationKind::kBroadcast) text += fmt::format(" from {}", root);
  return text;
}

bool OperationInfo::agrees_with(const OperationInfo& other) const {
  return sequence == other.sequence && kind == other.kind && dtype == other.dtype &&
         elements == other.elements && root == other.root && reduce == other.reduce &&
         label_hash == other.label_hash;
}

std::string GroupInfo::ranks_text(std::span<const int> members) const {
  std::string text = members.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i > 0) text += i + 1 == members.size() ? " and " : ", ";
    text += std::to_string(world_ranks[static_cast<std::size_t>(members[i])]);
  }
  return text;
}

void check_agreement(const GroupInfo& group, std::span<const OperationInfo> records) {
  for (std::size_t i = 1; i < records.size(); ++i) {
    if (records[i].agrees_with(records[0])) continue;
    fail(ErrorCode::kUsage, "ranks of group {} disagree: rank {} is in {}, rank {} in {}",
         group.name, group.world_ranks[0], records[0].describe(), group.world_ranks[i],
         records[i].describe());
  }
}

void counts_differ(const GroupInfo& group, const OperationInfo& info, int source, int destination,
                   std::int64_t sent, std::int64_t expected) {
  fail(ErrorCode::kUsage, "{} in group {}: rank {} sends {} elements to rank {}, which expects {}",
       info.describe(), group.name, group.world_ranks[static_cast<std::size_t>(source)], sent,
       group.world_ranks[static_cast<std::size_t>(destination)], expected);
}

void timed_out(const GroupInfo& group, const OperationInfo& info, double seconds,
               std::span<const int> missing, std::string_view detail) {
  fail(ErrorCode::kPeer, "{} in group {} of {} ranks: no answer from {} within {} s{}{}",
       info.describe(), group.name, group.size(), group.ranks_text(missing), seconds,
       detail.empty() ? "" : "; ", detail);
}

}  // namespace tessera
