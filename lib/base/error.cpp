#include <tessera/error.hpp>

#include <cstring>

#include "base/check.hpp"

namespace tessera {

namespace {

std::string compose(const std::string& message, const std::string& context) {
  return context.empty() ? message : message + " [" + context + "]";
}

}  // namespace

Error::Error(ErrorCode code, std::string message, std::string context)
    : std::runtime_error(compose(message, context)),
      code_(code),
      message_(std::move(message)),
      context_(std::move(context)) {}

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal: return "internal";
    case ErrorCode::kUsage: return "usage";
    case ErrorCode::kData: return "data";
    case ErrorCode::kCheckpoint: return "checkpoint";
    case ErrorCode::kPeer: return "peer";
    case ErrorCode::kGuard: return "guard";
    case ErrorCode::kInterrupted: return "interrupted";
    case ErrorCode::kTerminated: return "terminated";
  }
  return "unknown";
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  const char* lib = std::strstr(file, "/lib/");
  const std::string place = fmt::format("{}:{}", lib != nullptr ? lib + 1 : file, line);
  throw Error(ErrorCode::kInternal,
              message.empty() ? fmt::format("check failed: {}", condition)
                              : fmt::format("check failed: {}: {}", condition, message),
              place);
}

}  // namespace tessera
