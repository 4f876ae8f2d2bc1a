// Where rank 0 listens, as text and as socket addresses.
#ifndef RINGPIPE_BOOTSTRAP_ADDRESS_H_
#define RINGPIPE_BOOTSTRAP_ADDRESS_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace ringpipe {

// "HOST:PORT", "[IPv6]:PORT" or "unix:@NAME", taken apart. A value.
struct Address {
  bool unix_socket = false;
  std::string host;  // a name or a literal without brackets; for unix the NAME
  uint16_t port = 0;

  // Whether only ranks of one host can mean it.
  bool IsLoopback() const;

  // Whether only hosts of one link can mean it.
  bool IsLinkLocal() const;

  // As it is written.
  std::string ToString() const;

  // kInvalidArgument, with the three forms, where `text` is none of them: also
  // for port 0, which no other rank could know; and for a link-local address
  // that does not say on which interface.
  static Result<Address> Parse(const std::string& text);

  // Where rank 0 is to listen if it can tell the others where it does: the port
  // may be 0, which lets the kernel choose one, and the host "*", which is any
  // address of this host that may be used.
  static Result<Address> ParseListening(const std::string& text);
  bool is_any() const { return !unix_socket && host == "*"; }

 private:
  static Result<Address> Parse(const std::string& text, bool to_listen);
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_ADDRESS_H_
