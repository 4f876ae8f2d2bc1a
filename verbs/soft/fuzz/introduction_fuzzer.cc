#include "verbs/soft/fuzz/introduction_fuzzer.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string_view>

#include "verbs/soft/network/introduction.h"

namespace ringpipe::verbs::soft {

void FuzzIntroduction(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return;
  }
  const bool accepts = data[0] % 2 == 0;
  Result<Introduction> made =
      accepts ? Introduction::ForAcceptor("secret")
              : Introduction::ForConnector("secret", Introduction::Claim());
  if (!made.ok()) {
    abort();
  }
  Introduction& introduction = *made;
  introduction.Start();
  std::string_view left(reinterpret_cast<const char*>(data) + 1, size - 1);
  while (!left.empty()) {
    const std::size_t wanted = introduction.wanted();
    const std::string_view next = left.substr(0, wanted);
    left.remove_prefix(next.size());
    if (wanted == 0 || wanted > 4 + Handshake::kMostMessageBytes) {
      fprintf(stderr, "it wants %zu bytes\n", wanted);
      abort();
    }
    if (!introduction.Receive(next).ok()) {
      return;
    }
    // Nobody gets in without the secret.
    if (introduction.claim() || introduction.welcomed()) {
      fprintf(stderr, "a stranger was let in\n");
      abort();
    }
  }
}

}  // namespace ringpipe::verbs::soft
