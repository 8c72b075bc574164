#include "comm/group_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/check.hpp"
#include "comm/exchange.hpp"
#include "comm/reduce.hpp"

namespace tessera {

namespace {

// How long a destructor lets sends go on that nobody has taken yet.
constexpr std::chrono::seconds kSendGrace{5};
// How long a lost connection waits for the peer's own error.
constexpr std::chrono::seconds kCauseGrace{2};

std::byte* bytes_of(const Tensor& tensor) {
  return tensor.elements() == 0 ? nullptr : static_cast<std::byte*>(tensor.raw_data());
}

void check_tensor(const Tensor& tensor, std::string_view operation) {
  if (!tensor.defined() || tensor.device().type() == DeviceType::kCPU) return;
  fail(ErrorCode::kUsage, "{}: this communicator moves memory of the CPU only", operation);
}

void check_pair(const Tensor& input, const Tensor& output, std::int64_t input_parts,
                std::int64_t output_parts, std::string_view operation) {
  check_tensor(input, operation);
  check_tensor(output, operation);
  if (input.elements() * output_parts == output.elements() * input_parts &&
      input.elements() % input_parts == 0 && input.dtype() == output.dtype()) {
    return;
  }
  fail(ErrorCode::kUsage, "{}: input of {} {} does not fit output of {} {}", operation,
       input.elements(), to_string(input.dtype()), output.elements(), to_string(output.dtype()));
}

void check_reducible(DType dtype, std::string_view operation) {
  if (!is_reducible(dtype)) {
    fail(ErrorCode::kUsage, "{}: {} has no sum, convert it first", operation, to_string(dtype));
  }
}

Event failed_event(std::exception_ptr cause) {
  const Event event = Event::pending();
  event.fail(std::move(cause));
  return event;
}

}  // namespace

GroupCommunicator::GroupCommunicator(GroupLinks links)
    : links_(std::move(links)),
      sends_(links_.group->world_ranks.size()),
      receives_(links_.group->world_ranks.size()) {}

OperationInfo GroupCommunicator::make_info(OperationKind kind, DType dtype, std::int64_t elements,
                                           const CollectiveOrder& order) const {
  OperationInfo info;
  info.kind = kind;
  info.dtype = static_cast<std::uint32_t>(dtype);
  info.elements = elements;
  info.timeout_s = order.timeout_s;
  info.set_label(order.label);
  return info;
}

Event GroupCommunicator::submit_collective(OperationInfo info, const Event& ready, Body body) {
  info.sequence = ++sequence_;
  if (size() > 1 || !ready.ready()) return submit(info, ready, std::move(body));
  try {
    run(info, ready, body);
  } catch (...) {
    publish_failure(std::current_exception());
    return failed_event(std::current_exception());
  }
  return {};
}

Event GroupCommunicator::submit(const OperationInfo& info, const Event& ready, Body body) {
  const Event done = Event::pending();
  in_flight_.fetch_add(1);
  links_.monitor->thread().submit(
      [this, info, ready = Event(ready), done, body = std::move(body)]() mutable {
        std::exception_ptr failure;
        try {
          run(info, ready, body);
        } catch (...) {
          failure = std::current_exception();
          publish_failure(failure);
          // Leaked on purpose: a message that can't be called back may still read the tensors.
          if (links_.transport->memory_in_use()) static_cast<void>(new Body(body));
        }
        // Lets the tensors go before anybody hears that the operation is done.
        body = nullptr;
        ready = Event();
        if (failure) keep_failed(done);
        in_flight_.fetch_sub(1);
        done.fail(std::move(failure));
      });
  return done;
}

void GroupCommunicator::run(const OperationInfo& info, const Event& ready, const Body& body) {
  const Monitor& monitor = *links_.monitor;
  if (const std::optional<Cause> cause = job().cause()) throw AbortedError(*cause);
  if (!ready.ready()) {
    while (!ready.wait_for(monitor.slice())) monitor.check();
  }
  ready.wait();  // passes on the failure of the work that should have made the input
  if (size() > 1) links_.monitor->use_timeout(info.timeout_s);
  try {
    body(info);
  } catch (const LostPeerError&) {
    // Why a peer is gone is worth a short wait: its own error ends the job better than ours.
    const auto deadline = std::chrono::steady_clock::now() + kCauseGrace;
    while (std::chrono::steady_clock::now() < deadline) {
      monitor.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw;
  }
}

void GroupCommunicator::keep_failed(const Event& event) {
  const std::lock_guard lock(failed_mutex_);
  failed_.push_back(event);
}

void GroupCommunicator::publish_failure(const std::exception_ptr& failure) noexcept {
  if (links_.monitor->closing()) return;
  try {
    std::rethrow_exception(failure);
  } catch (const AbortedError&) {
    return;
  } catch (...) {
    job().publish(cause_of(failure, job().rank()));
  }
}

Event GroupCommunicator::all_gather(const Tensor& input, const Tensor& output,
                                    CollectiveOrder order) {
  check_pair(input, output, 1, size(), "all_gather");
  return submit_collective(
      make_info(OperationKind::kAllGather, input.dtype(), input.elements(), order), order.ready,
      [this, input, output](const OperationInfo& info) {
        links_.transport->all_gather(info, bytes_of(input), bytes_of(output), input.bytes());
      });
}

Event GroupCommunicator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                        CollectiveOrder order) {
  check_pair(input, output, size(), 1, "reduce_scatter");
  check_reducible(input.dtype(), "reduce_scatter");
  OperationInfo wanted =
      make_info(OperationKind::kReduceScatter, input.dtype(), output.elements(), order);
  wanted.reduce = static_cast<std::uint32_t>(op);
  return submit_collective(
      wanted, order.ready, [this, input, output, op](const OperationInfo& info) {
        links_.transport->reduce_scatter(info, bytes_of(input), bytes_of(output), output.elements(),
                                         output.dtype(), op);
      });
}

Event GroupCommunicator::all_reduce(const Tensor& input, const Tensor& output, ReduceOp op,
                                    CollectiveOrder order) {
  check_pair(input, output, 1, 1, "all_reduce");
  check_reducible(input.dtype(), "all_reduce");
  OperationInfo wanted =
      make_info(OperationKind::kAllReduce, input.dtype(), input.elements(), order);
  wanted.reduce = static_cast<std::uint32_t>(op);
  return submit_collective(wanted, order.ready,
                           [this, input, output, op](const OperationInfo& info) {
                             links_.transport->all_reduce(info, bytes_of(input), bytes_of(output),
                                                          output.elements(), output.dtype(), op);
                           });
}

Event GroupCommunicator::all_to_all(const Tensor& input, const Tensor& output,
                                    CollectiveOrder order) {
  check_pair(input, output, size(), size(), "all_to_all");
  const std::int64_t part = input.elements() / size();
  return submit_collective(make_info(OperationKind::kAllToAll, input.dtype(), part, order),
                           order.ready, [this, input, output, part](const OperationInfo& info) {
                             const std::vector<std::int64_t> bytes(
                                 static_cast<std::size_t>(size()),
                                 part * static_cast<std::int64_t>(size_of(input.dtype())));
                             links_.transport->all_to_all(info, bytes_of(input), bytes,
                                                          bytes_of(output), bytes);
                           });
}

Event GroupCommunicator::all_to_all_v(const Tensor& input,
                                      std::span<const std::int64_t> send_counts,
                                      const Tensor& output,
                                      std::span<const std::int64_t> receive_counts,
                                      CollectiveOrder order) {
  check_tensor(input, "all_to_all_v");
  check_tensor(output, "all_to_all_v");
  const auto sums_to = [&](std::span<const std::int64_t> counts, const Tensor& tensor) {
    return counts.size() == static_cast<std::size_t>(size()) &&
           std::all_of(counts.begin(), counts.end(),
                       [](std::int64_t count) { return count >= 0; }) &&
           std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) <= tensor.elements();
  };
  if (!sums_to(send_counts, input) || !sums_to(receive_counts, output) ||
      input.dtype() != output.dtype()) {
    fail(ErrorCode::kUsage,
         "all_to_all_v: counts do not fit {} ranks, input of {} {} and output of {} {}", size(),
         input.elements(), to_string(input.dtype()), output.elements(), to_string(output.dtype()));
  }
  const auto in_bytes = [&](std::span<const std::int64_t> counts) {
    std::vector<std::int64_t> bytes(counts.begin(), counts.end());
    for (std::int64_t& value : bytes) value *= static_cast<std::int64_t>(size_of(input.dtype()));
    return bytes;
  };
  return submit_collective(make_info(OperationKind::kAllToAllV, input.dtype(), 0, order),
                           order.ready,
                           [this, input, output, send_bytes = in_bytes(send_counts),
                            receive_bytes = in_bytes(receive_counts)](const OperationInfo& info) {
                             links_.transport->all_to_all(info, bytes_of(input), send_bytes,
                                                          bytes_of(output), receive_bytes);
                           });
}

