#ifndef RINGPIPE_PIPELINE_FIFO_H_
#define RINGPIPE_PIPELINE_FIFO_H_

#include <cstddef>
#include <vector>

namespace ringpipe {

// A fixed-capacity queue whose storage is kept between uses.
template <typename T>
class Fifo {
 public:
  // Empties it; at least `capacity` elements fit from now on.
  void Reset(std::size_t capacity) {
    if (items_.size() < capacity) {
      items_.resize(capacity);
    }
    room_ = capacity;
    head_ = count_ = 0;
  }
  // So many more fit from now on. Only while it is empty.
  void AddRoom(std::size_t elements) {
    room_ += elements;
    if (items_.size() < room_) {
      items_.resize(room_);
    }
  }
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  T& front() { return items_[head_]; }
  void push(const T& item) {
    const std::size_t end = head_ + count_++;
    items_[end < items_.size() ? end : end - items_.size()] = item;
  }
  T pop() {
    const T item = items_[head_];
    head_ = head_ + 1 < items_.size() ? head_ + 1 : 0;
    --count_;
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t room_ = 0;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_FIFO_H_
