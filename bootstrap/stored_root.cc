#include "bootstrap/stored_root.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>

#include "auth/byte_stream.h"
#include "auth/mac.h"
#include "base/while_waiting.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kFormat = "ringpipe root 1";
// With this many, of the longest, and a secret it is short enough for a store.
constexpr std::size_t kMostAddresses = 32;
constexpr std::size_t kMostAddressBytes = 110;
constexpr std::size_t kMostSecretBytes = 64;
static_assert(kMostAddresses * (4 + kMostAddressBytes) + kMostSecretBytes +
                  64 <=
              Store::kMostBytes);

// How long `get` is to wait at a time.
constexpr int kSliceMs = 500;

std::string KeyOf(const Launch& launch) { return "ringpipe/" + launch.job_id; }

std::string Name(const Launch& launch) {
  return "rank " + std::to_string(launch.rank);
}

Status Incomplete(const char* what) {
  return {StatusCode::kInvalidArgument,
          std::string("the store has no function ") + what};
}

}  // namespace

Result<std::string> MakeSecret() {
  RINGPIPE_ASSIGN_OR_RETURN(const Nonce nonce, RandomNonce());
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string secret;
  for (const auto byte : nonce) {
    secret += kHex[static_cast<std::uint8_t>(byte) >> 4];
    secret += kHex[static_cast<std::uint8_t>(byte) & 15];
  }
  return secret;
}

std::string StoredRoot::Encode() const {
  ByteWriter writer;
  writer.String(kFormat);
  writer.String(secret);
  const std::size_t count = std::min(addresses.size(), kMostAddresses);
  writer.U32(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    writer.String(addresses[i]);
  }
  return writer.Take();
}

Result<StoredRoot> StoredRoot::Decode(std::string_view bytes) {
  ByteReader reader(bytes);
  StoredRoot root;
  const bool is_known = reader.String(kFormat.size()) == kFormat;
  root.secret = reader.String(kMostSecretBytes);
  const std::uint32_t count = reader.U32();
  for (std::uint32_t i = 0; i < count && i < kMostAddresses; ++i) {
    root.addresses.emplace_back(reader.String(kMostAddressBytes));
  }
  if (!is_known || !reader.finished() || root.addresses.empty()) {
    return Status(StatusCode::kMismatch,
                  "what the store has for this job was not put there by rank "
                  "0 of the same version of ringpipe");
  }
  return root;
}

Status StoredRoot::Put(const Store& store, const Launch& launch) const {
  if (!store.put) {
    return Incomplete("put");
  }
  const UsersFunction running("put of the store");
  return store.put(KeyOf(launch), Encode())
      .WithContext("rank 0 cannot put its address into the store");
}

Result<StoredRoot> StoredRoot::Await(const Store& store, const Launch& launch,
                                     Deadline deadline) {
  if (!store.get) {
    return Incomplete("get");
  }
  while (true) {
    const milliseconds slice(BlockingCall::PollTimeoutMs(
        std::max(1, deadline.PollTimeoutMs(kSliceMs))));
    Result<std::optional<std::string>> value = std::optional<std::string>();
    {
      const UsersFunction running("get of the store");
      value = store.get(KeyOf(launch), slice);
    }
    if (!value.ok()) {
      return value.status().WithContext(
          Name(launch) + " cannot get rank 0's address from the store");
    }
    if (value->has_value()) {
      return Decode(**value);
    }
    if (BlockingCall::EndsAfterPoll(/*interrupted=*/false)) {
      return EndedByCaller(launch.rank, "the creation of the communicator");
    }
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout,
                    Name(launch) +
                        " could not join in time: rank 0 has put nothing into "
                        "the store under the key \"" +
                        KeyOf(launch) +
                        "\"; check that rank 0 runs, and has the same store "
                        "and RINGPIPE_JOB_ID");
    }
    // For a store that does not wait.
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace ringpipe