Event GroupCommunicator::broadcast(const Tensor& data, int root, CollectiveOrder order) {
  check_tensor(data, "broadcast");
  check_peer(root, "broadcast");
  OperationInfo wanted = make_info(OperationKind::kBroadcast, data.dtype(), data.elements(), order);
  wanted.root = root;
  return submit_collective(wanted, order.ready, [this, data, root](const OperationInfo& info) {
    links_.transport->broadcast(info, bytes_of(data), data.bytes(), root);
  });
}

Event GroupCommunicator::barrier(CollectiveOrder order) {
  return submit_collective(make_info(OperationKind::kBarrier, DType::kU8, 0, order), order.ready,
                           [this](const OperationInfo& info) { links_.transport->barrier(info); });
}

Event GroupCommunicator::send(const Tensor& data, int destination, CollectiveOrder order) {
  check_tensor(data, "send");
  check_peer(destination, "send");
  OperationInfo wanted = make_info(OperationKind::kSend, data.dtype(), data.elements(), order);
  wanted.sequence = ++sends_[static_cast<std::size_t>(destination)];
  return submit(wanted, order.ready, [this, data, destination](const OperationInfo& info) {
    send_now(info, bytes_of(data), data.bytes(), destination);
  });
}

Event GroupCommunicator::receive(const Tensor& data, int source, CollectiveOrder order) {
  check_tensor(data, "receive");
  check_peer(source, "receive");
  OperationInfo wanted = make_info(OperationKind::kReceive, data.dtype(), data.elements(), order);
  wanted.sequence = ++receives_[static_cast<std::size_t>(source)];
  return submit(wanted, order.ready, [this, data, source](const OperationInfo& info) {
    receive_now(info, bytes_of(data), data.bytes(), source);
  });
}

