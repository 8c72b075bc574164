// The library's version. While it is 0.x, the minor number is the shared library's SOVERSION.
#pragma once

#include <tessera/export.hpp>

#include <string_view>

namespace tessera {

/// "major.minor.patch" of the library that is linked at run time.
TESSERA_API std::string_view version_string();

}  // namespace tessera
