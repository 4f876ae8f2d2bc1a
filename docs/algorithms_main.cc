// Prints docs/algorithms.md.
#include <iostream>

#include "docs/algorithms_page.h"

int main() {
  std::cout << ringpipe::AlgorithmsPage();
  return std::cout.good() ? 0 : 1;
}
