#ifndef RINGPIPE_VERBS_SOFT_DATAGRAMS_H_
#define RINGPIPE_VERBS_SOFT_DATAGRAMS_H_

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "base/file_descriptor.h"

namespace ringpipe::verbs::soft {

class Context;
struct AddressHandle;

// A UD message carries at most one packet.
inline constexpr std::uint32_t kMaxDatagramBytes = 4096;
// The room for a GRH at the start of each receive of a UD queue pair.
inline constexpr std::uint32_t kGrhBytes = 40;

// What goes before the payload of each datagram, in this order, without gaps;
// the integers little-endian, the immediate as the user gave it. Between hosts
// a MAC of it all comes last.
struct DatagramHeader {
  static constexpr std::uint32_t kMagic = 0x72706431;  // version 1

  std::uint32_t magic = kMagic;
  std::uint32_t dest_qpn = 0;
  std::uint32_t src_qpn = 0;
  std::uint32_t qkey = 0;
  std::uint32_t immediate = 0;
  std::uint16_t slid = 0;
  std::uint8_t service_level = 0;
  std::uint8_t flags = 0;
  static constexpr std::uint8_t kImmediate = 1;
  static constexpr std::uint8_t kSolicited = 2;
  static constexpr std::uint8_t kGrh = 4;
  ibv_gid source = {};
  ibv_gid destination = {};
};
static_assert(sizeof(DatagramHeader) == 56);

// What the UD queue pairs of a context send and receive: unix datagrams on one
// host, where the kernel says who sent them, and UDP between hosts, where a MAC
// with the options' key does. Lossy, as UD is. Thread-safe.
class Datagrams {
 public:
  explicit Datagrams(Context* context) : context_(context) {}

  // Binds the sockets, once; false with errno. UDP only where other hosts
  // are talked to.
  bool Open();

  enum class Sent {
    kDone,  // or lost, which is the same to the sender
    kFull,  // the receiver does not keep up: try again
  };
  Sent Send(const DatagramHeader& header, std::span<const iovec> payload);

  // Gives what has arrived to the queue pairs. Returns how much there was.
  int Drain();

  // Lets `epoll` report the sockets, once for each Arm; false with errno.
  bool Watch(int epoll);
  void Arm();
  bool Owns(int fd) const {
    return fd >= 0 && (fd == local_fd_.load() || fd == udp_fd_.load());
  }
  // `epoll` also reports this one, once, when a receiver of this host that did
  // not keep up has room again; then OnRoom is to be called.
  bool IsRoom(int fd) const { return fd >= 0 && fd == room_fd_.load(); }
  void OnRoom();

 private:
  // Both sockets' worth of one datagram.
  static constexpr std::size_t kMostBytes =
      sizeof(DatagramHeader) + kMaxDatagramBytes + 32;

  struct LocalAddress {
    sockaddr_un name = {};
    socklen_t length = 0;
  };

  Sent SendLocally(const DatagramHeader& header,
                   std::span<const iovec> payload);
  Sent SendByUdp(const DatagramHeader& header, std::span<const iovec> payload);
  void AwaitRoom(std::uint32_t block, const LocalAddress& address);
  bool ReceiveLocally();
  bool ReceiveByUdp();
  void Deliver(std::span<const std::byte> datagram);

  LocalAddress AddressOf(std::uint32_t block);

  Context* const context_;
  std::mutex open_mutex_;
  FileDescriptor local_;
  FileDescriptor udp_;
  // The same for the housekeeper, which asks before they exist.
  std::atomic<int> local_fd_{-1};
  std::atomic<int> udp_fd_{-1};
  std::atomic<int> room_fd_{-1};
  std::atomic<int> epoll_{-1};
  std::mutex addresses_mutex_;
  std::map<std::uint32_t, LocalAddress> addresses_;  // by block
  // Connected to the receiver that was full last.
  FileDescriptor room_;
  std::mutex room_mutex_;
  std::optional<std::uint32_t> awaited_block_;  // whose it is, where that waits
  // There was room, and nothing was sent since: it was the sender that is full.
  std::atomic<bool> room_in_vain_{false};
  std::mutex drain_mutex_;
  alignas(16) std::array<std::byte, kMostBytes> buffer_;  // of Drain
};

// The GRH of a datagram as it lies in front of the payload: on Ethernet with
// IPv4 the last 20 bytes are an IPv4 header (RoCE v2), else it is IPv6's.
std::array<std::byte, kGrhBytes> MakeGrh(const DatagramHeader& header,
                                         std::uint32_t payload_bytes,
                                         bool ethernet);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_DATAGRAMS_H_
