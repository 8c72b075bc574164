// Errors. A mistake of the caller or of the environment raises `Error`; its code is also the exit
// code of a program that ends because of it, so the integers are fixed for ever.
#pragma once

#include <tessera/export.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

/// What kind of thing went wrong. The value is the process's exit code.
enum class ErrorCode : int {
  kInternal = 1,       ///< a broken invariant: a fault of the library
  kUsage = 2,          ///< wrong command line, configuration or call
  kData = 3,           ///< a data or other file is missing, unreadable or malformed
  kCheckpoint = 4,     ///< a checkpoint is missing, damaged or does not fit
  kPeer = 5,           ///< a peer rank was lost, or a timeout ran out
  kGuard = 6,          ///< training was stopped by a guard (non-finite numbers without a cure)
  kInterrupted = 130,  ///< stopped by SIGINT
  kTerminated = 143,   ///< stopped by SIGTERM or SIGUSR1
};

/// The one exception type of the library.
/// `what()` is "message [context]", or only the message where there is no context.
class TESSERA_API Error : public std::runtime_error {
 public:
  /// `context` says where: "file.yaml:12: trainer.zero_stage", a path, or an operation and rank.
  Error(ErrorCode code, std::string message, std::string context = {});

  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& context() const noexcept { return context_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::string context_;
};

/// Short name of a code, such as "usage" or "checkpoint".
TESSERA_API std::string_view to_string(ErrorCode code);

}  // namespace tessera
