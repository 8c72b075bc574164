// Uses an installed Tessera: the headers compile on their own, the library links and loads, and its
// version is the package's.
#include <tessera/tessera.hpp>

#include <iostream>
#include <string>

int main() {
  const std::string linked(tessera::version_string());
  const std::string package = PACKAGE_VERSION;
  if (linked != package) {
    std::cerr << "the package says " << package << ", the library " << linked << "\n";
    return 1;
  }
  std::cout << "Tessera " << linked << " from an installed package\n";
  return 0;
}
