#include <tessera/version.hpp>

namespace tessera {

std::string_view version_string() { return TESSERA_VERSION; }

}  // namespace tessera