void GroupCommunicator::send_now(const OperationInfo& info, const std::byte* data,
                                 std::size_t bytes, int destination) {
  // The message is copied, so that the order of calls on two ranks can't make both wait: a ring may
  // send first and receive afterwards.
  struct Message {
    OperationInfo info;
    std::vector<std::byte> data;
    std::unique_ptr<Messenger::Request> record_request;
    std::unique_ptr<Messenger::Request> data_request;
  };
  const auto message = std::make_shared<Message>();
  message->info = info;
  message->data.assign(data, data + bytes);
  Messenger& messenger = *links_.messenger;
  message->record_request = messenger.send(
      destination, kChannelUser, std::as_bytes(std::span<const OperationInfo>(&message->info, 1)));
  if (bytes > 0) {
    message->data_request = messenger.send(destination, kChannelUser, message->data);
  }
  const auto finished = [message, &messenger] {
    if (!messenger.done(*message->record_request)) return false;
    return message->data_request == nullptr || messenger.done(*message->data_request);
  };
  if (finished()) return;
  sends_in_flight_.fetch_add(1);
  links_.monitor->thread().add_background([this, message, finished, alive = alive_] {
    if (!*alive) {
      // Leaked on purpose: the message is still on its way when its communicator is gone.
      static_cast<void>(new std::shared_ptr<Message>(message));
      return true;
    }
    if (!finished()) return false;
    sends_in_flight_.fetch_sub(1);
    return true;
  });
}

