// Communication between ranks: one asynchronous interface, complete on every backend.
#pragma once

#include <tessera/export.hpp>
#include <tessera/stream.hpp>
#include <tessera/tensor.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Reductions over ranks. Sums of FP16, BF16 and FP32 are formed in FP32 along one fixed binary
/// tree of rank numbers, ((0+1)+(2+3))+…, and rounded once; FP64 and integers in their own type.
/// kMax of floating-point values propagates NaN.
enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

/// What a collective needs besides its data.
struct CollectiveOrder {
  Stream& stream;  ///< the stream that will use the result (a GPU backend enqueues on it)
  Event ready;     ///< reached when the input may be read and the output may be overwritten
  /// Names the work in errors and logs, for instance the unit that is gathered. Ranks that meet in
  /// one collective with different labels, operations or sizes are stopped with both named.
  std::string_view label = {};
  /// How long to wait for peers, in seconds, where that may rightly be long (a rank that saves
  /// while others wait); 0 = the communicator's timeout. Give it on every rank.
  double timeout_s = 0.0;
};

/// A group of ranks that talk to each other. Every rank of the group calls the same operations in
/// the same order. Operations are started in call order and return at once; the returned Event is
/// reached when the local output is complete and the local input is free again.
///
/// The operations of a rank, on all its communicators together, are carried out one after another
/// in call order. Ranks that share several groups must therefore call operations of different
/// groups in an order that fits: where one rank calls A then B, no other rank of both may call B
/// then A.
///
/// An operation fails with Error{kPeer} naming operation, sequence number, label and the missing
/// ranks when the timeout runs out or a peer is lost; with Error{kUsage} naming both sides when
/// ranks meet with different operations, labels, sizes or counts; and with the other rank's own
/// error, as "rank N: message", when that failed first. A failure ends the whole job: every later
/// operation of every rank fails at once with the first cause.
///
/// Tensors are contiguous; counts are elements. Counts of zero are legal everywhere.
/// Safe to call from one thread per rank. Destroy after all its events are reached.
class TESSERA_API Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  ///< this rank within the group
  virtual int size() const = 0;
  /// "world", or what split() was given.
  virtual const std::string& name() const = 0;
  /// "local", "mpi" or "nccl".
  virtual std::string_view backend() const = 0;

  /// output [size · n] = the inputs [n] of all ranks in rank order. In place when input is the
  /// rank's own part of output.
  virtual Event all_gather(const Tensor& input, const Tensor& output, CollectiveOrder order) = 0;
  /// output [n] = part `rank` of the reduction over ranks of input [size · n]. In place when output
  /// is the rank's own part of input.
  virtual Event reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                               CollectiveOrder order) = 0;
  /// output [n] = the reduction of input [n] over all ranks, the same bits everywhere. May be in
  /// place.
  virtual Event all_reduce(const Tensor& input, const Tensor& output, ReduceOp op,
                           CollectiveOrder order) = 0;
  /// Part r of input [size · n] goes to rank r; output part r comes from rank r. Not in place.
  virtual Event all_to_all(const Tensor& input, const Tensor& output, CollectiveOrder order) = 0;
  /// As all_to_all with send_counts[r] elements to and receive_counts[r] elements from rank r,
  /// packed without gaps. Counts must agree between the two sides (checked).
  virtual Event all_to_all_v(const Tensor& input, std::span<const std::int64_t> send_counts,
                             const Tensor& output, std::span<const std::int64_t> receive_counts,
                             CollectiveOrder order) = 0;
  /// data of `root` is copied to every rank.
  virtual Event broadcast(const Tensor& data, int root, CollectiveOrder order) = 0;
  /// Point to point; messages between two ranks arrive in order. A send completes without its
  /// receive (the data is copied), so all ranks of a ring may send first and receive afterwards.
  virtual Event send(const Tensor& data, int destination, CollectiveOrder order) = 0;
  virtual Event receive(const Tensor& data, int source, CollectiveOrder order) = 0;
  /// Reached when every rank has called it.
  virtual Event barrier(CollectiveOrder order) = 0;

  /// Divides the group: ranks with the same color form a new one, ordered by (key, old rank).
  /// Blocking. `name` must be equal on all ranks. Children are destroyed before their parent.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;

  /// Ends all operations of this job's ranks soon: peers' operations fail with `cause`'s code and
  /// message. Called by a rank that failed; never blocks long.
  virtual void abort(int exit_code, std::string_view cause) noexcept = 0;

  // Blocking helpers for small host values, built on the operations above.

  /// Every rank's bytes, in rank order; lengths may differ.
  std::vector<std::string> all_gather_bytes(std::string_view bytes, std::string_view label = {});
  /// The root's bytes on every rank.
  std::string broadcast_bytes(std::string_view bytes, int root, std::string_view label = {});
  /// Element-wise reduction of host values, in place.
  void all_reduce_values(std::span<double> values, ReduceOp op, std::string_view label = {});
  void all_reduce_values(std::span<std::int64_t> values, ReduceOp op, std::string_view label = {});
  /// Blocks until every rank is here.
  void barrier_blocking(std::string_view label = {});
};

}  // namespace tessera
