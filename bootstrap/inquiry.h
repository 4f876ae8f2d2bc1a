// Rank 0's part of Bootstrap::AskAll.
#ifndef RINGPIPE_BOOTSTRAP_INQUIRY_H_
#define RINGPIPE_BOOTSTRAP_INQUIRY_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <set>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

namespace ringpipe {

// One question to all ranks for all who ask at a time: their calls expire
// together. Ends when all have replied, or after 250 ms. On the io_context's
// one thread.
class Inquiry {
 public:
  // Tells `asker` what each rank says; "" for who was silent.
  using Tell = std::function<void(int asker, const std::vector<std::string>&)>;

  Inquiry(boost::asio::io_context* io, int size, Tell tell);

  // False if the question has been asked already, for another rank.
  bool Begin(int asker);
  void TakeReply(int rank, const std::string& text);

 private:
  void End();

  const int size_;
  const Tell tell_;
  std::set<int> askers_;              // none: it is not going on
  std::vector<std::string> replies_;  // by rank
  int missing_ = 0;
  boost::asio::steady_timer patience_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_INQUIRY_H_
