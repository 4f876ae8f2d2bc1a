#ifndef RINGPIPE_BOOTSTRAP_STORED_ROOT_H_
#define RINGPIPE_BOOTSTRAP_STORED_ROOT_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/launcher.h"
#include "bootstrap/store.h"

namespace ringpipe {

// What rank 0 puts into a store, and the others get there.
struct StoredRoot {
  std::vector<std::string> addresses;  // where it listens
  std::string secret;  // made for this job; "": the ranks have been given one

  // On rank 0. What the store says, if it fails.
  Status Put(const Store& store, const Launch& launch) const;
  // On the other ranks. kTimeout: nobody has put it; kAborted, if the function
  // of the caller's BlockingCall ends the wait; kMismatch: it is none.
  static Result<StoredRoot> Await(const Store& store, const Launch& launch,
                                  Deadline deadline);

  std::string Encode() const;
  static Result<StoredRoot> Decode(std::string_view bytes);
};

// 64 random hexadecimal digits.
Result<std::string> MakeSecret();

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_STORED_ROOT_H_
