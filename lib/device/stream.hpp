// Streams of a CPU device (docs in <tessera/stream.hpp>).
#pragma once

#include <tessera/stream.hpp>

#include <memory>

namespace tessera {

/// An inline or a worker stream.
std::unique_ptr<Stream> make_cpu_stream(StreamMode mode);

}  // namespace tessera
