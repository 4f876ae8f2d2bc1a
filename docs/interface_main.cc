// Prints docs/interface.md.
#include <iostream>

#include "docs/interface_page.h"

int main() {
  std::cout << ringpipe::InterfacePage();
  return std::cout.good() ? 0 : 1;
}
