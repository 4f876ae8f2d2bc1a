#ifndef RINGPIPE_PIPELINE_PIECE_LIST_H_
#define RINGPIPE_PIPELINE_PIECE_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringpipe {

// User memory that does not lie together: pieces that have a part of a message,
// one after the other.
class PieceList {
 public:
  struct Piece {
    std::uint64_t begin = 0;  // in the message, in bytes
    std::uint64_t bytes = 0;
    std::byte* data = nullptr;
    bool on_device = false;  // a device's memory, not the host's

    bool operator==(const Piece&) const = default;
  };

  PieceList() = default;
  // The first piece begins at `begin` in the message.
  explicit PieceList(std::uint64_t begin) : begin_(begin), end_(begin) {}

  // One of no bytes is left out.
  void Add(const void* data, std::uint64_t bytes) {
    if (bytes > 0) {
      pieces_.push_back(
          {end_, bytes,
           static_cast<std::byte*>(const_cast<void*>(data))});  // as it was
      end_ += bytes;
    }
  }

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Tells whose memory each piece is.
  void SetOnDevice(std::size_t piece, bool on_device) {
    pieces_[piece].on_device = on_device;
  }
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }

  // f(data, bytes, on_device) for all that lies together of a part of the
  // message, in order.
  template <typename F>
  void ForEach(std::uint64_t begin, std::uint64_t bytes, F f) const {
    auto piece = std::upper_bound(
        pieces_.begin(), pieces_.end(), begin,
        [](std::uint64_t at, const Piece& of) { return at < of.begin; });
    piece -= piece == pieces_.begin() ? 0 : 1;
    for (; bytes > 0 && piece != pieces_.end(); ++piece) {
      const std::uint64_t skip = begin - piece->begin;
      const std::uint64_t length = std::min(piece->bytes - skip, bytes);
      f(piece->data + skip, length, piece->on_device);
      begin += length;
      bytes -= length;
    }
  }

  // Whether all of the other list is a part of this one, in the same memory.
  bool Holds(const PieceList& part) const {
    bool same = begin_ <= part.begin_ && part.end_ <= end_;
    for (const Piece& piece : part.pieces_) {
      const std::byte* expected = piece.data;
      ForEach(piece.begin, same ? piece.bytes : 0,
              [&](const std::byte* data, std::uint64_t bytes, bool) {
                same &= data == expected;
                expected += bytes;
              });
    }
    return same;
  }

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PIECE_LIST_H_
