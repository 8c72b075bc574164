// The tessera command.
#include <cstdio>
#include <string>

#include <tessera/version.hpp>

int main() {
  std::printf("tessera %s\n", std::string(tessera::version_string()).c_str());
  return 0;
}
