#include "base/agreement.hpp"

#include <tessera/error.hpp>

#include <cstdint>
#include <exception>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/check.hpp"

namespace tessera {

namespace {

// An outcome as bytes: code (0 = fine), then the result or message and context.
std::string encode_failure(ErrorCode code, std::string_view message, std::string_view context) {
  std::string bytes;
  put_integer(bytes, static_cast<std::uint32_t>(code));
  put_string(bytes, message);
  put_string(bytes, context);
  return bytes;
}

std::string encode_outcome(const std::function<std::string()>& body) {
  try {
    std::string bytes;
    put_integer<std::uint32_t>(bytes, 0);
    return bytes += body();
  } catch (const Error& error) {
    return encode_failure(error.code(), error.message(), error.context());
  } catch (const std::exception& error) {
    return encode_failure(ErrorCode::kInternal, error.what(), {});
  }
}

// The result of the rank, or its error raised.
std::string decode_outcome(std::string_view bytes, int rank) {
  ByteReader reader(bytes);
  const auto code = reader.integer<std::uint32_t>();
  if (code == 0) return std::string(reader.rest());
  const std::string_view message = reader.string();
  std::string context(reader.string());
  if (rank != 0) context += fmt::format("{}rank {}", context.empty() ? "" : ", ", rank);
  throw Error(static_cast<ErrorCode>(code), std::string(message), std::move(context));
}

}  // namespace

std::vector<std::string> gather_outcomes(Communicator& comm, std::string_view label,
                                         const std::function<std::string()>& body) {
  std::vector<std::string> outcomes = comm.all_gather_bytes(encode_outcome(body), label);
  for (int rank = 0; rank < comm.size(); ++rank) {
    std::string& outcome = outcomes[static_cast<std::size_t>(rank)];
    outcome = decode_outcome(outcome, rank);
  }
  return outcomes;
}

void agree(Communicator& comm, std::string_view label, const std::function<void()>& body) {
  gather_outcomes(comm, label, [&] {
    body();
    return std::string();
  });
}

std::string decide_on_root(Communicator& comm, std::string_view label,
                           const std::function<std::string()>& body) {
  const std::string mine = comm.rank() == 0 ? encode_outcome(body) : std::string();
  return decode_outcome(comm.broadcast_bytes(mine, 0, label), 0);
}

}  // namespace tessera