void GroupCommunicator::receive_now(const OperationInfo& info, std::byte* data, std::size_t bytes,
                                    int source) {
  OperationInfo sent;
  Exchange record(*links_.messenger, *links_.group, *links_.monitor);
  record.receive(source, kChannelUser, std::as_writable_bytes(std::span<OperationInfo>(&sent, 1)));
  record.await(info);
  OperationInfo expected = info;
  expected.kind = OperationKind::kSend;
  if (!sent.agrees_with(expected)) {
    fail(ErrorCode::kUsage, "ranks of group {} disagree: rank {} is in {}, rank {} in {}", name(),
         links_.group->world_ranks[static_cast<std::size_t>(source)], sent.describe(),
         links_.group->world_ranks[static_cast<std::size_t>(rank())], info.describe());
  }
  Exchange content(*links_.messenger, *links_.group, *links_.monitor);
  content.receive(source, kChannelUser, {data, bytes});
  content.await(info);
}

void GroupCommunicator::check_peer(int peer, std::string_view operation) const {
  if (peer < 0 || peer >= size()) {
    fail(ErrorCode::kUsage, "{}: rank {} is not in group {} of {} ranks", operation, peer, name(),
         size());
  }
}

std::unique_ptr<Communicator> GroupCommunicator::split(int color, int key, std::string name) {
  struct Choice {
    int color;
    int key;
  };
  const Choice mine{color, key};
  std::string record(reinterpret_cast<const char*>(&mine), sizeof(mine));
  const std::vector<std::string> records = all_gather_bytes(record + name, "split");
  std::vector<Choice> choices(records.size());
  std::vector<int> colors;
  std::vector<int> members;
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::memcpy(&choices[i], records[i].data(), sizeof(Choice));
    if (records[i].substr(sizeof(Choice)) != records[0].substr(sizeof(Choice))) {
      fail(ErrorCode::kUsage, "split of group {}: rank {} says \"{}\", rank {} \"{}\"",
           this->name(), links_.group->world_ranks[0], records[0].substr(sizeof(Choice)),
           links_.group->world_ranks[i], records[i].substr(sizeof(Choice)));
    }
    colors.push_back(choices[i].color);
    if (choices[i].color == color) members.push_back(static_cast<int>(i));
  }
  std::sort(colors.begin(), colors.end());
  colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
  });
  GroupInfo group;
  group.name = std::move(name);
  group.rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  for (const int member : members) {
    group.world_ranks.push_back(links_.group->world_ranks[static_cast<std::size_t>(member)]);
  }
  const auto index = std::lower_bound(colors.begin(), colors.end(), color) - colors.begin();
  return make_child(std::move(group), members, static_cast<int>(index),
                    static_cast<int>(colors.size()));
}

void GroupCommunicator::abort(int exit_code, std::string_view cause) noexcept {
  try {
    job().publish({job().rank(), exit_code, std::string(cause)});
  } catch (...) {
    job().publish({job().rank(), exit_code, {}});  // no memory for the message: the code must do
  }
}

void GroupCommunicator::abandon(int) noexcept {}

void GroupCommunicator::shut_down(const std::function<void()>& release) noexcept {
  Monitor& monitor = *links_.monitor;
  if (in_flight_.load() > 0) monitor.close();
  if (in_flight_.load() == 0 && sends_in_flight_.load() == 0 && !release) return;
  try {
    monitor.thread().call([&] {
      const auto deadline = std::chrono::steady_clock::now() + kSendGrace;
      while (sends_in_flight_.load() > 0 && std::chrono::steady_clock::now() < deadline) {
        monitor.thread().progress();
        if (job().cause()) break;
        links_.messenger->rest(0, monitor.slice());
      }
      *alive_ = false;
      if (release) release();
    });
  } catch (...) {
    // A destructor has nobody to tell.
  }
}

}  // namespace tessera
